"""Metrics of an evaluation history: the accuracy on each task during learning.

A `Curve` holds the accuracies; the functions are pure and return a `History`: the metric at every evaluation,
for each task. Time is always counted in evaluations: with an evaluation after every tenth update, a window of
10 spans 100 updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from engram.core.errors import InputError, unknown_name
from engram.metrics.arrays import Matrix
from engram.metrics.history import Curve as Curve
from engram.metrics.history import History as History
from engram.metrics.registry import metric
from engram.metrics.sources import AGEM, STABILITY_GAP

Span = Literal["after", "printed", "inclusive"]
"""Which evaluations of a task count for its minimum; see `min_accuracy`."""

Mode = Literal["exact", "refcode"]
"""How windowed metrics look for the largest change; see `windowed_plasticity`."""


@metric(
    "min-ACC",
    title="average minimum accuracy",
    higher_is_better=True,
    bounds=(0, 1),
    source=f"{STABILITY_GAP}, Eq. 2, with the range of its code",
    needs="curve",
    aliases=["stability gap"],
    stream="engram.metrics.streaming:MinAccuracy",
    extreme=(0.0, 1.0),
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
    bounds=(0, 1),
    source=f"{STABILITY_GAP}, Eq. 6",
    needs="curve",
    aliases=["worst case", "stability gap"],
    stream="engram.metrics.streaming:WorstCaseAccuracy",
    extreme=(0.0, 1.0),
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
    bounds=(0, 1),
    source=f"{STABILITY_GAP}, Eq. 3 and 4",
    needs="curve",
    aliases=["windowed forgetting", "stability gap"],
    named_by="window",
    stream="engram.metrics.streaming:WindowedForgetting",
    extreme=(0.0, 1.0),
)
def windowed_forgetting(curve: Curve, *, window: int | None = 10, mode: Mode = "exact") -> History:
    """The largest drop that each task has had within a window of w evaluations, on average.

    Formula: WF^w_t = (1/N) Σ_i max (A_i(m) − A_i(n)) over m < n ≤ t with n − m ≤ w − 1, at least 0
    Divisor: N, the tasks evaluated so far, the current one included
    NaN: undefined: nothing was evaluated
    Worked: ((.90 − .30) + (.92 − .50) + (.75 − .60)) / 3
    Elsewhere: A test subset that is redrawn at every update adds noise, which looks like drops.

    WF10 and WF100 have windows of 10 and 100; WFinf looks at the whole history. The window counts evaluations
    of the task, not updates, and is not cut at task switches. An evaluation before the first update counts,
    and so do those of tasks not yet learned.

    For a curve that only rises it is 0, although the printed formula would be negative. It is also 0 for a
    single evaluation and for a window of 1.

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
    return History(largest_drops(curve.accuracy, window))


@metric(
    "WP",
    title="windowed plasticity",
    higher_is_better=True,
    bounds=(0, 1),
    source=f"{STABILITY_GAP}, Eq. 5",
    needs="curve",
    aliases=["windowed plasticity", "plasticity"],
    named_by="window",
    stream="engram.metrics.streaming:WindowedPlasticity",
    extreme=(0.0, 1.0),
)
def windowed_plasticity(curve: Curve, *, window: int | None = 10, mode: Mode = "exact") -> History:
    """The largest rise that each task has had within a window of w evaluations, on average.

    Formula: WP^w_t = (1/N) Σ_i max (A_i(n) − A_i(m)) over m < n ≤ t with n − m ≤ w − 1, at least 0
    Divisor: N, the tasks evaluated so far, the current one included
    Direction: A higher value means a more plastic learner.
    NaN: undefined: nothing was evaluated
    Worked: ((.80 − .10) + (.90 − .20) + (.75 − .35)) / 3
    Elsewhere: The released code misses rises that start low near the end: mode='refcode' imitates it.

    WP10 and WP100 have windows of 10 and 100; WPinf looks at the whole history.

    The released code misses rises that start below an earlier value of the window: what remains is the
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
            curve.accuracy, lambda series: _running_maximum(_sliding_maximum(-series, window) + series)
        )

    def rise_from_oldest(series: Matrix) -> Matrix:
        n = series.shape[1]
        reach = n if window is None else window
        oldest = series[:, np.maximum(np.arange(n) - reach + 1, 0)]
        return _running_maximum(_sliding_maximum(series, window) - oldest)

    return _by_column(curve.accuracy, rise_from_oldest)


@metric(
    "LCA",
    title="learning-curve area",
    higher_is_better=True,
    bounds=(0, 1),
    source=f"{AGEM}, as in the code of {STABILITY_GAP}",
    needs="curve",
    aliases=["learning curve area", "plasticity"],
    named_by="beta",
    stream="engram.metrics.streaming:LearningCurveArea",
)
def learning_curve_area(curve: Curve, *, beta: int = 10) -> History:
    """The mean accuracy of a task over its first β evaluations while it is learned.

    Formula: LCA_β = (1/T) Σ_i (1/β) Σ_{b=1..β} A_i(b-th evaluation while learning i)
    Divisor: β within a task, then the tasks that have β evaluations
    Direction: A higher value means faster learning.
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
    bounds=(0, 1),
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
    """Refuse a window of no evaluations."""
    if window is not None and window < 1:
        raise InputError(f"window must be at least 1, or None for the whole history, got {window}")


