"""Memories with sections, and the order in which their samples are rehearsed."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engram.core.values import Batch, Heads
from engram.methods.memory.reservoir import choose
from engram.methods.memory.samples import CodedSamples, Samples
from engram.methods.state import State
from engram.models.heads import head_of_each


class Sections:
    """Samples in sections (a task's, a class's), each in its order of preference: the first stay longest.

    Example:
        >>> memory = Sections()
        >>> for label in (0, 1):
        ...     part = Samples()
        ...     part.append(Batch(torch.zeros(3, 1), torch.tensor([label] * 3), heads=((0, 1),)))
        ...     memory.add(part)
        >>> memory.trim(2)
        >>> memory.batch(torch.tensor([1, 2, 3]), ((0, 1),)).y
        tensor([0, 1, 1])
    """

    def __init__(self, kind: type[Samples | CodedSamples] = Samples) -> None:
        self.kind = kind
        self.parts: list[Samples | CodedSamples] = []

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def add(self, samples: Samples) -> None:
        """Add a section."""
        self.parts.append(self.kind.of(samples))

    def trim(self, share: int) -> None:
        """Keep the first `share` samples of every section."""
        for part in self.parts:
            if len(part) > share:
                part.keep(torch.arange(share))

    def add_share(self, batches: Iterable[Batch], *, capacity: int, generator: torch.Generator) -> None:
        """Add a section of random samples, and trim the others to equal shares of `capacity`."""
        share = capacity // (len(self.parts) + 1)
        self.trim(share)
        self.add(choose(batches, share, generator=generator))

    def batch(self, index: Tensor, heads: Heads) -> Batch:
        """Some samples, counted over all sections, as a batch with the units that compete now."""
        pieces, start = [], 0
        for part in self.parts:
            rows = index[(index >= start) & (index < start + len(part))] - start
            if len(rows):
                pieces.append(part.batch(rows, heads))
            start += len(part)
        head = torch.cat([head_of_each(piece) for piece in pieces]) if len(heads) > 1 else 0
        return Batch(
            torch.cat([piece.x for piece in pieces]),
            torch.cat([piece.y for piece in pieces]),
            heads=heads,
            head=head,
        )

    def state_dict(self) -> State:
        """Everything that is stored."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: State) -> None:
        """Restore what was stored."""
        self.parts = [self.kind() for _ in state["parts"]]
        for part, held in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(held)


class Turns:
    """The order in which remembered samples are rehearsed, each as often as any other, or once more.

    All places come in a random order, then in another, and so on. A deal that contains the end of one order
    and the beginning of the next may hold a place twice, even if there are more places than it deals.

    Example:
        >>> turns = Turns(torch.Generator().manual_seed(0))
        >>> turns.restart()
        >>> turns.deal(2, 3).tolist() + turns.deal(1, 3).tolist()
        [2, 0, 1]
        >>> turns = Turns(torch.Generator().manual_seed(1))
        >>> turns.deal(2, 3).tolist(), turns.deal(2, 3).tolist()
        ([1, 2], [0, 0])
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.restart()

    def restart(self) -> None:
        """Start again with an empty queue, because the remembered samples have changed."""
        self.queue = torch.empty(0, dtype=torch.int64)
        self.met = 0
        self.dealt = 0

    def deal(self, count: int, remembered: int) -> Tensor:
        """The next `count` places of `remembered`."""
        while len(self.queue) < count:
            more = torch.randperm(remembered, generator=self.generator)
            self.queue = torch.cat([self.queue, more])
        dealt, self.queue = self.queue[:count], self.queue[count:]
        return dealt

    def accompany(self, new: int, remembered: int, *, times: int, samples: int) -> Tensor:
        """The places that come along with `new` samples, of `samples` in a pass over the new data.

        In a pass every remembered sample has its turn `times` times, spread evenly.

        Example:
            >>> turns = Turns(torch.Generator())
            >>> [len(turns.accompany(2, 3, times=1, samples=8)) for _ in range(4)]
            [0, 1, 1, 1]
        """
        self.met += new
        count = remembered * times * self.met // samples - self.dealt
        self.dealt += count
        return self.deal(count, remembered)

    def state_dict(self) -> State:
        """The queue and the counts; the generator belongs to the method."""
        return {"queue": self.queue, "met": self.met, "dealt": self.dealt}

    def load_state_dict(self, state: State) -> None:
        """Continue from a state."""
        self.queue, self.met, self.dealt = state["queue"], state["met"], state["dealt"]
