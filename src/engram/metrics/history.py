"""Evaluation histories, and metrics computed from them: `Curve` and `History`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engram.core.errors import InputError
from engram.metrics.anchored import corrected
from engram.metrics.arrays import Label, Labels, Mask, Matrix, Vector, row_means
from engram.metrics.matrix import check_fractions

if TYPE_CHECKING:
    from engram.core.trace import Trace

Phases = Sequence[Sequence[int]]
"""The tasks that are learned together, for each value of `learning`."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The accuracies of all tasks, evaluation by evaluation.

    Columns are tasks in the order in which they are first learned, followed by tasks that are evaluated but
    never learned. `of_table`, `of_counts` and `of_trace` sort them accordingly.

    Attributes:
        step: Updates done at each evaluation; 0 is before the first.
        learning: The index of the current phase at each evaluation.
        accuracy: One row per evaluation, one column per task; NaN where it was not evaluated.
        total: The number of samples evaluated, if known.
        tasks: The name of each column.
        phases: The columns that are learned in each phase (default: one per phase).

    Example:
        >>> accuracy = np.array([[0.9, np.nan], [0.6, 0.8]])
        >>> curve = Curve(step=np.array([1, 2]), learning=np.array([0, 1]), accuracy=accuracy)
        >>> curve.matrix()
        array([[0.9, nan],
               [0.6, 0.8]])
    """

    step: NDArray[np.int64]
    learning: NDArray[np.int64]
    accuracy: Matrix
    total: Matrix | None = None
    tasks: tuple[Label, ...] = ()
    phases: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.accuracy.ndim != 2 or not len(self.step) == len(self.learning) == len(self.accuracy):
            raise InputError(
                f"a curve needs one step, one task being learned and one row of accuracies per evaluation, "
                f"got {len(self.step)}, {len(self.learning)} and shape {self.accuracy.shape}"
            )
        if (self.step < 0).any():
            raise InputError(f"steps must be at least 0, got {self.step[self.step < 0][0]}")
        check_fractions(self.accuracy, "the curve")
        width = self.accuracy.shape[1]
        if not self.tasks:
            object.__setattr__(self, "tasks", tuple(range(width)))
        if not self.phases:
            object.__setattr__(self, "phases", tuple((column,) for column in range(width)))
        _check_order(self.learning, self.phases)

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def of_table(
        cls,
        *,
        step: ArrayLike,
        learning: ArrayLike,
        task: ArrayLike,
        accuracy: ArrayLike,
        total: ArrayLike | None = None,
        phases: Phases | None = None,
    ) -> Curve:
        """The curve of a long table: one row per evaluation of a task, in any order.

        Args:
            step: Updates done, counted over the whole run.
            learning: The task being learned: a number or a name; with `phases`, the index of the phase.
            task: The task being evaluated: a number or a name.
            accuracy: The fraction of right answers; NaN where it was not evaluated.
            total: The number of samples evaluated, if known.
            phases: The tasks for each value of `learning`, if several tasks are learned together.

        Raises:
            InputError: There are no rows, a step is negative or not a whole number below 2^63, a task's
                number is negative, a task was evaluated twice at a step, or two tasks are being learned at
                one step.

        Example:
            >>> curve = Curve.of_table(
            ...     step=[1, 2, 2], learning=["b", "a", "a"], task=["b", "a", "b"], accuracy=[0.9, 0.8, 0.6]
            ... )
            >>> curve.tasks, curve.accuracy
            (('b', 'a'), array([[0.9, nan],
                   [0.6, 0.8]]))
        """
        if not np.size(step):
            raise InputError("the table has no rows: it must have one per evaluation of a task")
        rows_step = _counts(step, "steps")
        rows_task, rows_learning = _tasks(task, "task"), _tasks(learning, "learning")
        steps, at = np.unique(rows_step, return_inverse=True)
        learned = np.empty(len(steps), dtype=rows_learning.dtype)
        learned[at] = rows_learning
        _refuse_mixed(rows_step, rows_learning, learned[at])
        groups = _groups(_in_order(learned), phases)
        order = _task_order(groups, rows_task[np.lexsort((rows_task, rows_step))])
        column = {name: index for index, name in enumerate(order)}
        columns = _look_up(rows_task, column)
        evaluated = np.zeros((len(steps), len(order)), dtype=np.bool_)
        evaluated[at, columns] = True
        if int(evaluated.sum()) < len(rows_step):
            _refuse_again(at * len(order) + columns, rows_step, rows_task)

        def table(values: ArrayLike) -> Matrix:
            cells = np.full(evaluated.shape, np.nan)
            cells[at, columns] = values
            return cells

        return cls(
            step=steps,
            learning=_look_up(learned, {value: index for index, (value, _) in enumerate(groups)}),
            accuracy=table(accuracy),
            total=None if total is None else table(total),
            tasks=tuple(order),
            phases=_with_rest(
                tuple(tuple(column[name] for name in names) for _, names in groups), len(order)
            ),
        )

    @classmethod
    def of_counts(
        cls,
        *,
        step: ArrayLike,
        learning: ArrayLike,
        task: ArrayLike,
        correct: ArrayLike,
        total: ArrayLike,
        phases: Phases | None = None,
    ) -> Curve:
        """The curve of a long table with the number of right answers; see `of_table`.

        Raises:
            InputError: As for `of_table`, or a count is impossible: not a whole number, total below 1,
                correct below 0 or above total.

        Example:
            >>> Curve.of_counts(step=[1], learning=[0], task=[0], correct=[3], total=[4]).accuracy
            array([[0.75]])
        """
        accuracy, samples = _shares(correct, total)
        return cls.of_table(
            step=step, learning=learning, task=task, accuracy=accuracy, total=samples, phases=phases
        )

    @classmethod
    def of_trace(cls, trace: Trace, *, phases: Phases | None = None) -> Curve:
        """The curve of a trace; with two levels of samples, that of all, as `corrected` estimates it.

        Args:
            trace: The trace of a run.
            phases: The tasks for each value of the trace's `learning`, if several tasks are learned together
                (joint training).

        Example:
            >>> from engram.core.trace import Trace
            >>> trace = Trace()
            >>> trace.add(step=1, learning=0, task=0, right=np.array([True, False]))
            >>> Curve.of_trace(trace).accuracy
            array([[0.5]])
        """
        _shares(trace.correct, trace.total)
        if trace.anchors is None or not len(trace.anchors):
            return cls.of_counts(**trace.counts()._asdict(), phases=phases)
        _shares(trace.anchors.correct, trace.anchors.total)
        accuracy, total = corrected(trace)
        return cls.of_table(
            step=trace.step,
            learning=trace.learning,
            task=trace.task,
            accuracy=accuracy,
            total=total,
            phases=phases,
        )

    def being_learned(self) -> Mask:
        """Which tasks are being learned at each evaluation: one row per evaluation, one column per task."""
        table = np.zeros((len(self.phases), self.accuracy.shape[1]), dtype=np.bool_)
        for phase, columns in enumerate(self.phases):
            table[phase, list(columns)] = True
        return table[self.learning]

    def matrix(self) -> Matrix:
        """The accuracy matrix `acc[learned, evaluated]`: row i is the last evaluation while learning task i.

        Tasks learned together share the row of the last of them, so joint training has only a last row. A
        task that is never learned has a row of NaN. Where a task is learned again, row i is the last
        evaluation before another task than the first i + 1 is learned, so the last row is the end of the run.
        """
        return self.after_each_task(self.accuracy)

    def totals(self) -> Matrix | None:
        """The number of samples behind each cell of `matrix`, if known."""
        return None if self.total is None else self.after_each_task(self.total)

    def prefix(self, n: int) -> Curve:
        """The first `n` evaluations, with all columns."""
        total = None if self.total is None else self.total[:n]
        return Curve(self.step[:n], self.learning[:n], self.accuracy[:n], total, self.tasks, self.phases)

    def seen(self) -> Curve:
        """The same history without evaluations of tasks that had not been learned yet.

        Windowed metrics count every evaluation; the result is what a run that evaluates only the tasks seen
        so far would have recorded.
        """
        started = np.logical_or.accumulate(self.being_learned(), axis=0)
        accuracy = np.where(started, self.accuracy, np.nan)
        total = None if self.total is None else np.where(started, self.total, np.nan)
        return Curve(self.step, self.learning, accuracy, total, self.tasks, self.phases)

    def followed_by_earlier(self) -> tuple[int, ...]:
        """The columns of tasks after which an earlier task was learned again, before the next new one."""
        learned = self._last_learned()
        newest = np.maximum.accumulate(learned)
        return tuple(np.unique(newest[learned < newest]).tolist())

    def _last_learned(self) -> NDArray[np.int64]:
        """The last of the tasks being learned, at each evaluation."""
        return np.array([max(columns) for columns in self.phases], dtype=np.int64)[self.learning]

    def after_each_task(self, cells: Matrix) -> Matrix:
        """The rows of a table with one row per evaluation that belong to `matrix`; it may have more axes."""
        width = cells.shape[1]
        rows = np.full((width, *cells.shape[1:]), np.nan)
        if not len(self):
            return rows
        newest = np.maximum.accumulate(self._last_learned())
        last = np.flatnonzero(np.diff(newest, append=width))
        rows[newest[last]] = cells[last]
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """A metric at every evaluation, for each task.

    Attributes:
        values: One row per evaluation, one column per task; NaN where the metric is undefined for the task.

    Example:
        >>> history = History(np.array([[0.5, np.nan], [0.5, 0.7]]))
        >>> history.curve, history.by_task, history.final
        (array([0.5, 0.6]), array([0.5, 0.7]), 0.6)
    """

    values: Matrix

    @property
    def curve(self) -> Vector:
        """The mean over tasks, at every evaluation."""
        return row_means(self.values)

    @property
    def by_task(self) -> Vector:
        """The value of each task at the last evaluation."""
        return self.values[-1] if len(self.values) else np.full(self.values.shape[1], np.nan)

    @property
    def final(self) -> float:
        """The mean over tasks at the last evaluation."""
        return float(row_means(self.by_task[np.newaxis])[0])


def _whole(values: ArrayLike, what: str) -> NDArray[np.int64]:
    """Whole numbers, exactly; others are refused.

    Example:
        >>> _whole([3.0, 4.0], "steps")
        array([3, 4])
    """
    numbers = np.asarray(values)
    if numbers.dtype.kind == "f":
        # Above 2^53, neighbouring whole numbers are the same floating-point number.
        wrong = ~(np.floor(numbers) == numbers) | (np.abs(numbers) > 2**53)
    elif numbers.dtype.kind in "iu":
        wrong = numbers > np.iinfo(np.int64).max
    else:
        raise InputError(f"{what} must be whole numbers below 2^63, got {numbers.flat[0]!r}")
    if wrong.any():
        raise InputError(f"{what} must be whole numbers below 2^63, got {numbers[wrong][0].item()!r}")
    return numbers.astype(np.int64)


def _shares(correct: ArrayLike, total: ArrayLike) -> tuple[Vector, Vector]:
    """The fractions of right answers, and the numbers of samples; impossible counts are refused."""
    right = _whole(correct, "correct").astype(np.float64)
    samples = _whole(total, "total").astype(np.float64)
    if (samples < 1).any():
        raise InputError(f"total must be at least 1, got {samples[samples < 1][0]:g}")
    wrong = (right < 0) | (right > samples)
    if wrong.any():
        raise InputError(
            f"correct must be between 0 and total, got {right[wrong][0]:g} of {samples[wrong][0]:g}"
        )
    return right / samples, samples


def _counts(values: ArrayLike, what: str) -> NDArray[np.int64]:
    """Whole numbers from 0 on; others are refused."""
    numbers = _whole(values, what)
    if (numbers < 0).any():
        raise InputError(f"{what} must be at least 0, got {numbers[numbers < 0][0]}")
    return numbers


def _tasks(values: ArrayLike, what: str) -> Labels:
    """Tasks as they are named: numbers from 0 on, or text."""
    names: Labels = np.asarray(values)
    return names if names.dtype.kind in "UTS" else _counts(names, what)


def _refuse_mixed(step: Labels, learning: Labels, learned: Labels) -> None:
    """Refuse rows of one step that name different tasks as being learned."""
    mixed = learned != learning
    if mixed.any():
        raise InputError(
            f"at step {step[mixed][0]} two tasks are being learned "
            f"({learning[mixed][0]} and {learned[mixed][0]}): count steps over the whole run"
        )


def _refuse_again(cells: NDArray[np.int64], step: Labels, task: Labels) -> NoReturn:
    """Refuse the first row whose cell an earlier row has already set."""
    _, first = np.unique(cells, return_index=True)
    again = int(np.setdiff1d(np.arange(len(cells)), first)[0])
    raise InputError(
        f"task {task[again]} is evaluated twice at step {step[again]}: "
        "there must be one row per evaluation, with steps counted over the whole run"
    )


def _in_order(values: Labels) -> list[Label]:
    """The distinct values, in order of first appearance."""
    distinct, first = np.unique(values, return_index=True)
    return [distinct[index].item() for index in np.argsort(first)]


def _task_order(groups: list[tuple[Label, tuple[Label, ...]]], evaluated: Labels) -> list[Label]:
    """Tasks in the order in which they are first learned, followed by those that are only evaluated."""
    learned = [name for _, names in groups for name in names]
    return list(dict.fromkeys([*learned, *_in_order(evaluated)]))


def _groups(learned: list[Label], phases: Phases | None) -> list[tuple[Label, tuple[Label, ...]]]:
    if phases is None:
        return [(value, (value,)) for value in learned]
    tasks_of: dict[Label, tuple[int, ...]] = {number: tuple(tasks) for number, tasks in enumerate(phases)}
    unknown = [value for value in learned if value not in tasks_of]
    if unknown:
        raise InputError(f"phase {unknown[0]} is being learned, but only {len(phases)} phases are described")
    return [(value, tasks_of[value]) for value in learned]


def _look_up(values: Labels, index: dict[Label, int]) -> NDArray[np.int64]:
    distinct, inverse = np.unique(values, return_inverse=True)
    return np.array([index[value] for value in distinct.tolist()], dtype=np.int64)[inverse]


def _with_rest(phases: tuple[tuple[int, ...], ...], width: int) -> tuple[tuple[int, ...], ...]:
    learned = {column for columns in phases for column in columns}
    return phases + tuple((column,) for column in range(width) if column not in learned)


def _check_order(learning: NDArray[np.int64], phases: tuple[tuple[int, ...], ...]) -> None:
    learned = _in_order(learning)
    if learned != list(range(len(learned))) or len(learned) > len(phases):
        raise InputError(f"columns must be in the order in which tasks are learned, got the order {learned}")
    seen = 0
    for columns in phases:
        fresh = sorted(column for column in set(columns) if column >= seen)
        if fresh != list(range(seen, seen + len(fresh))):
            raise InputError(f"columns must be in the order in which tasks are learned, got phases {phases}")
        seen += len(fresh)
