"""Test sets that are kept as batches, and the batches of one evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from engram.core.errors import InputError
from engram.core.words import counted
from engram.evaluation.batches import (
    Batch,
    as_batch,
    as_tensor_or_same,
    collate,
    label_tensor,
    labels_of,
    move,
    pick,
    samples_in,
    tensors_in,
)
from engram.evaluation.guard import same_randomness
from engram.evaluation.samples import EvaluationSet, ItemSet, TensorSet, as_pair, chunks, class_numbers

SAMPLES = 64
"""How many samples a batch has where the user's data do not come in batches."""


class BatchSet:
    """A test set kept as the batches that a loader made, each padded as its `collate_fn` did.

    Args:
        batches: The batches, in order.

    Raises:
        InputError: A batch cannot be read, or its inputs and labels are of different lengths.

    Example:
        >>> data = BatchSet([{"ids": torch.ones(2, 3)}, {"ids": torch.ones(1, 5)}])
        >>> len(data), [tuple(batch["ids"].shape) for batch in data.chosen(torch.tensor([1, 2]))]
        (3, [(1, 3), (1, 5)])
    """

    in_memory = True

    def __init__(self, batches: Sequence[object]) -> None:
        self.batches = [as_batch(batch) for batch in batches]
        sizes = [samples_in(batch) for batch in self.batches]
        self.ends = np.cumsum([0, *sizes]).tolist()

    @classmethod
    def of_whole(cls, samples: Batch) -> BatchSet:
        """A test set that is given as one batch of all samples; it is cut, and shares their memory."""
        if isinstance(samples, Mapping):
            samples = {key: as_tensor_or_same(value) for key, value in samples.items()}
        size = samples_in(samples)
        return cls([pick(samples, part, of=size) for part in chunks(size, SAMPLES)] if size else [])

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def labels(self) -> Tensor | None:
        """The labels as one tensor, one entry per sample; None where there are none of one form."""
        try:
            tensors = [torch.as_tensor(labels_of(batch)) for batch in self.batches]
            return torch.cat(tensors)
        except (TypeError, ValueError, RuntimeError):
            return None

    def classes(self) -> Tensor:
        """The labels as class numbers.

        Raises:
            InputError: They are none.
        """
        numbers = [class_numbers(label_tensor(batch)) for batch in self.batches]
        return torch.cat(numbers) if numbers else torch.empty(0, dtype=torch.int64)

    def pieces(self, index: Tensor) -> Iterator[tuple[int, Callable[[], Batch]]]:
        """The batches that have some of these samples: how many, and a function that makes a copy of them.

        Args:
            index: Which samples, ascending.
        """
        for batch, (start, stop) in zip(self.batches, pairwise(self.ends), strict=True):
            rows = index[(index >= start) & (index < stop)] - start
            if len(rows):
                yield len(rows), partial(pick, batch, rows, of=stop - start)

    def chosen(self, index: Tensor) -> Iterator[Batch]:
        """These samples, in the batches that they are in."""
        return (make() for _, make in self.pieces(index))


TestSet: TypeAlias = "EvaluationSet | BatchSet"


def as_test_set(data: object, *, classified: bool = True) -> TestSet:
    """A test set from data in any usual form; global random states stay as they are.

    Args:
        data: `(inputs, labels)`; a `DataLoader`; a map-style data set of pairs, tuples or mappings; or all
            samples as one tuple or mapping of tensors.
        classified: Whether answers are judged by class labels, so that labels must be class numbers.

    Raises:
        InputError: It is none of these, or a batch has no labels where it needs them.

    Example:
        >>> x, y = torch.zeros(3, 2), torch.tensor([0, 1, 0])
        >>> type(as_test_set((x, y))).__name__, type(as_test_set({"x": x, "labels": y})).__name__
        ('TensorSet', 'BatchSet')
    """
    if isinstance(data, EvaluationSet):
        return data
    if isinstance(data, Mapping):
        return BatchSet.of_whole(data)
    if isinstance(data, tuple | list) and len(data) == 2 and not isinstance(data[1], Mapping):
        inputs = data[0] if isinstance(data[0], Mapping) else as_pair(data)[0]
        if classified and isinstance(inputs, Tensor):
            return TensorSet(*as_pair(data))
        return BatchSet.of_whole((inputs, data[1] if isinstance(data[1], list) else as_pair(data)[1]))
    if isinstance(data, tuple) and all(isinstance(part, Tensor | np.ndarray) for part in data):
        return BatchSet.of_whole(tuple(torch.as_tensor(part) for part in data))
    with same_randomness():
        if isinstance(data, DataLoader):
            return _of_loader(data, classified=classified)
        return _of_items(data, classified=classified)


def left_out_by(data: object) -> str | None:
    """What to say of samples that a loader with `drop_last` leaves out; None if there are none.

    Example:
        >>> print(left_out_by(DataLoader([0, 1, 0], batch_size=2, drop_last=True)))
        the DataLoader of a test set has drop_last=True: 1 of 3 samples is never evaluated; ...
    """
    if not isinstance(data, DataLoader) or not data.drop_last or not isinstance(data.sampler, Sized):
        return None
    size = len(data.sampler)
    lost = size % (data.batch_size or 1)
    if not lost:
        return None
    return (
        f"the DataLoader of a test set has drop_last=True: {lost} of {counted(size, 'sample')} "
        f"{'is' if lost == 1 else 'are'} never evaluated; leave drop_last out"
    )


