"""Stores of samples that methods hold by composition, and ways to fill and to read them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

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
        """Put rows of a batch in places: `{place: row}`, where places beyond the end follow it closely.

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
        """Forget all samples but these, which stand in this order from now on."""
        if self.x is not None:
            self.x, self.y, self.head = self.x[index], self.y[index], self.head[index]

    def part(self, index: Tensor) -> Samples:
        """Some samples as a set of their own."""
        found = Samples()
        if self.x is not None:
            found.x, found.y, found.head = self.x[index], self.y[index], self.head[index]
        return found

    def batch(self, index: Tensor, heads: Heads) -> Batch:
        """Some samples as a batch, with the units that compete now."""
        assert self.x is not None
        head: int | Tensor = self.head[index] if len(heads) > 1 else 0
        return Batch(self.x.index_select(0, index.to(self.x.device)), self.y[index], heads=heads, head=head)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored."""
        return {"x": self.x, "y": self.y, "head": self.head}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what was stored."""
        self.x, self.y, self.head = state["x"], state["y"], state["head"]

    @classmethod
    def of(cls, samples: Samples) -> Samples:
        """The samples as they are."""
        return samples


class CodedSamples:
    """Samples whose inputs are kept in 8 bits a value: a quarter of the bytes of 32-bit floats.

    Values are spread linearly over 256 levels, from the lowest to the highest value of the channel (of all
    values, where inputs are no images). Images that were bytes before they were normalised, black and white
    among their pixels, come back as they were, up to the rounding of floats; else a value is off by at most
    half a level. Labels and heads take 16 bits instead of 64 (32 where there are more than 32,768 of them).

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
        """Code samples; their range of values is theirs alone."""
        coded = cls()
        if samples.x is None or len(samples) == 0:
            return coded
        x = samples.x
        over = tuple(d for d in range(x.dim()) if d != 1) if x.dim() == 4 else tuple(range(x.dim()))
        coded.low = x.amin(over, keepdim=True)
        # Where all values are equal any level will do.
        coded.level = ((x.amax(over, keepdim=True) - coded.low) / 255).clamp_min(torch.finfo(x.dtype).tiny)
        coded.codes = ((x - coded.low) / coded.level).round().to(torch.uint8)
        coded.y, coded.head = _narrow(samples.y), _narrow(samples.head)
        return coded

    def keep(self, index: Tensor) -> None:
        """Forget all samples but these, which stand in this order from now on."""
        self.codes, self.y, self.head = self.codes[index], self.y[index], self.head[index]

    def batch(self, index: Tensor, heads: Heads) -> Batch:
        """Some samples, decoded, as a batch with the units that compete now."""
        head: int | Tensor = self.head[index].long() if len(heads) > 1 else 0
        return Batch(self.low + self.codes[index] * self.level, self.y[index].long(), heads=heads, head=head)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what was stored."""
        vars(self).update(state)


def _narrow(numbers: Tensor) -> Tensor:
    return numbers.to(torch.int16 if int(numbers.max()) < 2**15 else torch.int32)


def select(batch: Batch, rows: Tensor | slice) -> Batch:
    """Some samples of a batch as a batch of their own, all new and equally weighted.

    Example:
        >>> select(Batch(torch.zeros(3, 1), torch.tensor([4, 5, 6]), heads=()), slice(1, None)).y
        tensor([5, 6])
    """
    head = batch.head[rows] if isinstance(batch.head, Tensor) else batch.head
    return replace(batch, x=batch.x[rows], y=batch.y[rows], head=head, weight=None, fresh=None)


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


