"""A scenario with its data: the samples of every task, and the batches that a learner is shown."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from engram.core.errors import InputError
from engram.core.values import Batch
from engram.datasets import Images, load
from engram.datasets.accounting import enter, taken
from engram.datasets.transforms import only_scales, prepare, prepared_shape
from engram.record.card import Part
from engram.scenarios.values import Scenario, Task, TaskSetting, Transform

HELD_BYTES = 2**30


class TaskData:
    """The training or the test samples of one task: chosen by class, labelled by output unit.

    What is read of them is entered in the account of the run that reads it.

    Args:
        images: All samples of the data set's part.
        task: Which of them, and how they are prepared.
        part: The part.
        number: The task's number.
    """

    def __init__(self, images: Images, task: Task, *, part: Part, number: int) -> None:
        unit = torch.full((max(int(images.labels.max()), *task.source.classes) + 1,), -1)
        unit[list(task.source.classes)] = torch.tensor(task.units)
        labels = unit[images.labels]
        if part != "test":
            labels[: task.source.unused] = -1
        self.index = torch.nonzero(labels >= 0).squeeze(1)
        self._y = labels[self.index]
        if len(self._y) == 0:
            raise InputError(
                f"task {task.name or task.source} has no samples: its classes are not in the data"
            )
        self.units = task.units
        self.transforms = task.transforms
        self.part: Part = part
        self.number = number
        self.in_memory = hasattr(images, "pixels")
        self._images = images

    def __len__(self) -> int:
        return len(self._y)

    @property
    def y(self) -> Tensor:
        """The output unit that is right for each sample."""
        taken(self.part, (self.number,))
        return self._y

    def only(self, chosen: Tensor) -> TaskData:
        """The same task with those samples alone that a mask chooses."""
        part = copy.copy(self)
        part.index, part._y = self.index[chosen], self._y[chosen]
        return part

    def rows(self, index: Tensor) -> Tensor:
        """Some samples, prepared for a network."""
        enter(self.part, (self.number,), len(index), size=len(self))
        return self.prepared(index)

    def prepared(self, index: Tensor) -> Tensor:
        """The same, recorded only if a method reads it: the caller records samples when it hands them out."""
        taken(self.part, (self.number,))
        return prepare(next(iter(self._images.read([self.index[index]]))), self.transforms)

    def stored(self, index: Tensor) -> Tensor:
        """Some samples as the data set has them; only a method's reads are recorded."""
        taken(self.part, (self.number,))
        return next(iter(self._images.read([self.index[index]])))

    def read_ahead(self, batches: Iterator[Tensor]) -> Iterator[Tensor]:
        """Batch after batch of samples, prepared as above; what is on disk is read ahead."""
        taken(self.part, (self.number,))
        for samples in self._images.read(self.index[rows] for rows in batches):
            yield prepare(samples, self.transforms)


def held_out(y: Tensor, share: float) -> Tensor:
    """Which samples are kept for validation: evenly spaced ones, `share` of each class, rounded down.

    Nothing is random: the same samples are held out for every seed, and in every task that uses them.

    Example:
        >>> held_out(torch.tensor([0, 0, 0, 1, 0, 1]), 0.5).int()
        tensor([0, 1, 0, 0, 1, 1], dtype=torch.int32)
    """
    chosen = torch.zeros(len(y), dtype=torch.bool)
    for label in y.unique():
        rows = torch.nonzero(y == label).squeeze(1)
        reached = (torch.arange(len(rows) + 1, dtype=torch.float64) * share).floor()
        chosen[rows[reached.diff() > 0]] = True
    return chosen


def class_by_class(y: Tensor) -> bool:
    """Whether samples are grouped by class: neighbours differ less than half as often as in a random order.

    Example:
        >>> class_by_class(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
        True
        >>> class_by_class(torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])), class_by_class(torch.tensor([3, 3, 3]))
        (False, False)
    """
    n = len(y)
    changes = int((y[1:] != y[:-1]).sum())
    counts = y.unique(return_counts=True)[1].double()
    # n − 1 pairs of neighbours, each of one class with the chance Σ c(c − 1) / n(n − 1).
    expected = (n - 1) - float((counts * (counts - 1)).sum()) / max(n, 1)
    return changes < expected / 2


