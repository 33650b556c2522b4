"""The recorder: takes evaluations of anything that learns, without torch, and leaves the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engram.core.errors import InputError, unknown_name
from engram.core.scores import Scores
from engram.record.recording import Recording
from engram.record.run import Run
from engram.record.samples import (
    Cell,
    Column,
    Samples,
    TaskSamples,
    checked_ids,
    checked_labels,
    checked_slices,
    same_samples,
)

Task = int | str
"""A task by its number or its name."""


@dataclass(slots=True)
class _Known:
    """What is known of a task's samples since its first evaluation."""

    size: int
    ids: list[str] | None = None
    labels: list[int] | list[str] | None = None
    slices: dict[str, Sequence[Cell]] = field(default_factory=dict)


class Recorder(Recording):
    """Records how anything that learns does on its tasks: a tree ensemble, an API, a robot.

    Tell it after every evaluation which samples of a task were right. It computes the same metrics as an
    `Evaluator` and saves the same files as `engram run`, so that report, compare, gate and history work.
    torch is not needed.

    Args:
        tasks: The names of the tasks, in order (default: as they come).
        classes: How many different classes are in use after each task, for RAA and RAF.
        higher_is_better: Whether a higher score is better.

    Example:
        >>> recorder = Recorder()
        >>> recorder.record(1, "cats", [True, True], learning="cats", ids=["a", "b"])
        >>> recorder.record(2, "cats", [True, False], learning="dogs", ids=["a", "b"])
        >>> recorder.record(2, "dogs", [True, True], ids=["c", "d"])
        >>> recorder.metrics()["ACC"]
        0.75
    """

    def __init__(
        self,
        tasks: Sequence[str] = (),
        *,
        classes: Sequence[int] | None = None,
        higher_is_better: bool = True,
    ) -> None:
        super().__init__(classes=classes)
        self.scores = Scores(higher_is_better)
        repeated = [name for place, name in enumerate(tasks) if name in tasks[:place]]
        if repeated:
            raise InputError(f"names of tasks must differ, {repeated[0]!r} occurs more than once")
        self._names = list(tasks)
        self._declared = bool(tasks)
        self._known: dict[int, _Known] = {}
        self._learning: int | None = None
        self._said = False

    @property
    def names(self) -> list[str]:
        """The names of the tasks; a number stands for a task without one."""
        return list(self._names)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many samples were recorded of each task."""
        known = self._known
        return tuple(known[task].size if task in known else 0 for task in range(len(self._names)))

    def record(
        self,
        step: int,
        task: Task,
        right: ArrayLike,
        *,
        learning: Task | Sequence[Task] | None = None,
        ids: Column | None = None,
        labels: Column | None = None,
        slices: Mapping[str, Column] | None = None,
        answers: Column | None = None,
        score: ArrayLike | None = None,
    ) -> None:
        """Add the evaluation of one task.

        A task has the same samples in all evaluations. Where ids are given, samples may come in any order.

        Args:
            step: How much was learned so far: updates, trees, days; it never falls.
            task: The task that was evaluated, by its name, or its number from 0 on.
            right: For each sample, whether it was right: booleans.
            learning: The task being learned, or several that are learned together (default: as before; a
                recording of one task needs none).
            ids: The name of each sample (default: its place).
            labels: The class of each sample; they need to be given only once.
            slices: Columns with one value per sample, by name; they need to be given only once.
            answers: The class that was answered for each sample: its number or its name.
            score: How good each answer is, one number per sample.

        Raises:
            InputError: Something does not fit; then nothing is recorded.
        """
        correct, names = _booleans(right), list(self._names)
        # What is learned comes first, so that tasks are numbered in the order of learning.
        learned = None if learning is None else tuple(self._number(one, names) for one in _as_list(learning))
        number = self._number(task, names)
        of = f"task {names[number]!r}" if isinstance(task, str) else f"task {number}"
        phase, together = self._phase(learned, number, of)
        moment = self._moment(step, phase, number, of)
        known, order = self._same_samples(number, len(correct), ids, of)
        known = _completed(known, labels, slices, order, of)
        scores = None if score is None else _numbers(score, known.size, of)[order]
        if answers is not None:
            # It refuses what does not fit, before anything is recorded.
            answered = _classes(answers, known.size, of)[order]
            self.answered.add(step=moment, learning=phase, task=number, answers=answered)
        if scores is not None:
            self.scores.add(step=moment, learning=phase, task=number, values=scores)
        self._names, self._known[number] = names, known
        self._said = self._said or learning is not None
        self._learning = phase
        self.evaluations += not len(self.trace) or self.trace.step[-1] != moment
        self.step = self.updated[phase] = moment
        self._meet(phase, together)
        if number not in self.seen:
            self.seen.append(number)
        self.trace.add(step=moment, learning=phase, task=number, right=correct[order])

    def samples(self) -> Samples | None:
        """Who the samples are: their ids, labels and slices."""
        if not self._known:
            return None
        return Samples.of(
            {
                task: TaskSamples(
                    [str(place) for place in range(known.size)] if known.ids is None else known.ids,
                    known.labels,
                    known.slices,
                )
                for task, known in sorted(self._known.items())
            }
        )

    def called(self, task: int) -> str | int:
        """What a task is called in results: its name, or its number where it has none."""
        return task if self._names[task] == str(task) else self._names[task]

    def save(self, folder: str | Path, *, label: str | None = None, seed: int = 0) -> Run:
        """Write the same files as `engram run`, which `engram report` and other commands read.

        Args:
            folder: Where to write them; its name is the run's id.
            label: What people call the run (default: the name of the folder).
            seed: The seed that the model was trained with; runs are paired by it.

        Raises:
            InputError: Nothing was recorded, or the folder cannot be written to.
        """
        self._check_evaluated()
        return super().save(folder, label=label, seed=seed)

    def __repr__(self) -> str:
        """How much was recorded, and the latest accuracies."""
        latest = ", ".join(f"{self._names[task]} {value:.3f}" for task, value in self.latest.items())
        return (
            f"<Recorder of {len(self._names)} tasks: {self.evaluations} evaluations up to step {self.step}"
            f"{f'; {latest}' if latest else ''}>"
        )

    # ------------------------------------------------------------------------------------------------

    def _check_evaluated(self) -> None:
        if not len(self.trace):
            raise InputError("nothing was recorded yet: call record() first")

    def _number(self, task: Task, names: list[str]) -> int:
        """The number of a task, whose name is added to `names` if it is new."""
        if isinstance(task, bool) or not isinstance(task, int | str | np.integer):
            raise InputError(f"a task is a name, or a number from 0 on, got {task!r}")
        if isinstance(task, str):
            if task not in names and self._declared:
                raise unknown_name("task", task, names)
            if task not in names:
                names.append(task)
            return names.index(task)
        numbered = names == [str(place) for place in range(len(names))]
        if not 0 <= task < (len(names) if self._declared or not numbered else task + 1):
            raise InputError(f"there is no task {task}: there are {len(names)}, counted from 0")
        names += [str(place) for place in range(len(names), int(task) + 1)]
        return int(task)

    def _phase(self, learned: tuple[int, ...] | None, number: int, of: str) -> tuple[int, tuple[int, ...]]:
        """The value of the trace's `learning`, which is the last of the tasks learned together, and these."""
        if learned is not None:
            before = self.learned.get(learned[-1], learned)
            if before != learned:
                raise InputError(
                    f"task {learned[-1]} was learned together with other tasks before: "
                    f"say learning={list(before)} again, or give the task another name"
                )
            return learned[-1], learned
        if self._learning is None:
            return number, (number,)
        if not self._said and number != self._learning:
            raise InputError(
                f"there are several tasks now: say which one is being learned, as in record(step, {of[5:]}, "
                f"right, learning={of[5:]})"
            )
        return self._learning, self.learned[self._learning]

    def _moment(self, step: int, phase: int, number: int, of: str) -> int:
        """The step, checked against what was recorded."""
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or step < 0:
            raise InputError(f"step must be a whole number from 0 on, got {step!r}")
        if not len(self.trace):
            return int(step)
        if step < self.step:
            raise InputError(f"steps must not fall: {of} was recorded at step {step} after step {self.step}")
        if step == self.step and self._learning != phase:
            raise InputError(
                f"at step {step}, task {self._learning} was being learned, and now task {phase}: "
                "what is learned changes with a later step"
            )
        rows = zip(self.trace.step, self.trace.task, strict=True)
        if (step, number) in rows:
            raise InputError(f"{of} was recorded at step {step} already")
        return int(step)

    def _same_samples(
        self, number: int, size: int, ids: Column | None, of: str
    ) -> tuple[_Known, NDArray[np.int64]]:
        """What is known of the task's samples, and the order in which they came this time."""
        given = None if ids is None else checked_ids(ids, size, of)
        in_order = np.arange(size)
        known = self._known.get(number)
        if known is None:
            return _Known(size, given), in_order
        if given is not None and known.ids is None:
            raise InputError(f"{of} was recorded without ids before: give them from the first evaluation on")
        if given is not None and known.ids is not None and given != known.ids:
            same_samples(known.ids, given, of)
            place = {name: row for row, name in enumerate(given)}
            return known, np.array([place[name] for name in known.ids])
        if size != known.size:
            raise InputError(f"{of} has {known.size} samples, got {size}: record the same samples every time")
        return known, in_order


