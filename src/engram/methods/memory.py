"""Stores of samples that methods hold by composition, and ways to fill and to read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engram.core.values import Batch, Heads


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

    def append(self, batch: Batch) -> None:
        """Add all samples of a batch at the end."""
        head = head_of_each(batch)
        self.x = batch.x.detach().clone() if self.x is None else torch.cat([self.x, batch.x.detach()])
        self.y = torch.cat([self.y.to(batch.y.device), batch.y])
        self.head = torch.cat([self.head.to(head.device), head])

    def extend(self, other: Samples) -> None:
        """Add all samples of another set at the end."""
        if other.x is not None:
            self.append(Batch(other.x, other.y, heads=(), head=other.head))

    def put(self, slots: Tensor, batch: Batch, rows: Tensor) -> None:
        """Overwrite some places with some rows of a batch."""
        assert self.x is not None
        self.x[slots] = batch.x[rows].detach()
        self.y[slots] = batch.y[rows]
        self.head[slots] = head_of_each(batch)[rows]

    def keep(self, index: Tensor) -> None:
        """Forget all samples but these, which stand in this order from now on."""
        if self.x is not None:
            self.x, self.y, self.head = self.x[index], self.y[index], self.head[index]

    def batch(self, index: Tensor, heads: Heads) -> Batch:
        """Some samples as a batch, with the units that compete now."""
        assert self.x is not None
        head: int | Tensor = self.head[index] if len(heads) > 1 else 0
        return Batch(self.x[index], self.y[index], heads=heads, head=head)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored."""
        return {"x": self.x, "y": self.y, "head": self.head}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what was stored."""
        self.x, self.y, self.head = state["x"], state["y"], state["head"]


def head_of_each(batch: Batch) -> Tensor:
    """The head of each sample, also where the batch has one for all."""
    if isinstance(batch.head, Tensor):
        return batch.head
    return torch.full_like(batch.y, batch.head)


def join(batch: Batch, remembered: Batch, *, weight: float, remembered_weight: float) -> Batch:
    """New and remembered samples in one batch: the two mean losses, each times its weight, are added.

    Example:
        >>> new = Batch(torch.zeros(2, 1), torch.tensor([0, 0]), heads=((0, 1),))
        >>> old = Batch(torch.zeros(1, 1), torch.tensor([1]), heads=((0, 1),))
        >>> join(new, old, weight=0.5, remembered_weight=0.5).weight
        tensor([0.2500, 0.2500, 0.5000])
    """
    head: int | Tensor = batch.head
    one_head = isinstance(batch.head, int) and isinstance(remembered.head, int)
    if not one_head or batch.head != remembered.head:
        head = torch.cat([head_of_each(batch), head_of_each(remembered)])
    new, old = len(batch), len(remembered)
    weights = batch.x.new_empty(new + old, dtype=torch.float32)
    weights[:new] = weight / new
    weights[new:] = remembered_weight / old
    return replace(
        batch,
        x=torch.cat([batch.x, remembered.x]),
        y=torch.cat([batch.y, remembered.y]),
        head=head,
        weight=weights,
        fresh=new,
    )


def equal_shares(capacity: int, classes: Iterable[int]) -> dict[int, int]:
    """How many samples of each class a memory keeps: equal shares, the remainder to the first classes.

    Example:
        >>> equal_shares(7, [0, 1, 2])
        {0: 3, 1: 2, 2: 2}
    """
    names = list(classes)
    share, rest = divmod(capacity, len(names))
    return {name: share + (position < rest) for position, name in enumerate(names)}


class ClassBalanced:
    """At most `capacity` samples, equally many of every class, each class a uniform sample of all it had.

    Every sample gets a random key when it is offered, and those with the largest keys of their class
    stay. A class that has too few samples leaves its places empty.

    Example:
        >>> memory = ClassBalanced(4, torch.Generator().manual_seed(0))
        >>> memory.fill([Batch(torch.zeros(9, 1), torch.tensor([0] * 6 + [1] * 3), heads=((0, 1),))])
        >>> memory.samples.y
        tensor([0, 0, 1, 1])
    """

    def __init__(self, capacity: int, generator: torch.Generator) -> None:
        self.capacity = capacity
        self.generator = generator
        self.samples = Samples()
        self.keys = torch.empty(0)
        self.order: list[int] = []
        self.groups: list[Tensor] = []

    def __len__(self) -> int:
        return len(self.samples)

    def fill(self, batches: Iterable[Batch]) -> None:
        """Offer all samples of a task."""
        for batch in batches:
            self.order += [c for c in dict.fromkeys(batch.y.tolist()) if c not in self.order]
            self.samples.append(batch)
            self.keys = torch.cat([self.keys, torch.rand(len(batch), generator=self.generator)])
            if len(self.samples) > 2 * self.capacity + len(batch):
                self._shrink()
        self._shrink()

    def _shrink(self) -> None:
        # While a task is being read its later classes are not known yet, so shares can only be too large.
        quota = equal_shares(self.capacity, sorted(self.order))
        y = self.samples.y.cpu()
        kept = []
        for name, share in quota.items():
            rows = torch.nonzero(y == name).squeeze(1)
            best = torch.argsort(self.keys[rows], descending=True, stable=True)[:share]
            kept.append(rows[best])
        index = torch.cat(kept)
        self.samples.keep(index)
        self.keys = self.keys[index]
        self.groups = self._grouped()

    def _grouped(self) -> list[Tensor]:
        """The places of each class."""
        y = self.samples.y.cpu()
        return [torch.nonzero(y == name).squeeze(1) for name in sorted(set(y.tolist()))]

    def sample(self, size: int, heads: Heads) -> Batch:
        """Up to `size` samples: again and again a class by chance, then one of its samples not yet taken."""
        size = min(size, len(self))
        room = torch.tensor([len(rows) for rows in self.groups])
        taken = torch.zeros_like(room)
        while (missing := size - int(taken.sum())) > 0:
            open_groups = torch.nonzero(taken < room).squeeze(1)
            picks = torch.randint(len(open_groups), (missing,), generator=self.generator)
            wanted = torch.bincount(open_groups[picks], minlength=len(self.groups))
            taken = torch.minimum(taken + wanted, room)
        index = torch.cat(
            [
                rows[torch.randperm(len(rows), generator=self.generator)[:count]]
                for rows, count in zip(self.groups, taken.tolist(), strict=True)
            ]
        )
        return self.samples.batch(index, heads)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored; the generator belongs to the method."""
        return {"samples": self.samples.state_dict(), "keys": self.keys, "order": self.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what was stored."""
        self.samples.load_state_dict(state["samples"])
        self.keys, self.order = state["keys"], list(state["order"])
        self.groups = self._grouped()


class Reservoir:
    """At most `capacity` samples, a uniform sample of the whole stream so far.

    The n-th sample of the stream is stored while there is room; after that a place r is drawn from 1..n,
    and the sample replaces the one at r if r is within the capacity.

    Example:
        >>> memory = Reservoir(2, torch.Generator().manual_seed(0))
        >>> memory.add(Batch(torch.zeros(9, 1), torch.arange(9), heads=((0, 1),)))
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

    def add(self, batch: Batch) -> None:
        """Offer the samples of a batch, one after the other."""
        room = min(max(self.capacity - len(self.samples), 0), len(batch))
        if room:
            head = head_of_each(batch)[:room]
            self.samples.append(replace(batch, x=batch.x[:room], y=batch.y[:room], head=head))
        count = torch.arange(self.seen + room + 1, self.seen + len(batch) + 1)
        self.seen += len(batch)
        if len(count) == 0:
            return
        draw = torch.rand(len(count), generator=self.generator, dtype=torch.float64)
        places = (draw * count).long()
        # A later sample replaces an earlier one that drew the same place.
        chosen = {place: room + row for row, place in enumerate(places.tolist()) if place < self.capacity}
        if chosen:
            slots, rows = torch.tensor(list(chosen)), torch.tensor(list(chosen.values()))
            self.samples.put(slots, batch, rows)

    def sample(self, size: int, heads: Heads) -> Batch:
        """Up to `size` different samples, uniformly."""
        index = torch.randperm(len(self), generator=self.generator)[:size]
        return self.samples.batch(index, heads)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored; the generator belongs to the method."""
        return {"samples": self.samples.state_dict(), "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what was stored."""
        self.samples.load_state_dict(state["samples"])
        self.seen = state["seen"]


class PerClass:
    """`share` random samples of every class of every task, kept for good (003).

    Example:
        >>> memory = PerClass(2, torch.Generator().manual_seed(0))
        >>> memory.fill([Batch(torch.zeros(9, 1), torch.tensor([0] * 6 + [1] * 3), heads=((0, 1),))])
        >>> memory.samples.y
        tensor([0, 0, 1, 1])
    """

    def __init__(self, share: int, generator: torch.Generator) -> None:
        self.share = share
        self.generator = generator
        self.samples = Samples()

    def __len__(self) -> int:
        return len(self.samples)

    def fill(self, batches: Iterable[Batch]) -> None:
        """Choose from a task's samples."""
        task = ClassBalanced(self.share, self.generator)
        for batch in batches:
            classes = set(batch.y.tolist()) | set(task.order)
            task.capacity = self.share * len(classes)
            task.fill([batch])
        if task.samples.x is not None:
            self.samples.append(Batch(task.samples.x, task.samples.y, heads=(), head=task.samples.head))

    def sample(self, size: int, heads: Heads) -> Batch:
        """Up to `size` different samples, uniformly."""
        index = torch.randperm(len(self), generator=self.generator)[:size]
        return self.samples.batch(index, heads)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored; the generator belongs to the method."""
        return {"samples": self.samples.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what was stored."""
        self.samples.load_state_dict(state["samples"])
