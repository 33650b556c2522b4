"""Stored samples: unchanged, or in 8 bits per value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import torch
from torch import Tensor

from engram.core.values import Batch, Heads
from engram.methods.memory.batches import select
from engram.methods.state import State
from engram.models.heads import head_of_each


class Samples:
    """A growing or shrinking set of samples: inputs, labels, heads.

    Example:
        >>> store = Samples()
        >>> store.append(Batch(torch.zeros(3, 2), torch.tensor([0, 1, 1]), heads=((0, 1),)))
        >>> store.keep(torch.tensor([2, 0]))
        >>> len(store), store.y
        (2, tensor([1, 0]))
    """

    def __init__(self) -> None:
        self.x: Tensor | None = None
        self.y = torch.empty(0, dtype=torch.int64)
        self.head = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return int(self.y.shape[0])

    @property
    def bytes(self) -> int:
        """How much memory the samples take."""
        held = [self.y, self.head] if self.x is None else [self.x, self.y, self.head]
        return sum(t.numel() * t.element_size() for t in held)

    def append(self, *batches: Batch) -> None:
        """Add all samples of some batches at the end."""
        if not batches:
            return
        device = batches[0].y.device
        held = [] if self.x is None else [self.x]
        self.x = torch.cat([*held, *(batch.x.detach() for batch in batches)])
        self.y = torch.cat([self.y.to(device), *(batch.y for batch in batches)])
        self.head = torch.cat([self.head.to(device), *(head_of_each(batch) for batch in batches)])

    def extend(self, other: Samples) -> None:
        """Add all samples of another set at the end."""
        if other.x is not None:
            self.append(Batch(other.x, other.y, heads=(), head=other.head))

    def write(self, batch: Batch, chosen: Mapping[int, int]) -> None:
        """Put rows of a batch in places, `{place: row}`; new places follow the last one without a gap.

        Example:
            >>> store = Samples()
            >>> store.write(Batch(torch.zeros(3, 2), torch.tensor([5, 6, 7]), heads=()), {0: 2, 1: 0})
            >>> store.y
            tensor([7, 5])
        """
        end = len(self)
        added = sorted(place for place in chosen if place >= end)
        if added:
            self.append(select(batch, torch.tensor([chosen[place] for place in added])))
        replaced = [place for place in chosen if place < end]
        if replaced:
            assert self.x is not None
            rows = torch.tensor([chosen[place] for place in replaced])
            places = torch.tensor(replaced)
            self.x[places] = batch.x[rows].detach()
            self.y[places] = batch.y[rows]
            self.head[places] = head_of_each(batch)[rows]

    def keep(self, index: Tensor) -> None:
        """Keep only these samples, in this order."""
        if self.x is not None:
            self.x, self.y, self.head = self.x[index], self.y[index], self.head[index]

    def choose(self, index: Tensor, *batches: Batch) -> None:
        """Of the samples held and those of some batches, counted on from there, keep these, in this order.

        Example:
            >>> store = Samples()
            >>> store.append(Batch(torch.zeros(2, 1), torch.tensor([4, 5]), heads=()))
            >>> store.choose(torch.tensor([3, 0]), Batch(torch.ones(2, 1), torch.tensor([6, 7]), heads=()))
            >>> store.x.flatten(), store.y
            (tensor([1., 0.]), tensor([7, 4]))
        """
        held = [] if self.x is None else [Batch(self.x, self.y, heads=(), head=self.head)]
        offered = [*held, *batches]
        if not offered:
            return
        like = offered[-1]
        ordered, order = index.to(like.y.device).sort()
        x = like.x.new_empty((len(index), *like.x.shape[1:]))
        y, head = torch.empty_like(ordered), torch.empty_like(ordered)
        ends = torch.tensor([len(batch) for batch in offered]).cumsum(0)
        stops = torch.searchsorted(ordered, ends.to(ordered.device)).tolist()
        for batch, start, stop, end in zip(offered, [0, *stops], stops, ends.tolist(), strict=False):
            rows = ordered[start:stop] - (end - len(batch))
            torch.index_select(batch.x.detach(), 0, rows, out=x[start:stop])
            y[start:stop], head[start:stop] = batch.y[rows], head_of_each(batch)[rows]
        places = order.argsort()
        self.x, self.y, self.head = x.index_select(0, places), y[places], head[places]

    def part(self, index: Tensor) -> Samples:
        """Some samples as a new set."""
        part = Samples()
        if self.x is not None:
            part.x, part.y, part.head = self.x[index], self.y[index], self.head[index]
        return part

    def batch(self, index: Tensor, heads: Heads) -> Batch:
        """Some samples as a batch, with the units that compete now."""
        assert self.x is not None
        head: int | Tensor = self.head[index] if len(heads) > 1 else 0
        return Batch(self.x.index_select(0, index.to(self.x.device)), self.y[index], heads=heads, head=head)

    def state_dict(self) -> State:
        """Everything that is stored."""
        return {"x": self.x, "y": self.y, "head": self.head}

    def load_state_dict(self, state: State) -> None:
        """Restore what was stored."""
        self.x, self.y, self.head = state["x"], state["y"], state["head"]

    @classmethod
    def of(cls, samples: Samples) -> Samples:
        """The samples, unchanged."""
        return samples


class CodedSamples:
    """Samples whose inputs are kept in 8 bits per value: a quarter of the bytes of 32-bit floats.

    Values are spread linearly over 256 levels, from the lowest to the highest value of the channel (of all
    values, where inputs are not images). Images that were bytes before they were normalised, black and white
    among their pixels, are restored up to the rounding of floats; otherwise a value is off by at most half a
    level. Labels and heads take 16 bits instead of 64 (32 if there are more than 32,768 of them).

    Example:
        >>> store = Samples()
        >>> store.append(Batch(torch.tensor([[-1.0, 0.0], [0.5, 4.1]]), torch.tensor([0, 1]), heads=()))
        >>> coded = CodedSamples.of(store)
        >>> coded.codes
        tensor([[  0,  50],
                [ 75, 255]], dtype=torch.uint8)
        >>> coded.batch(torch.tensor([1]), ()).x
        tensor([[0.5000, 4.1000]])
    """

    def __init__(self) -> None:
        self.codes = torch.empty(0, dtype=torch.uint8)
        self.low = torch.empty(0)
        self.level = torch.empty(0)
        self.y = torch.empty(0, dtype=torch.int16)
        self.head = torch.empty(0, dtype=torch.int16)

    def __len__(self) -> int:
        return int(self.y.shape[0])

    @classmethod
    def of(cls, samples: Samples) -> Self:
        """Code samples, with levels between their own lowest and highest values."""
        coded = cls()
        if samples.x is None or len(samples) == 0:
            return coded
        x = samples.x
        over = tuple(d for d in range(x.dim()) if d != 1) if x.dim() == 4 else tuple(range(x.dim()))
        coded.low = x.amin(over, keepdim=True)
        # If all values are equal, any level will do.
        coded.level = ((x.amax(over, keepdim=True) - coded.low) / 255).clamp_min(torch.finfo(x.dtype).tiny)
        coded.codes = ((x - coded.low) / coded.level).round().to(torch.uint8)
        coded.y, coded.head = _narrow(samples.y), _narrow(samples.head)
        return coded

    def keep(self, index: Tensor) -> None:
        """Keep only these samples, in this order."""
        self.codes, self.y, self.head = self.codes[index], self.y[index], self.head[index]

    def batch(self, index: Tensor, heads: Heads) -> Batch:
        """Some samples, decoded, as a batch with the units that compete now."""
        head: int | Tensor = self.head[index].long() if len(heads) > 1 else 0
        return Batch(self.low + self.codes[index] * self.level, self.y[index].long(), heads=heads, head=head)

    def state_dict(self) -> State:
        """Everything that is stored."""
        return dict(vars(self))

    def load_state_dict(self, state: State) -> None:
        """Restore what was stored."""
        vars(self).update(state)


def _narrow(numbers: Tensor) -> Tensor:
    return numbers.to(torch.int16 if int(numbers.max()) < 2**15 else torch.int32)


def gather(batches: Iterable[Batch]) -> Samples:
    """All samples of these batches.

    Example:
        >>> len(gather([Batch(torch.zeros(5, 1), torch.arange(5), heads=()) for _ in range(3)]))
        15
    """
    samples = Samples()
    samples.append(*batches)
    return samples