def _completed(
    known: _Known,
    labels: Column | None,
    slices: Mapping[str, Column] | None,
    order: NDArray[np.int64],
    of: str,
) -> _Known:
    """The same samples with their labels and slices, which do not change."""
    classes, columns = known.labels, known.slices
    if labels is not None:
        given = checked_labels(labels, known.size, of)
        sorted_labels = [given[place] for place in order]
        if classes is not None and sorted_labels != classes:
            raise InputError(f"the labels of {of} are not those that were recorded before")
        classes = sorted_labels
    for name, values in checked_slices(slices or {}, known.size, of).items():
        column = [values[place] for place in order]
        if list(columns.get(name, column)) != column:
            raise InputError(f"the slice {name!r} of {of} is not the one that was recorded before")
        columns = {**columns, name: column}
    return _Known(known.size, known.ids, classes, columns)


def _as_list(learning: Task | Sequence[Task]) -> list[Task]:
    """The tasks that are learned together, at least one."""
    tasks = [learning] if isinstance(learning, str) or not isinstance(learning, Sequence) else list(learning)
    if not tasks:
        raise InputError("learning must name at least one task")
    return tasks


def _booleans(right: ArrayLike) -> NDArray[np.bool_]:
    array = np.asarray(right)
    if array.ndim != 1 or not array.size:
        raise InputError(f"right must have one entry per sample, at least one, got shape {list(array.shape)}")
    if array.dtype != np.bool_:
        raise InputError(
            f"right must be booleans, one per sample, got {array.dtype}: compare answers with labels, as in "
            "right=answers == labels"
        )
    return array


def _classes(answers: Column, size: int, of: str) -> NDArray[np.int64] | NDArray[np.str_]:
    array = np.asarray(answers)
    if array.shape != (size,):
        raise InputError(f"answers must have one entry per sample: {of} has {size}, got {len(array)}")
    return array


def _numbers(score: ArrayLike, size: int, of: str) -> NDArray[np.float32]:
    try:
        array = np.asarray(score, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(f"score must be one number per sample of {of}") from None
    if array.shape != (size,):
        raise InputError(
            f"score must have one number per sample: {of} has {size}, got shape {list(array.shape)}"
        )
    if not np.isfinite(array).all():
        raise InputError(f"score must be finite numbers, {of} has {array[~np.isfinite(array)][0]}")
    return array
