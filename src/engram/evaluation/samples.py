"""Test sets of any kind, and fixed subsets of them."""

from collections.abc import Iterator, Sequence
from typing import Protocol, SupportsInt, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from engram.core.errors import InputError


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
        self.x, self.y = x, y.long()

    def rows(self, index: Tensor) -> Tensor:
        """The inputs of some samples."""
        return self.x[index]


class ItemSet:
    """A test set that is read sample by sample: any map-style `torch.utils.data.Dataset`."""

    in_memory = False

    def __init__(self, items: Items) -> None:
        self.items = items
        self.y = torch.tensor([int(items[i][1]) for i in range(len(items))], dtype=torch.int64)

    def rows(self, index: Tensor) -> Tensor:
        """The inputs of some samples."""
        return torch.stack([torch.as_tensor(self.items[i][0]) for i in index.tolist()])


def as_evaluation_set(data: object) -> EvaluationSet:
    """A test set from a pair of tensors or arrays, a `DataLoader`, or a map-style data set.

    Example:
        >>> as_evaluation_set((torch.zeros(3, 2), torch.tensor([0, 1, 0]))).rows(torch.tensor([2])).shape
        torch.Size([1, 2])
    """
    if isinstance(data, EvaluationSet):
        return data
    if isinstance(data, tuple | list) and len(data) == 2:
        return TensorSet(torch.as_tensor(data[0]), torch.as_tensor(data[1]))
    if isinstance(data, DataLoader):
        pairs = [(batch[0], batch[1]) for batch in data]
        return TensorSet(torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs]))
    if isinstance(data, Items):
        return ItemSet(data)
    raise InputError(
        f"cannot evaluate on a {type(data).__name__}: give (inputs, labels), a DataLoader or a Dataset"
    )


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


class Questions:
    """The samples of one evaluation: those of several tasks, concatenated.

    Their inputs are held in one contiguous tensor (`hold`) or read piece by piece.

    Args:
        sets: The test sets of all tasks.
        index: For each task, the indices of its samples.
        tasks: The tasks to evaluate, in this order.
        device: Where the network is.
        hold: Whether to keep the inputs in memory.

    Example:
        >>> sets = [TensorSet(torch.zeros(3, 2), torch.zeros(3)), TensorSet(torch.ones(2, 2), torch.ones(2))]
        >>> questions = Questions(sets, [torch.arange(3), torch.arange(2)], [0, 1], device="cpu", hold=True)
        >>> x, y = questions.read(slice(2, 4))
        >>> y, list(questions.spans(slice(2, 4), [(0,), (1,)]))
        (tensor([0, 1]), [(0, slice(2, 3, None)), (1, slice(3, 4, None))])
    """

    def __init__(
        self,
        sets: Sequence[EvaluationSet],
        index: Sequence[Tensor],
        tasks: Sequence[int],
        *,
        device: torch.device | str,
        hold: bool,
    ) -> None:
        self.tasks = list(tasks)
        self.device = device
        self._parts = [(sets[task], index[task]) for task in self.tasks]
        ends = torch.tensor([len(rows) for _, rows in self._parts]).cumsum(0).tolist()
        self.bounds = list(zip([0, *ends[:-1]], ends, strict=True))
        self.total: int = ends[-1]
        self.y = torch.cat([data.y[rows] for data, rows in self._parts]).to(device)
        self._held = torch.cat([data.rows(rows) for data, rows in self._parts]).to(device) if hold else None
        self._version = 0 if self._held is None else self._held._version

    @property
    def overwritten(self) -> bool:
        """Whether a network wrote to the inputs that it was given."""
        return self._held is not None and self._held._version != self._version

    def rows_in(self, size: int) -> int:
        """How many samples fit in `size` bytes, at least 32."""
        data, rows = self._parts[0]
        one = data.rows(rows[:1]) if self._held is None else self._held[:1]
        return max(32, size // max(1, one.numel() * one.element_size()))

    def read(self, part: slice) -> tuple[Tensor, Tensor]:
        """Inputs and labels of a slice of the samples."""
        if self._held is not None:
            return self._held[part], self.y[part]
        pieces = []
        for (data, rows), (start, stop) in zip(self._parts, self.bounds, strict=True):
            low, high = max(part.start, start), min(part.stop, stop)
            if low < high:
                pieces.append(data.rows(rows[low - start : high - start]))
        return torch.cat(pieces).to(self.device), self.y[part]

    def spans(self, part: slice, sought: Sequence[object]) -> Iterator[tuple[int, slice]]:
        """The pieces of `part` with equal entries in `sought`, each with the position of its first task."""
        first = None
        for place, (start, stop) in enumerate(self.bounds):
            low, high = max(part.start, start), min(part.stop, stop)
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