class PhaseData:
    """The training samples that are learned together: usually those of one task."""

    def __init__(self, stream: Stream, phase: int) -> None:
        self.scenario = stream.scenario
        self.heads = stream.scenario.heads(phase)
        self.device = stream.device
        self.tasks = stream.scenario.phases[phase]
        self.parts = [stream.train(task) for task in self.tasks]
        self.y = torch.cat([part.y for part in self.parts])
        self.starts = torch.tensor([0, *[len(part) for part in self.parts]]).cumsum(0)
        self._head: int | Tensor = 0
        if isinstance(stream.scenario.setting, TaskSetting):
            owners = torch.cat([torch.full_like(p.y, t) for p, t in zip(self.parts, self.tasks, strict=True)])
            self._head = self.tasks[0] if len(self.tasks) == 1 else owners.to(self.device)
        size = len(self.y) * torch.Size(stream.shape).numel() * 4
        self._held: Tensor | None = None
        self._later: tuple[Transform, ...] | None = None
        self._passes = 0
        if size <= HELD_BYTES and all(part.in_memory for part in self.parts):
            self._held = self._whole()
        self._y = self.y.to(self.device)

    def _whole(self) -> Tensor:
        """All samples, prepared; or bytes that batches only have to scale: faster, for a single pass."""
        transforms = self.parts[0].transforms
        bytes_alike = all(
            part.transforms == transforms and part.stored(torch.arange(1)).dtype is torch.uint8
            for part in self.parts
        )
        if bytes_alike and only_scales(transforms) and self.device.type == "cpu":
            self._later = transforms
        read = TaskData.prepared if self._later is None else TaskData.stored
        pieces = [read(part, torch.arange(len(part))) for part in self.parts]
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)).to(self.device)

    def __len__(self) -> int:
        return len(self.y)

    def batches(self, order: Tensor, size: int) -> Iterator[Batch]:
        """The samples in this order, `size` at a time; the last batch may be smaller."""
        self._passes += 1
        if self._passes > 1 and self._held is not None and self._later is not None:
            self._held, self._later = prepare(self._held, self._later), None
        pieces = order.split(size)
        for rows, x in zip(pieces, self._inputs(pieces), strict=True):
            head = self._head if isinstance(self._head, int) else self._head[rows]
            enter("train", self.tasks, len(rows), size=len(self), heads=self.heads)
            yield Batch(x.to(self.device), self._y[rows], heads=self.heads, head=head)

    def in_order(self, size: int) -> Iterator[Batch]:
        """All samples once, in the data set's own order; a batch does not keep the others alive."""
        if self._held is None:
            yield from self.batches(torch.arange(len(self)), size)
            return
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            head = self._head if isinstance(self._head, int) else self._head[rows]
            y = self._y[rows]
            enter("train", self.tasks, len(y), size=len(self), heads=self.heads)
            x = self._held[rows].clone() if self._later is None else prepare(self._held[rows], self._later)
            yield Batch(x, y.clone(), heads=self.heads, head=head)

    def mixed(self, size: int, *, seed: int) -> Iterator[Batch]:
        """All samples once, in an order in which the classes are mixed.

        That is the data set's own order, unless the samples come class by class, as from folders, or task by
        task, where several tasks are learned together: then they are shuffled.

        Args:
            size: Samples in a batch.
            seed: Draws the order of samples that are shuffled.
        """
        if len(self.parts) == 1 and not class_by_class(self.y):
            return self.in_order(size)
        return self.batches(torch.randperm(len(self), generator=torch.Generator().manual_seed(seed)), size)

    def _inputs(self, pieces: tuple[Tensor, ...]) -> Iterator[Tensor]:
        if self._held is not None:
            for rows in pieces:
                x = self._held.index_select(0, rows.to(self.device))
                yield x if self._later is None else prepare(x, self._later)
        elif len(self.parts) == 1:
            yield from self.parts[0].read_ahead(iter(pieces))
        else:
            for rows in pieces:
                yield self._gathered(rows)

    def _gathered(self, rows: Tensor) -> Tensor:
        """Rows of several tasks that are not held: each task's are read at once and put in their places."""
        owner = torch.searchsorted(self.starts, rows, right=True) - 1
        mine = [torch.nonzero(owner == number).squeeze(1) for number in range(len(self.parts))]
        read = [
            part.prepared(rows[places] - self.starts[number])
            for number, (part, places) in enumerate(zip(self.parts, mine, strict=True))
            if len(places)
        ]
        back = torch.cat(mine).argsort()
        return torch.cat(read)[back]


