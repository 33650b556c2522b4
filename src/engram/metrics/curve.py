"""Metrics of an evaluation history: what was known of each task while learning went on.

A `Curve` holds the accuracies; the functions below are pure and give a `History`: the metric at every
evaluation, for each task. Time is counted in evaluations throughout, so with an evaluation after every tenth
update a window of 10 spans 100 updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engram.core.errors import InputError, unknown_name
from engram.metrics.arrays import Mask, Matrix, Vector, row_means
from engram.metrics.matrix import check_fractions
from engram.metrics.registry import metric
from engram.metrics.sources import AGEM, STABILITY_GAP

if TYPE_CHECKING:
    from engram.core.trace import Trace

Span = Literal["after", "printed", "inclusive"]
"""Which evaluations of a task count for its minimum; see `min_accuracy`."""

Mode = Literal["exact", "refcode"]
"""How windowed metrics look for the largest change; see `windowed_plasticity`."""

Phases = Sequence[Sequence[int]]
"""For each value of `learning`, the tasks that are learned then."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The accuracies of all tasks, evaluation by evaluation.

    Columns are tasks in the order in which they are first learned; tasks that are evaluated but never learned
    come after. `of_table`, `of_counts` and `of_trace` bring them in that order.

    Attributes:
        step: Updates done at each evaluation; 0 is before the first.
        learning: Which of `phases` is under way at each evaluation.
        accuracy: One row per evaluation, one column per task; NaN where it was not evaluated.
        total: How many samples were asked, where that is known.
        tasks: What each column is called.
        phases: The columns that are learned in each phase; each alone unless said otherwise.

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
    tasks: tuple[int | str, ...] = ()
    phases: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.accuracy.ndim != 2 or not len(self.step) == len(self.learning) == len(self.accuracy):
            raise InputError(
                f"a curve needs one step, one task being learned and one row of accuracies per evaluation; "
                f"got {len(self.step)}, {len(self.learning)} and shape {self.accuracy.shape}"
            )
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
        """The curve of a long table: one row for each evaluation of each task, in any order.

        Args:
            step: Updates done, counted over the whole run.
            learning: The task being learned: a number or a name; with `phases`, which of them.
            task: The task being evaluated: a number or a name.
            accuracy: The fraction that was right; NaN where it was not evaluated.
            total: How many samples were asked, where that is known.
            phases: Where several tasks are learned together, the tasks for each value of `learning`.

        Raises:
            InputError: There are no rows, a task was evaluated twice at a step, or two tasks are being
                learned at one step.

        Example:
            >>> curve = Curve.of_table(
            ...     step=[1, 2, 2], learning=["b", "a", "a"], task=["b", "a", "b"], accuracy=[0.9, 0.8, 0.6]
            ... )
            >>> curve.tasks, curve.accuracy
            (('b', 'a'), array([[0.9, nan],
                   [0.6, 0.8]]))
        """
        rows_step, rows_task, rows_learning = np.asarray(step), np.asarray(task), np.asarray(learning)
        if not rows_step.size:
            raise InputError("there are no evaluations: the table has no rows")
        steps, at = np.unique(rows_step, return_inverse=True)
        learned = np.empty(len(steps), dtype=rows_learning.dtype)
        learned[at] = rows_learning
        mixed = learned[at] != rows_learning
        if mixed.any():
            raise InputError(
                f"at step {rows_step[mixed][0]} two tasks are being learned "
                f"({rows_learning[mixed][0]} and {learned[at][mixed][0]}): count steps over the whole run"
            )
        groups = _groups(_in_order(learned), phases)
        order = list(dict.fromkeys(name for _, names in groups for name in names))
        evaluated_first = _in_order(rows_task[np.lexsort((rows_task, rows_step))])
        order += [name for name in evaluated_first if name not in order]
        column = {name: index for index, name in enumerate(order)}
        columns = _look_up(rows_task, column)
        cells = np.full((len(steps), len(order)), np.nan)
        evaluated = np.zeros(cells.shape, dtype=np.bool_)
        evaluated[at, columns] = True
        if int(evaluated.sum()) < len(rows_step):
            _, first = np.unique(at * len(order) + columns, return_index=True)
            again = int(np.setdiff1d(np.arange(len(at)), first)[0])
            raise InputError(
                f"task {rows_task[again]} is evaluated twice at step {rows_step[again]}: "
                "give each evaluation one row, and count steps over the whole run"
            )
        cells[at, columns] = accuracy
        totals = None
        if total is not None:
            totals = np.full(cells.shape, np.nan)
            totals[at, columns] = total
        return cls(
            step=steps.astype(np.int64),
            learning=_look_up(learned, {value: index for index, (value, _) in enumerate(groups)}),
            accuracy=cells,
            total=totals,
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
        """The curve of a long table that counts right answers; see `of_table`.

        Raises:
            InputError: As for `of_table`, or counts are impossible: total below 1, correct below 0 or above
                total.

        Example:
            >>> Curve.of_counts(step=[1], learning=[0], task=[0], correct=[3], total=[4]).accuracy
            array([[0.75]])
        """
        right = np.asarray(correct, dtype=np.float64)
        asked = np.asarray(total, dtype=np.float64)
        if (asked < 1).any():
            raise InputError(f"total is {asked[asked < 1][0]:g} in a row: at least one sample must be asked")
        wrong = (right < 0) | (right > asked)
        if wrong.any():
            raise InputError(
                f"correct is {right[wrong][0]:g} of {asked[wrong][0]:g} in a row: "
                "it must lie between 0 and total"
            )
        return cls.of_table(
            step=step, learning=learning, task=task, accuracy=right / asked, total=asked, phases=phases
        )

    @classmethod
    def of_trace(cls, trace: Trace, *, phases: Phases | None = None) -> Curve:
        """The curve of a trace.

        Args:
            trace: What was answered correctly.
            phases: Where several tasks are learned together (joint training), the tasks for each value of
                the trace's `learning`.

        Example:
            >>> from engram.core.trace import Trace
            >>> trace = Trace()
            >>> trace.add(step=1, learning=0, task=0, right=np.array([True, False]))
            >>> Curve.of_trace(trace).accuracy
            array([[0.5]])
        """
        return cls.of_counts(
            step=trace.step,
            learning=trace.learning,
            task=trace.task,
            correct=trace.correct,
            total=trace.total,
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
        task that is never learned has a row of NaN.
        """
        return self._after_each_task(self.accuracy)

    def totals(self) -> Matrix | None:
        """How many samples were asked for each cell of `matrix`, where that is known."""
        return None if self.total is None else self._after_each_task(self.total)

    def prefix(self, n: int) -> Curve:
        """The first `n` evaluations, with all columns."""
        total = None if self.total is None else self.total[:n]
        return Curve(self.step[:n], self.learning[:n], self.accuracy[:n], total, self.tasks, self.phases)

    def seen(self) -> Curve:
        """The same history without what was evaluated before it was first learned.

        Windowed metrics count every evaluation; this leaves the ones out that a run which evaluates only the
        tasks seen so far would not have made.
        """
        started = np.logical_or.accumulate(self.being_learned(), axis=0)
        accuracy = np.where(started, self.accuracy, np.nan)
        total = None if self.total is None else np.where(started, self.total, np.nan)
        return Curve(self.step, self.learning, accuracy, total, self.tasks, self.phases)

    def _after_each_task(self, cells: Matrix) -> Matrix:
        width = cells.shape[1]
        rows = np.full((width, width), np.nan)
        learned_so_far = 0
        for phase, columns in enumerate(self.phases):
            evaluations = np.flatnonzero(self.learning == phase)
            if evaluations.size:
                learned_so_far = max(learned_so_far, 1 + max(columns))
                rows[learned_so_far - 1] = cells[evaluations[-1]]
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """A metric at every evaluation, for each task.

    Attributes:
        values: One row per evaluation, one column per task; NaN where the metric does not speak of the task.

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


@metric(
    "min-ACC",
    title="average minimum accuracy",
    higher_is_better=True,
    source=f"{STABILITY_GAP}, Eq. 2, with the range of its code",
    needs="curve",
    aliases=["stability gap"],
    stream="engram.metrics.streaming:MinAccuracy",
)
def min_accuracy(curve: Curve, *, span: Span = "after") -> History:
    """The lowest accuracy that earlier tasks have had since they were learned, on average.

    Formula: min-ACC_t = (1/(k−1)) Σ_{i<k} min_{e_i < n ≤ t} A_i(n), with e_i the end of task i
    Divisor: k − 1, the earlier tasks
    NaN: undefined until a task is evaluated while a later one is learned
    Worked: (.30 + .50) / 2

    Which evaluations n count for task i, learned until evaluation e_i, is the option `span`:

    - `after`: n > e_i, from the first evaluation after the switch to the next task. This is what the released
      code computes and the published tables show.
    - `printed`: n > e_{i-1}, as the equation is printed: the task's own learning phase counts too, but not an
      evaluation before the run's first update.
    - `inclusive`: n ≥ e_i.

    A task that is learned again is an earlier task only while it is not being learned, and evaluations made
    while it is do not count (with `printed` they do). Tasks that were never learned on their own are skipped.

    Example:
        >>> curve = Curve(
        ...     step=np.arange(1, 5),
        ...     learning=np.array([0, 1, 1, 1]),
        ...     accuracy=np.array([[0.9, np.nan], [0.4, 0.2], [0.7, 0.8], [0.8, 0.9]]),
        ... )
        >>> min_accuracy(curve).curve
        array([nan, 0.4, 0.4, 0.4])
    """
    check_span(span)
    learning = curve.being_learned()
    started = np.logical_or.accumulate(learning, axis=0)
    earlier = started & ~learning
    if span == "after":
        counted = earlier
    elif span == "printed":
        counted = started & (curve.step > 0)[:, np.newaxis]
    else:
        counted = earlier.copy()
        counted[:-1] |= learning[:-1] & ~learning[1:]
    lowest = np.fmin.accumulate(np.where(counted, curve.accuracy, np.nan), axis=0)
    return History(np.where(earlier, lowest, np.nan))


@metric(
    "WC-ACC",
    title="worst-case accuracy",
    higher_is_better=True,
    source=f"{STABILITY_GAP}, Eq. 6",
    needs="curve",
    aliases=["worst case", "stability gap"],
    stream="engram.metrics.streaming:WorstCaseAccuracy",
)
def worst_case_accuracy(curve: Curve, *, span: Span = "after") -> History:
    """The accuracy of the current task now, averaged with the lowest that earlier tasks have had.

    Formula: WC-ACC_t = (1/k) · A_k(t) + (1 − 1/k) · min-ACC_t
    Divisor: k, the tasks learned so far
    NaN: undefined at an evaluation that leaves out the task being learned
    Worked: 1/3 · .97 + 2/3 · .40

    While the first task is learned it is that task's accuracy. At a task's end it is at most ACC, if both
    look at the same samples.

    Example:
        >>> curve = Curve(
        ...     step=np.arange(1, 4),
        ...     learning=np.array([0, 1, 1]),
        ...     accuracy=np.array([[0.9, np.nan], [0.4, 0.2], [0.7, 0.8]]),
        ... )
        >>> worst_case_accuracy(curve).curve.round(6)
        array([0.9, 0.3, 0.6])
    """
    learning = curve.being_learned()
    values = np.where(learning, curve.accuracy, min_accuracy(curve, span=span).values)
    known = (learning & ~np.isnan(curve.accuracy)).any(axis=1, keepdims=True)
    return History(np.where(known, values, np.nan))


@metric(
    "WF",
    title="windowed forgetting",
    higher_is_better=False,
    source=f"{STABILITY_GAP}, Eq. 3 and 4",
    needs="curve",
    aliases=["windowed forgetting", "stability gap"],
    named_by="window",
    stream="engram.metrics.streaming:WindowedForgetting",
)
def windowed_forgetting(curve: Curve, *, window: int | None = 10, mode: Mode = "exact") -> History:
    """The largest drop that each task has had within a window of w evaluations, on average.

    Formula: WF^w_t = (1/N) Σ_i max (A_i(m) − A_i(n)) over m < n ≤ t with n − m ≤ w − 1, at least 0
    Divisor: N, the tasks evaluated so far, the current one included
    NaN: undefined: nothing was evaluated
    Worked: ((.90 − .30) + (.92 − .50) + (.75 − .60)) / 3
    Elsewhere: A test subset redrawn at every update adds its own noise: drops that no model had.

    WF10 and WF100 have windows of 10 and 100; WFinf looks at the whole history. The window counts evaluations
    of the task, not updates, and is not cut at task switches. An evaluation before the first update counts,
    and so do those of tasks not yet learned.

    A curve that only rises has 0, though the printed formula would go below. One evaluation, or a window of
    1, gives 0.

    Args:
        curve: The evaluation history.
        window: How many evaluations a drop may take, its two ends included.
        mode: Both modes agree for drops; see `windowed_plasticity`.

    Example:
        >>> curve = Curve(
        ...     step=np.arange(4), learning=np.zeros(4, int), accuracy=np.array([[0.9], [0.7], [0.6], [0.8]])
        ... )
        >>> windowed_forgetting(curve, window=2).curve.round(6), windowed_forgetting(curve).final
        (array([0. , 0.2, 0.2, 0.2]), 0.30000000000000004)
    """
    check_window(window)
    check_mode(mode)
    return _by_column(curve, lambda series: np.maximum.accumulate(_sliding_maximum(series, window) - series))


@metric(
    "WP",
    title="windowed plasticity",
    higher_is_better=True,
    source=f"{STABILITY_GAP}, Eq. 5",
    needs="curve",
    aliases=["windowed plasticity", "plasticity"],
    named_by="window",
    stream="engram.metrics.streaming:WindowedPlasticity",
)
def windowed_plasticity(curve: Curve, *, window: int | None = 10, mode: Mode = "exact") -> History:
    """The largest rise that each task has had within a window of w evaluations, on average.

    Formula: WP^w_t = (1/N) Σ_i max (A_i(n) − A_i(m)) over m < n ≤ t with n − m ≤ w − 1, at least 0
    Divisor: N, the tasks evaluated so far, the current one included
    Direction: A higher value is a more plastic learner.
    NaN: undefined: nothing was evaluated
    Worked: ((.80 − .10) + (.90 − .20) + (.75 − .35)) / 3
    Elsewhere: The released code misses rises that start low near the end: mode='refcode' imitates it.

    WP10 and WP100 have windows of 10 and 100; WPinf looks at the whole history.

    The released code overlooks rises that start below an earlier value of the window: what remains is the
    rise from the window's first value to its maximum. `mode="refcode"` gives that number; the two differ only
    through starting points among the last w - 1 evaluations.

    Args:
        curve: The evaluation history.
        window: How many evaluations a rise may take, its two ends included; None is the whole history.
        mode: `exact` for the definition, `refcode` for what the released code computes.

    Example:
        >>> accuracy = np.array([[0.5], [0.0], [1.0]])
        >>> curve = Curve(step=np.arange(3), learning=np.zeros(3, int), accuracy=accuracy)
        >>> windowed_plasticity(curve).final, windowed_plasticity(curve, mode="refcode").final
        (1.0, 0.5)
    """
    check_window(window)
    check_mode(mode)
    if mode == "exact":
        return _by_column(
            curve, lambda series: np.maximum.accumulate(_sliding_maximum(-series, window) + series)
        )

    def rise_from_oldest(series: Vector) -> Vector:
        reach = len(series) if window is None else window
        oldest = series[np.maximum(np.arange(len(series)) - reach + 1, 0)]
        return np.maximum.accumulate(_sliding_maximum(series, window) - oldest)

    return _by_column(curve, rise_from_oldest)


@metric(
    "LCA",
    title="learning-curve area",
    higher_is_better=True,
    source=f"{AGEM}, as in the code of {STABILITY_GAP}",
    needs="curve",
    aliases=["learning curve area", "plasticity"],
    named_by="beta",
    stream="engram.metrics.streaming:LearningCurveArea",
)
def learning_curve_area(curve: Curve, *, beta: int = 10) -> History:
    """How good a task is, on average, over its first β evaluations while it is learned.

    Formula: LCA_β = (1/T) Σ_i (1/β) Σ_{b=1..β} A_i(b-th evaluation while learning i)
    Divisor: β within a task, then the tasks that have β evaluations
    Direction: A higher value is faster learning.
    NaN: undefined: no task was evaluated β times while it was learned
    Worked: ((.10 + .50) / 2 + (.20 + .70) / 2 + (.35 + .75) / 2) / 3
    Elsewhere: A-GEM divides by β + 1: it counts the accuracy before the task's first update too.

    LCA10 has β = 10. An evaluation before the first update counts.

    Example:
        >>> accuracy = np.array([[0.1], [0.5], [0.9]])
        >>> curve = Curve(step=np.arange(3), learning=np.zeros(3, int), accuracy=accuracy)
        >>> learning_curve_area(curve, beta=2).curve.round(6)
        array([nan, 0.3, 0.3])
    """
    check_beta(beta)
    counted = curve.being_learned() & ~np.isnan(curve.accuracy)
    number = np.cumsum(counted, axis=0)
    area = np.where(counted & (number <= beta), curve.accuracy, 0.0).sum(axis=0) / beta
    return History(np.where(number >= beta, area, np.nan))


@metric(
    "current-ACC",
    title="current-task accuracy",
    higher_is_better=True,
    source=f"{STABILITY_GAP}, section 3.2.2",
    needs="curve",
    aliases=["current accuracy", "plasticity"],
    stream="engram.metrics.streaming:CurrentAccuracy",
)
def current_accuracy(curve: Curve) -> History:
    """The accuracy of the task being learned, now.

    Formula: A_k(t) while learning task k
    Divisor: none; the mean where several tasks are learned together
    NaN: undefined at an evaluation that leaves out the task being learned
    Worked: .97

    Example:
        >>> curve = Curve(
        ...     step=np.arange(2), learning=np.array([0, 1]), accuracy=np.array([[0.9, 0.1], [0.6, 0.8]])
        ... )
        >>> current_accuracy(curve).curve
        array([0.9, 0.8])
    """
    return History(np.where(curve.being_learned(), curve.accuracy, np.nan))


def check_span(span: str) -> None:
    """Refuse an unknown range for min-ACC."""
    if span not in get_args(Span):
        raise unknown_name("range of min-ACC", span, get_args(Span))


def check_mode(mode: str) -> None:
    """Refuse an unknown way of computing windowed metrics."""
    if mode not in get_args(Mode):
        raise unknown_name("mode", mode, get_args(Mode))


def check_window(window: int | None) -> None:
    """Refuse a window without evaluations."""
    if window is not None and window < 1:
        raise InputError(f"a window holds at least one evaluation, or None for all; got {window}")


def check_beta(beta: int) -> None:
    """Refuse a learning-curve area over no evaluations."""
    if beta < 1:
        raise InputError(f"the learning-curve area needs at least one evaluation; got beta {beta}")


def _by_column(curve: Curve, change: Callable[[Vector], Vector]) -> History:
    """Apply `change` to each task's own evaluations; between them, and after, its value stands."""
    # With many tasks, a copy in which each task's evaluations lie side by side pays for itself.
    by_task = np.ascontiguousarray(curve.accuracy.T)
    values = np.full(by_task.shape, np.nan)
    for series, row in zip(by_task, values, strict=True):
        known = ~np.isnan(series)
        if known.any():
            first = int(known.argmax())
            latest = np.cumsum(known[first:]) - 1
            row[first:] = change(series[known])[latest]
    return History(values.T)


def _sliding_maximum(series: Vector, window: int | None) -> Vector:
    """The maximum of the last `window` values at each place, in three passes whatever the window.

    The series is cut in blocks as long as the window: any window is the end of one block and the beginning of
    the next, and running maxima in both directions know either part (van Herk, Gil and Werman).
    """
    n = len(series)
    if window is None or window >= n:
        return np.maximum.accumulate(series)
    blocks = np.concatenate([series, np.full(-n % window, -np.inf)]).reshape(-1, window)
    since_start = np.maximum.accumulate(blocks, axis=1).reshape(-1)[:n]
    until_end = np.maximum.accumulate(blocks[:, ::-1], axis=1)[:, ::-1].reshape(-1)
    since_start[window - 1 :] = np.maximum(since_start[window - 1 :], until_end[: n - window + 1])
    return since_start


def _in_order(values: NDArray[Any]) -> list[Any]:
    """The different values, in the order in which they first appear."""
    distinct, first = np.unique(values, return_index=True)
    return [distinct[index].item() for index in np.argsort(first)]


def _groups(learned: list[Any], phases: Phases | None) -> list[tuple[Any, tuple[Any, ...]]]:
    if phases is None:
        return [(value, (value,)) for value in learned]
    unknown = [value for value in learned if value not in range(len(phases))]
    if unknown:
        raise InputError(f"phase {unknown[0]} is being learned, but only {len(phases)} phases are described")
    return [(value, tuple(phases[value])) for value in learned]


def _look_up(values: NDArray[Any], index: dict[Any, int]) -> NDArray[np.int64]:
    distinct, inverse = np.unique(values, return_inverse=True)
    return np.array([index[value] for value in distinct.tolist()], dtype=np.int64)[inverse]


def _with_rest(phases: tuple[tuple[int, ...], ...], width: int) -> tuple[tuple[int, ...], ...]:
    learned = {column for columns in phases for column in columns}
    return phases + tuple((column,) for column in range(width) if column not in learned)


def _check_order(learning: NDArray[np.int64], phases: tuple[tuple[int, ...], ...]) -> None:
    learned = _in_order(learning)
    if learned != list(range(len(learned))) or len(learned) > len(phases):
        raise InputError(f"columns must be in the order in which tasks are learned; the order is {learned}")
    seen = 0
    for columns in phases:
        fresh = sorted(column for column in set(columns) if column >= seen)
        if fresh != list(range(seen, seen + len(fresh))):
            raise InputError(f"columns must be in the order in which tasks are learned; phases are {phases}")
        seen += len(fresh)
