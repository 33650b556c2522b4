"""Memories with a share for every class, filled at the end of a task or sample by sample."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engram.core.values import Batch, Heads
from engram.methods.memory.samples import Samples
from engram.methods.state import State


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
        offered: list[Batch] = []
        for batch in batches:
            self.order += [c for c in dict.fromkeys(batch.y.tolist()) if c not in self.order]
            offered.append(batch)
            self.keys = torch.cat([self.keys, torch.rand(len(batch), generator=self.generator)])
            if len(self.keys) > 4 * self.capacity + len(batch):
                self._choose(offered)
                offered = []
        self._choose(offered)

    def _choose(self, offered: list[Batch]) -> None:
        """Of the samples held and offered, keep those with the largest keys."""
        # While a task is being read its later classes are not known yet, so shares can only be too large.
        quota = equal_shares(self.capacity, sorted(self.order))
        y = torch.cat([self.samples.y.cpu(), *(batch.y.cpu() for batch in offered)])
        kept = []
        for name, share in quota.items():
            rows = torch.nonzero(y == name).squeeze(1)
            best = torch.argsort(self.keys[rows], descending=True, stable=True)[:share]
            kept.append(rows[best])
        index = torch.cat(kept)
        self.samples.choose(index, *offered)
        self.keys = self.keys[index]
        self.groups = self._grouped()

    def _grouped(self) -> list[Tensor]:
        """The places of each class."""
        y = self.samples.y.cpu()
        return [torch.nonzero(y == name).squeeze(1) for name in sorted(set(y.tolist()))]

    def sample(self, size: int, heads: Heads) -> Batch:
        """Up to `size` different samples: for each, a random class and then a random sample of it."""
        size = min(size, len(self))
        room = [len(rows) for rows in self.groups]
        taken = [0] * len(room)
        while (missing := size - sum(taken)) > 0:
            free = [group for group, most in enumerate(room) if taken[group] < most]
            picks = torch.randint(len(free), (missing,), generator=self.generator)
            for group, wanted in zip(free, picks.bincount(minlength=len(free)).tolist(), strict=True):
                taken[group] = min(taken[group] + wanted, room[group])
        index = torch.cat(
            [
                rows[torch.randperm(most, generator=self.generator)[:count]]
                for rows, most, count in zip(self.groups, room, taken, strict=True)
            ]
        )
        return self.samples.batch(index, heads)

    def state_dict(self) -> State:
        """Everything that is stored; the generator belongs to the method."""
        return {"samples": self.samples.state_dict(), "keys": self.keys, "order": self.order}

    def load_state_dict(self, state: State) -> None:
        """Restore what was stored."""
        self.samples.load_state_dict(state["samples"])
        self.keys, self.order = state["keys"], list(state["order"])
        self.groups = self._grouped()


class PerClass:
    """`share` random samples of every class of every task, kept for good (Chen et al. 2023).

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
        self.samples.extend(task.samples)

    def sample(self, size: int, heads: Heads) -> Batch:
        """Up to `size` different samples, uniformly."""
        index = torch.randperm(len(self), generator=self.generator)[:size]
        return self.samples.batch(index, heads)

    def state_dict(self) -> State:
        """Everything that is stored; the generator belongs to the method."""
        return {"samples": self.samples.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore what was stored."""
        self.samples.load_state_dict(state["samples"])


class Latest:
    """The `share` samples of every class that were seen last: a ring for each class.

    Example:
        >>> memory = Latest(2)
        >>> memory.add(Batch(torch.arange(4.0)[:, None], torch.tensor([0, 0, 1, 0]), heads=((0, 1),)))
        >>> memory.samples.x.flatten(), memory.samples.y
        (tensor([1., 2., 3.]), tensor([0, 1, 0]))
    """

    def __init__(self, share: int) -> None:
        self.share = share
        self.samples = Samples()

    def __len__(self) -> int:
        return len(self.samples)

    def add(self, batch: Batch) -> None:
        """Take the samples of a batch, one after the other."""
        self.samples.append(batch)
        y = self.samples.y.cpu()
        rows = [torch.nonzero(y == name).squeeze(1)[-self.share :] for name in y.unique()]
        kept = torch.cat(rows).sort().values
        if len(kept) < len(y):
            self.samples.keep(kept)

    def state_dict(self) -> State:
        """Everything that is stored."""
        return {"share": self.share, "samples": self.samples.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore what was stored."""
        self.share = state["share"]
        self.samples.load_state_dict(state["samples"])
