"""Test sets of any kind, and fixed subsets of them."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol, SupportsInt, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from engram.core.errors import InputError
from engram.evaluation.integers import Form, Integers, Lattice, as_integers


@runtime_checkable
class EvaluationSet(Protocol):
    """Labelled samples whose inputs can be read by index."""

    @property
    def y(self) -> Tensor:
        """All labels."""

    @property
    def in_memory(self) -> bool:
        """Whether the inputs are in memory, so that reading them is cheap."""

    def rows(self, index: Tensor) -> Tensor:
        """The inputs of some samples."""


@runtime_checkable
class Items(Protocol):
    """A map-style data set of pairs (input, label), such as `torch.utils.data.Dataset`."""

    def __len__(self) -> int:
        """The number of samples."""

    def __getitem__(self, index: int, /) -> tuple[object, SupportsInt]:
        """The input and the label of one sample."""


class TensorSet:
    """A test set given as two tensors."""

    in_memory = True

    def __init__(self, x: Tensor, y: Tensor) -> None:
        if len(x) != len(y):
            raise InputError(f"a test set has {len(x)} inputs but {len(y)} labels: give one label per input")
        self.x, self.y = x, class_numbers(y)

    def rows(self, index: Tensor) -> Tensor:
        """The inputs of some samples."""
        return self.x[index]


class ItemSet:
    """A test set that is read sample by sample: any map-style `torch.utils.data.Dataset`."""

    in_memory = False

    def __init__(self, items: Items) -> None:
        self.items = items
        self.y = torch.tensor([_class_number(items[i][1]) for i in range(len(items))], dtype=torch.int64)

    def rows(self, index: Tensor) -> Tensor:
        """The inputs of some samples."""
        return torch.stack([torch.as_tensor(self.items[i][0]) for i in index.tolist()])


def class_numbers(y: Tensor) -> Tensor:
    """Labels as whole numbers, one per sample, whatever their type; a column of them is flattened.

    Raises:
        InputError: There is more than one number per sample, or a number is not whole.

    Example:
        >>> class_numbers(torch.tensor([[0.0], [1.0]]))
        tensor([0, 1])
    """
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        hint = ": give class numbers, y.argmax(1) of one-hot labels" if y.ndim == 2 else ""
        raise InputError(f"labels must be one number per sample, got shape {list(y.shape)}{hint}")
    if y.is_floating_point() and not bool((y == y.floor()).all()):
        raise InputError(f"labels must be whole numbers, got {float(y[y != y.floor()][0]):g}")
    return y.long()


def _class_number(label: SupportsInt) -> int:
    try:
        number = int(label)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise InputError(f"labels must be one whole number per sample, got {label!r}") from None
    if number != label:
        raise InputError(f"labels must be whole numbers, got {label!r}")
    return number


def as_pair(data: Sequence[object]) -> tuple[Tensor, Tensor]:
    """Inputs and labels as tensors.

    Raises:
        InputError: They are not numbers.

    Example:
        >>> as_pair(([[0.5], [1.5]], [0, 1]))
        (tensor([[0.5000],
                [1.5000]]), tensor([0, 1]))
    """
    try:
        return torch.as_tensor(data[0]), torch.as_tensor(data[1])
    except (TypeError, ValueError, RuntimeError):
        kinds = " and ".join(type(part).__name__ for part in data)
        raise InputError(
            f"cannot evaluate on {kinds}: give (inputs, labels) as tensors or arrays, a DataLoader "
            "or a Dataset"
        ) from None


def draw(size: int, subset: int | None, generator: torch.Generator) -> Tensor:
    """Which samples are evaluated, in ascending order: `subset` of them, uniformly, or all.

    Example:
        >>> draw(3, None, torch.Generator())
        tensor([0, 1, 2])
        >>> len(draw(100, 10, torch.Generator()))
        10
    """
    if subset is None or subset >= size:
        return torch.arange(size)
    return torch.randperm(size, generator=generator)[:subset].sort().values


def chunks(total: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `total`, of nearly equal length.

    Example:
        >>> list(chunks(5, 3))
        [slice(0, 3, None), slice(3, 5, None)]
    """
    pieces = max(1, -(-total // size))
    share, rest = divmod(total, pieces)
    start = 0
    for piece in range(pieces):
        stop = start + share + (piece < rest)
        yield slice(start, stop)
        start = stop


def shuffled(total: int, seed: int) -> Tensor:
    """A random order of `total` samples, from a generator of its own.

    Example:
        >>> order = shuffled(5, seed=0)
        >>> order.sort().values.tolist(), torch.equal(order, shuffled(5, seed=0))
        ([0, 1, 2, 3, 4], True)
    """
    drawn = np.random.SeedSequence([seed, total]).generate_state(1, np.uint64)[0]
    return torch.randperm(total, generator=torch.Generator().manual_seed(int(drawn >> 1)))


class Questions:
    """The samples of one evaluation: those of several tasks, concatenated or in a shuffled order.

    Their inputs are held in one contiguous tensor (`hold`) or read piece by piece. Shuffled, the place of a
    sample does not tell its task; `in_order` puts what was measured back in the order of tasks.

    Args:
        sets: The test sets of all tasks.
        index: For each task, the indices of its samples.
        tasks: The tasks to evaluate, in this order.
        device: Where the network is.
        hold: Whether to keep the inputs in memory.
        shuffle: The seed of a shuffled order; None for the order of tasks.

    Example:
        >>> sets = [TensorSet(torch.zeros(3, 2), torch.zeros(3)), TensorSet(torch.ones(2, 2), torch.ones(2))]
        >>> questions = Questions(sets, [torch.arange(3), torch.arange(2)], [0, 1], device="cpu", hold=True)
        >>> x, y = questions.read(slice(2, 4))
        >>> y, list(questions.spans(slice(2, 4), [(0,), (1,)]))
        (tensor([0, 1]), [(0, slice(0, 1, None)), (1, slice(1, 2, None))])
    """

    def __init__(
        self,
        sets: Sequence[EvaluationSet],
        index: Sequence[Tensor],
        tasks: Sequence[int],
        *,
        device: torch.device | str,
        hold: bool,
        shuffle: int | None = None,
    ) -> None:
        self.tasks = list(tasks)
        self.device = device
        self._parts = [(sets[task], index[task]) for task in self.tasks]
        ends = torch.tensor([len(rows) for _, rows in self._parts]).cumsum(0).tolist()
        self.bounds = list(zip([0, *ends[:-1]], ends, strict=True))
        self.total: int = ends[-1]
        self._order = None if shuffle is None else shuffled(self.total, shuffle)
        self._places = None if self._order is None else self._order.argsort()
        labels = torch.cat([data.y[rows] for data, rows in self._parts])
        self.y = (labels if self._order is None else labels[self._order]).to(device)
        self._held = self._gathered().to(device) if hold else None
        self._version = 0 if self._held is None else self._held._version

    @property
    def overwritten(self) -> bool:
        """Whether a network wrote to the inputs that it was given."""
        return self._held is not None and self._held._version != self._version

    def _gathered(self) -> Tensor:
        """All inputs; shuffled, each task's are put in their places at once."""
        if self._places is None:
            return torch.cat([data.rows(rows) for data, rows in self._parts])
        inputs: Tensor | None = None
        for (data, rows), (start, stop) in zip(self._parts, self.bounds, strict=True):
            x = data.rows(rows)
            if inputs is None:
                inputs = x.new_empty((self.total, *x.shape[1:]))
            inputs[self._places[start:stop]] = x
        assert inputs is not None
        return inputs

    def in_order(self, measured: Tensor) -> Tensor:
        """What was measured of each sample, in the order of tasks."""
        return measured if self._places is None else measured[self._places]

    def rows_in(self, size: int) -> int:
        """How many samples fit in `size` bytes, at least 32."""
        data, rows = self._parts[0]
        one = data.rows(rows[:1]) if self._held is None else self._held[:1]
        return max(32, size // max(1, one.numel() * one.element_size()))

    def read(self, part: slice) -> tuple[Tensor, Tensor]:
        """Inputs and labels of a slice of the samples."""
        if self._held is not None:
            return self._held[part], self.y[part]
        if self._order is not None:
            return self._picked(self._order[part]).to(self.device), self.y[part]
        pieces = []
        for (data, rows), (start, stop) in zip(self._parts, self.bounds, strict=True):
            low, high = max(part.start, start), min(part.stop, stop)
            if low < high:
                pieces.append(data.rows(rows[low - start : high - start]))
        return torch.cat(pieces).to(self.device), self.y[part]

    def read_as(self, form: Form, part: slice) -> tuple[Tensor, Tensor]:
        """As `read`, with inputs in a form for half precision; those in memory are converted once.

        As 8-bit numbers they can be read where there is a `lattice`.
        """
        if form == "plain":
            return self.read(part)
        if form == "integers":
            assert self._integers is not None
            return self._integers.values[part], self.y[part]
        if self._held is None:
            x, y = self.read(part)
            return x.flatten(1).bfloat16(), y
        return self._rounded[part], self.y[part]

    @property
    def lattice(self) -> Lattice | None:
        """What the inputs stand for as 8-bit numbers; None if they are something else, or not in memory."""
        return None if self._integers is None else self._integers.lattice

    @cached_property
    def _integers(self) -> Integers | None:
        return None if self._held is None else as_integers(self._held)

    @cached_property
    def _rounded(self) -> Tensor:
        assert self._held is not None
        return self._held.flatten(1).bfloat16()

    def pick(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels of some samples, by their places."""
        if self._held is not None:
            return self._held.index_select(0, index.to(self._held.device)), self.y[index.to(self.y.device)]
        places = index if self._order is None else self._order[index]
        return self._picked(places).to(self.device), self.y[index.to(self.y.device)]

    def _picked(self, order: Tensor) -> Tensor:
        """The inputs at some places in the order of tasks; each task's are read at once, ascending."""
        ascending, back = order.sort()
        pieces = []
        for (data, rows), (start, stop) in zip(self._parts, self.bounds, strict=True):
            mine = ascending[(ascending >= start) & (ascending < stop)] - start
            if len(mine):
                pieces.append(data.rows(rows[mine]))
        return torch.cat(pieces)[back.argsort()]

    def spans(self, part: slice, sought: Sequence[object]) -> Iterator[tuple[int, slice | Tensor]]:
        """The samples of `part` with equal entries in `sought`, each with the position of its first task.

        They are counted from the beginning of the part: slices in the order of tasks, indices in a shuffled
        order, and one slice where all entries are equal.
        """
        if self._order is None:
            yield from self._runs(part, sought)
            return
        first = {entry: place for place, entry in reversed(list(enumerate(sought)))}
        if len(first) == 1:
            yield 0, slice(0, part.stop - part.start)
            return
        starts = torch.tensor([start for start, _ in self.bounds])
        owner = torch.searchsorted(starts, self._order[part], right=True) - 1
        group = torch.tensor([first[entry] for entry in sought])[owner]
        for place in group.unique().tolist():
            yield place, torch.nonzero(group == place).squeeze(1)

    def _runs(self, part: slice, sought: Sequence[object]) -> Iterator[tuple[int, slice]]:
        first = None
        for place, (start, stop) in enumerate(self.bounds):
            low, high = max(part.start, start) - part.start, min(part.stop, stop) - part.start
            if low >= high:
                continue
            if first is not None and sought[first[0]] == sought[place]:
                first = (first[0], slice(first[1].start, high))
                continue
            if first is not None:
                yield first
            first = (place, slice(low, high))
        if first is not None:
            yield first