def labels_in(data: TestSet) -> Tensor | None:
    """The labels of a test set, one per sample; None where there are none of one form."""
    return data.labels if isinstance(data, BatchSet) else data.y


def size_of(data: TestSet) -> int:
    """How many samples a test set has."""
    return len(data) if isinstance(data, BatchSet) else len(data.y)


class BatchQuestions:
    """The samples of one evaluation in batches, each of one task.

    Args:
        sets: The test sets of all tasks.
        index: For each task, the indices of its samples, ascending.
        tasks: The tasks to evaluate, in this order.
        device: Where the network is.
        hold: Whether to keep the batches in memory, on the device.

    Attributes:
        bounds: For each task, its first sample and the one after its last, in the order of evaluation.
        parts: For each batch, the place of its task in `tasks` and its samples.

    Example:
        >>> sets = [BatchSet.of_whole((torch.zeros(70, 2), torch.zeros(70)))]
        >>> questions = BatchQuestions(sets, [torch.arange(70)], [0], device="cpu", hold=True)
        >>> questions.parts
        [(0, slice(0, 35, None)), (0, slice(35, 70, None))]
    """

    def __init__(
        self,
        sets: Sequence[TestSet],
        index: Sequence[Tensor],
        tasks: Sequence[int],
        *,
        device: torch.device | str,
        hold: bool,
    ) -> None:
        self.tasks, self.device = list(tasks), device
        self.bounds: list[tuple[int, int]] = []
        self.parts: list[tuple[int, slice]] = []
        self._sources: list[Callable[[], Batch]] = []
        self.total = 0
        for place, task in enumerate(self.tasks):
            first = self.total
            for size, source in _pieces(sets[task], index[task]):
                self.parts.append((place, slice(self.total, self.total + size)))
                self._sources.append(source)
                self.total += size
            self.bounds.append((first, self.total))
        self._held = [move(source(), device) for source in self._sources] if hold else None
        self._version = self._writes()

    @property
    def overwritten(self) -> bool:
        """Whether somebody wrote to the batches."""
        return self._writes() != self._version

    def read(self, number: int) -> Batch:
        """The batch with this number, on the device."""
        return move(self._sources[number](), self.device) if self._held is None else self._held[number]

    def in_order(self, measured: Tensor) -> Tensor:
        """What was measured of each sample, in the order of tasks: as it is."""
        return measured

    def _writes(self) -> int:
        """How often PyTorch counted a write to the batches."""
        tensors = () if self._held is None else tensors_in(self._held)
        return sum(tensor._version for tensor in tensors if not tensor.is_inference())


def _pieces(data: TestSet, index: Tensor) -> Iterator[tuple[int, Callable[[], Batch]]]:
    if isinstance(data, BatchSet):
        yield from data.pieces(index)
        return
    for part in chunks(len(index), SAMPLES):
        yield part.stop - part.start, partial(_rows, data, index[part])


def _rows(data: EvaluationSet, rows: Tensor) -> Batch:
    return data.rows(rows), data.y[rows]


def _of_loader(loader: DataLoader[object], *, classified: bool) -> TestSet:
    generators = [
        generator
        for generator in (loader.generator, getattr(loader.sampler, "generator", None))
        if isinstance(generator, torch.Generator)
    ]
    states = [generator.get_state() for generator in generators]
    batches = list(loader)
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
    pairs = [batch for batch in batches if isinstance(batch, tuple | list) and len(batch) == 2]
    if classified and len(pairs) == len(batches) and _joined(pairs):
        x, y = (torch.cat([torch.as_tensor(pair[part]) for pair in pairs]) for part in (0, 1))
        return TensorSet(x, y)
    return BatchSet(batches)


def _joined(pairs: Sequence[Sequence[object]]) -> bool:
    """Whether batches are pairs of tensors that can be one tensor each."""
    tensors = [(x, y) for x, y in pairs if isinstance(x, Tensor) and isinstance(y, Tensor)]
    shapes = {(x.shape[1:], x.dtype) for x, _ in tensors}
    whole = all(x.ndim and y.ndim for x, y in tensors)
    return bool(pairs) and len(tensors) == len(pairs) and len(shapes) == 1 and whole


def _of_items(data: object, *, classified: bool) -> TestSet:
    if isinstance(data, str | bytes | Tensor) or not (
        hasattr(data, "__len__") and hasattr(data, "__getitem__")
    ):
        raise InputError(
            f"cannot evaluate on a {type(data).__name__}: give (inputs, labels), a DataLoader or a Dataset"
        )
    if not len(data):
        return BatchSet([])
    first = data[0]
    pairs = isinstance(first, tuple | list) and len(first) == 2 and not isinstance(first[0], Mapping)
    if pairs and (classified or _is_class(first[1])):
        try:
            return ItemSet(data)
        except InputError:
            if classified:
                raise
    return BatchSet(
        [collate([data[i] for i in range(*part.indices(len(data)))]) for part in chunks(len(data), SAMPLES)]
    )


def _is_class(label: object) -> bool:
    """Whether a label is a whole number, so that a data set of such labels can be read piece by piece."""
    if isinstance(label, Tensor | np.ndarray):
        return label.ndim == 0 and not np.issubdtype(np.asarray(label).dtype, np.floating)
    return isinstance(label, int | np.integer)