class Stream:
    """A scenario with its data.

    Args:
        scenario: What is streamed.
        folder: Where the data sets are looked for first.
        device: Where batches are put.

    Example:
        >>> from engram.scenarios import split
        >>> stream = Stream(split("digits", setting="class"))
        >>> stream.shape, len(stream.test(0))
        ((1, 8, 8), 71)
    """

    def __init__(self, scenario: Scenario, folder: Path | None = None, *, device: str = "cpu") -> None:
        self.scenario = scenario
        self.device = torch.device(device)
        data = {name: load(name, folder) for name in {task.source.dataset for task in scenario.tasks}}
        self._train = {name: dataset.train for name, dataset in data.items()}
        self._test = {name: dataset.test for name, dataset in data.items()}
        shapes = {
            prepared_shape(self._train[task.source.dataset].shape, task.transforms) for task in scenario.tasks
        }
        if len(shapes) > 1:
            raise InputError(
                f"the tasks of {scenario.name} have different shapes {sorted(shapes)}: resize them"
            )
        self.shape: tuple[int, ...] = shapes.pop()

    def black(self) -> tuple[tuple[float, ...], ...]:
        """The value of a black pixel in each channel, as the network sees it.

        One row for all output units, or one per unit where tasks normalise their images differently.

        Raises:
            InputError: Tasks that share output units normalise their images differently.

        Example:
            >>> from engram.scenarios import split
            >>> from engram.scenarios.values import Normalise
            >>> Stream(split("digits", setting="class", transforms=(Normalise((0.5,), (0.25,)),))).black()
            ((-2.0,),)
        """
        by_unit: dict[int, tuple[float, ...]] = {}
        for task in self.scenario.tasks:
            empty = torch.zeros(1, *self._train[task.source.dataset].shape, dtype=torch.uint8)
            value = tuple(prepare(empty, task.transforms)[0, :, 0, 0].tolist())
            for unit in task.units:
                if by_unit.setdefault(unit, value) != value:
                    raise InputError(
                        f"tasks of {self.scenario.name} that share output units normalise their images "
                        "differently, so that crops have no common black: leave augment out"
                    )
        rows = [by_unit.get(unit, value) for unit in range(self.scenario.n_units)]
        return (value,) if len(set(rows)) == 1 else tuple(rows)

    def train(self, task: int) -> TaskData:
        """A task's training samples, without those that the scenario holds out."""
        samples = self._training(task, "train")
        share = self.scenario.held_out
        return samples.only(~held_out(samples.y, share)) if share else samples

    def validation(self, task: int) -> TaskData:
        """The training samples that the scenario holds out."""
        samples = self._training(task, "validation")
        chosen = held_out(samples.y, self.scenario.held_out)
        if not chosen.any():
            raise InputError(
                f"{self.scenario.name} has no validation samples of task {task}, holding out "
                f"{self.scenario.held_out:g} of each class: hold out more"
            )
        return samples.only(chosen)

    def test(self, task: int) -> TaskData:
        """A task's test samples."""
        wanted = self.scenario.tasks[task]
        enter("test", (task,), 0)
        return TaskData(self._test[wanted.source.dataset], wanted, part="test", number=task)

    def other(self, task: int, images: Images) -> TaskData:
        """Samples that are no part of the scenario, as test samples of a task: those of its classes.

        Raises:
            InputError: None of them is of the task's classes.
        """
        return TaskData(images, self.scenario.tasks[task], part="test", number=task)

    def stored_shape(self, task: int) -> tuple[int, ...]:
        """The shape of a task's samples as the data set has them, before they are prepared."""
        return self._test[self.scenario.tasks[task].source.dataset].shape

    def phase(self, phase: int) -> PhaseData:
        """The training samples that are learned together in a phase."""
        return PhaseData(self, phase)

    def _training(self, task: int, part: Part) -> TaskData:
        wanted = self.scenario.tasks[task]
        enter(part, (task,), 0)
        return TaskData(self._train[wanted.source.dataset], wanted, part=part, number=task)
