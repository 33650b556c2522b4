"""Uniform samples of a stream."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engram.core.values import Batch, Heads
from engram.methods.memory.samples import Samples
from engram.methods.state import State


class Reservoir:
    """At most `capacity` samples, a uniform sample of the whole stream so far.

    The n-th sample of the stream is stored while there is room; after that a place r is drawn from 1..n,
    and the sample replaces the one at r if r is within the capacity.

    Example:
        >>> memory = Reservoir(2, torch.Generator().manual_seed(0))
        >>> memory.add(Batch(torch.zeros(9, 1), torch.arange(9), heads=((0, 1),)))
        {0: 0, 1: 8}
        >>> len(memory), memory.seen
        (2, 9)
    """

    def __init__(self, capacity: int, generator: torch.Generator) -> None:
        self.capacity = capacity
        self.generator = generator
        self.samples = Samples()
        self.seen = 0

    def __len__(self) -> int:
        return len(self.samples)

    def add(self, batch: Batch) -> dict[int, int]:
        """Offer the samples of a batch one by one; returns the rows that were stored, as `{place: row}`."""
        room = min(max(self.capacity - len(self.samples), 0), len(batch))
        chosen = {len(self.samples) + row: row for row in range(room)}
        count = torch.arange(self.seen + room + 1, self.seen + len(batch) + 1)
        self.seen += len(batch)
        draw = torch.rand(len(count), generator=self.generator, dtype=torch.float64)
        places = (draw * count).long().tolist()
        # A later sample replaces an earlier one that drew the same place.
        chosen |= {place: room + row for row, place in enumerate(places) if place < self.capacity}
        self.samples.write(batch, chosen)
        return chosen

    def draw(self, size: int) -> Tensor:
        """The places of up to `size` different samples, uniformly."""
        return torch.randperm(len(self), generator=self.generator)[:size]

    def sample(self, size: int, heads: Heads) -> Batch:
        """Up to `size` different samples, uniformly."""
        return self.samples.batch(self.draw(size), heads)

    def state_dict(self) -> State:
        """Everything that is stored; the generator belongs to the method."""
        return {"samples": self.samples.state_dict(), "seen": self.seen}

    def load_state_dict(self, state: State) -> None:
        """Restore what was stored."""
        self.samples.load_state_dict(state["samples"])
        self.seen = state["seen"]


def choose(batches: Iterable[Batch], count: int, *, generator: torch.Generator) -> Samples:
    """Up to `count` of all these samples, uniformly, in random order.

    Example:
        >>> batches = [Batch(torch.zeros(5, 1), torch.arange(5), heads=()) for _ in range(3)]
        >>> len(choose(batches, 4, generator=torch.Generator()))
        4
    """
    reservoir = Reservoir(count, generator)
    for batch in batches:
        reservoir.add(batch)
    reservoir.samples.keep(torch.randperm(len(reservoir), generator=generator))
    return reservoir.samples