def check_beta(beta: int) -> None:
    """Refuse a learning-curve area over no evaluations."""
    if beta < 1:
        raise InputError(f"beta must be at least 1, got {beta}")


def largest_drops(cells: Matrix, window: int | None) -> Matrix:
    """The largest drop of each task within a window of evaluations, so far; at least 0.

    Args:
        cells: One row per evaluation, one column per task; NaN where it was not evaluated.
        window: How many evaluations a drop may take, its two ends included; None is the whole history.

    Example:
        >>> largest_drops(np.array([[9.0], [7.0], [6.0], [8.0]]), window=2)[:, 0]
        array([0., 2., 2., 2.])
    """
    drops = _by_column(cells, lambda series: _running_maximum(_sliding_maximum(series, window) - series))
    return drops.values


def _by_column(cells: Matrix, change: Callable[[Matrix], Matrix]) -> History:
    """Apply `change` to the evaluations of each task; in between and after, the latest value is kept.

    Tasks that were evaluated at the same times are changed together, one row per task.
    """
    # With many tasks, a copy in which the evaluations of a task are contiguous is worth its cost.
    by_task = np.ascontiguousarray(cells.T)
    known = ~np.isnan(by_task)
    together: dict[bytes, list[int]] = {}
    for row, evaluated in enumerate(known):
        together.setdefault(evaluated.tobytes(), []).append(row)
    values = np.full(by_task.shape, np.nan)
    for rows in together.values():
        evaluated = known[rows[0]]
        if evaluated.any():
            first = int(evaluated.argmax())
            since, series = evaluated[first:], by_task[rows, first:]
            # Most tasks are evaluated every time once they have been.
            values[rows, first:] = (
                change(series) if since.all() else change(series[:, since])[:, np.cumsum(since) - 1]
            )
    return History(values.T)


def _running_maximum(series: Matrix) -> Matrix:
    """The maximum so far, in each row."""
    return np.maximum.accumulate(series, axis=1)


def _sliding_maximum(series: Matrix, window: int | None) -> Matrix:
    """The maximum of the last `window` values at each index of each row, in three passes for any window.

    Rows are cut into blocks as long as the window. Every window is the end of one block and the beginning of
    the next, whose maxima are running maxima in either direction (van Herk, Gil and Werman).
    """
    rows, n = series.shape
    if window is None or window >= n:
        return _running_maximum(series)
    padding = np.full((rows, -n % window), -np.inf)
    blocks = np.concatenate([series, padding], axis=1).reshape(rows, -1, window)
    since_start = np.maximum.accumulate(blocks, axis=2).reshape(rows, -1)[:, :n]
    until_end = np.maximum.accumulate(blocks[:, :, ::-1], axis=2)[:, :, ::-1].reshape(rows, -1)
    later = since_start[:, window - 1 :]
    np.maximum(later, until_end[:, : n - window + 1], out=later)
    return since_start