def pool(batch: Batch, remembered: Batch) -> Batch:
    """New and remembered samples in one batch, whose loss is one mean over both.

    Example:
        >>> new = Batch(torch.zeros(3, 1), torch.tensor([0, 0, 0]), heads=((0, 1),))
        >>> old = Batch(torch.zeros(1, 1), torch.tensor([1]), heads=((0, 1),))
        >>> pool(new, old).weight
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    share = len(batch) / (len(batch) + len(remembered))
    return join(batch, remembered, weight=share, remembered_weight=1 - share)


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
        """Keep those with the largest keys of what is held and what is offered."""
        # While a task is being read its later classes are not known yet, so shares can only be too large.
        quota = equal_shares(self.capacity, sorted(self.order))
        y = torch.cat([self.samples.y.cpu(), *(batch.y.cpu() for batch in offered)])
        kept = []
        for name, share in quota.items():
            rows = torch.nonzero(y == name).squeeze(1)
            best = torch.argsort(self.keys[rows], descending=True, stable=True)[:share]
            kept.append(rows[best])
        index = torch.cat(kept)
        # Only what is kept is copied: of all that is held and offered, in its order; then put by class.
        ordered = index.sort().values
        start = len(self.samples)
        self.samples.keep(ordered[ordered < start])
        chosen = []
        for batch in offered:
            own = ordered[(ordered >= start) & (ordered < start + len(batch))] - start
            chosen += [select(batch, own.to(batch.y.device))] if len(own) else []
            start += len(batch)
        self.samples.append(*chosen)
        self.samples.keep(torch.searchsorted(ordered, index))
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
        """Offer the samples of a batch, one after the other; says which went where: `{place: row}`."""
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
        self.samples.extend(task.samples)

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
        """See the samples of a batch, one after the other."""
        self.samples.append(batch)
        y = self.samples.y.cpu()
        rows = [torch.nonzero(y == name).squeeze(1)[-self.share :] for name in y.unique()]
        kept = torch.cat(rows).sort().values
        if len(kept) < len(y):
            self.samples.keep(kept)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored."""
        return {"share": self.share, "samples": self.samples.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what was stored."""
        self.share = state["share"]
        self.samples.load_state_dict(state["samples"])


class Greedy:
    """At most `capacity` samples, as balanced over the classes as the stream allows at every moment (GDumb).

    A sample is stored while its class has fewer than capacity / (classes seen so far). Where there is no room
    left it takes the place of a random sample of the largest class (of the lowest number, if several are). A
    sample that is stored already is not stored again, so passes over the same data add nothing.

    Example:
        >>> memory = Greedy(4, torch.Generator().manual_seed(0))
        >>> memory.add(Batch(torch.arange(9.0)[:, None], torch.tensor([0] * 6 + [1] * 3), heads=((0, 1),)))
        True
        >>> memory.samples.y.sort().values
        tensor([0, 0, 1, 1])
    """

    def __init__(self, capacity: int, generator: torch.Generator) -> None:
        self.capacity = capacity
        self.generator = generator
        self.samples = Samples()
        self.classes: list[int] = []
        self._index([])

    def __len__(self) -> int:
        return len(self.samples)

    def add(self, batch: Batch) -> bool:
        """Offer the samples of a batch, one after the other; says whether any was stored."""
        chosen: dict[int, int] = {}
        for row, name in enumerate(batch.y.tolist()):
            if name not in self.classes:
                self.classes.append(name)
            if self._counts[name] >= self.capacity / len(self.classes):
                continue
            found = _fingerprint(batch.x[row], name)
            if found in self._known:
                continue
            place = self._free_place()
            self._held[place : place + 1] = [(name, found)]
            self._counts[name] += 1
            self._known.add(found)
            chosen[place] = row
        self.samples.write(batch, chosen)
        return bool(chosen)

    def _free_place(self) -> int:
        if len(self._held) < self.capacity:
            return len(self._held)
        largest = min(self._counts, key=lambda name: (-self._counts[name], name))
        places = [place for place, (name, _) in enumerate(self._held) if name == largest]
        place = places[int(torch.randint(len(places), (), generator=self.generator))]
        self._counts[largest] -= 1
        self._known.remove(self._held[place][1])
        return place

    def _index(self, held: list[tuple[int, bytes]]) -> None:
        """Note the class and the fingerprint at every place, to look them up fast."""
        self._held = held
        self._counts = Counter(name for name, _ in held)
        self._known = {found for _, found in held}

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored; the generator belongs to the method."""
        return {"samples": self.samples.state_dict(), "classes": self.classes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what was stored."""
        self.samples.load_state_dict(state["samples"])
        self.classes = list(state["classes"])
        x = self.samples.x if self.samples.x is not None else ()
        labels = self.samples.y.tolist()
        self._index([(name, _fingerprint(row, name)) for row, name in zip(x, labels, strict=True)])


def _fingerprint(x: Tensor, name: int) -> bytes:
    content = x.detach().cpu().contiguous().numpy().tobytes()
    return hashlib.blake2b(content, digest_size=16, salt=name.to_bytes(8, "big")).digest()


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
        """One more section."""
        self.parts.append(self.kind.of(samples))

    def trim(self, share: int) -> None:
        """Keep the first `share` samples of every section."""
        for part in self.parts:
            if len(part) > share:
                part.keep(torch.arange(share))

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

    def state_dict(self) -> dict[str, Any]:
        """Everything that is stored."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what was stored."""
        self.parts = [self.kind() for _ in state["parts"]]
        for part, held in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(held)


class Turns:
    """Whose turn it is: deals out the places of remembered samples, each as often as any other.

    The places come in a random order, then in another, and so on; those of one deal differ as far as there
    are enough of them.

    Example:
        >>> turns = Turns(torch.Generator().manual_seed(0))
        >>> turns.restart()
        >>> turns.deal(2, 3).tolist() + turns.deal(1, 3).tolist()
        [2, 0, 1]
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.restart()

    def restart(self) -> None:
        """Begin anew, because other samples are remembered."""
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

    def state_dict(self) -> dict[str, Any]:
        """Where it stands; the generator belongs to the method."""
        return {"queue": self.queue, "met": self.met, "dealt": self.dealt}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.queue, self.met, self.dealt = state["queue"], state["met"], state["dealt"]


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


def gather(batches: Iterable[Batch]) -> Samples:
    """All samples of these batches.

    Example:
        >>> len(gather([Batch(torch.zeros(5, 1), torch.arange(5), heads=()) for _ in range(3)]))
        15
    """
    samples = Samples()
    samples.append(*batches)
    return samples
