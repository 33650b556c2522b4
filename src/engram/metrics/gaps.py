"""Stability gaps: how deep an earlier task falls after a switch, how much it loses, and when it is back.

A gap belongs to one *visit*, a stretch of evaluations in which the same tasks are learned, and to one task
that was learned before and is not learned now. Its reference is the task's last accuracy before the visit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np

from engram.core.errors import InputError
from engram.core.jsons import JsonObject
from engram.metrics.arrays import Vector, mean_of_known
from engram.metrics.history import Curve, History
from engram.metrics.registry import metric
from engram.metrics.sources import GAP

TOLERANCE: Final = 0.01
"""A task is back once its accuracy is at most this much below its reference."""
_ROUNDING: Final = 1e-12
"""More than the rounding error of a difference of fractions, less than a sample of any test set."""


@dataclass(frozen=True, slots=True)
class StabilityGap:
    """What happened to one task while others were learned.

    Attributes:
        task: The task, as a column of the curve.
        phase: The phase that was learned meanwhile.
        start: The step of the task's last evaluation before the switch.
        end: The step of its last evaluation before the next switch.
        before: Its accuracy at `start`, the reference.
        lowest: Its lowest accuracy in between.
        lowest_step: The step of the first evaluation with that accuracy.
        after: Its accuracy at `end`.
        area: The accuracy that it lacked, summed over the updates: for each evaluation, the shortfall below
            the reference, times the updates since the evaluation before.
        recovered_step: The step of the first evaluation after the lowest at which it was back, within the
            tolerance; the start if it never fell further than that; None if it did not come back.
    """

    task: int
    phase: int
    start: int
    end: int
    before: float
    lowest: float
    lowest_step: int
    after: float
    area: float
    recovered_step: int | None

    @property
    def depth(self) -> float:
        """How far it fell below the reference; 0 if it did not."""
        return max(0.0, self.before - self.lowest)

    @property
    def transient(self) -> float:
        """The part of the depth that evaluation at task ends does not show."""
        return max(0.0, min(self.before, self.after) - self.lowest)

    @property
    def updates_to_lowest(self) -> int:
        """The updates from the switch to the lowest accuracy."""
        return self.lowest_step - self.start

    @property
    def updates_to_recovery(self) -> int | None:
        """The updates from the switch until it was back; None if it did not come back."""
        return None if self.recovered_step is None else self.recovered_step - self.start

    def as_json(self) -> JsonObject:
        """One row of the table."""
        return {
            "task": self.task,
            "phase": self.phase,
            "start": self.start,
            "end": self.end,
            "before": self.before,
            "lowest": self.lowest,
            "lowest_step": self.lowest_step,
            "after": self.after,
            "depth": self.depth,
            "transient": self.transient,
            "area": self.area,
            "updates_to_lowest": self.updates_to_lowest,
            "updates_to_recovery": self.updates_to_recovery,
        }


def stability_gaps(curve: Curve, *, tolerance: float = TOLERANCE) -> list[StabilityGap]:
    """Every gap of a run: one per switch and earlier task, in the order of the switches.

    Args:
        curve: The evaluation history.
        tolerance: How far below its reference a task may be and count as recovered.

    Raises:
        InputError: The tolerance is below 0.

    Example:
        >>> curve = Curve(
        ...     step=np.array([10, 11, 12, 20]),
        ...     learning=np.array([0, 1, 1, 1]),
        ...     accuracy=np.array([[0.9, np.nan], [0.4, 0.2], [0.7, 0.8], [0.9, 0.9]]),
        ... )
        >>> gap = stability_gaps(curve)[0]
        >>> gap.depth, round(gap.area, 6), gap.updates_to_lowest, gap.updates_to_recovery
        (0.5, 0.7, 1, 10)
    """
    check_tolerance(tolerance)
    return [_gap(curve, *visit, tolerance=tolerance) for visit in _visits(curve)]


def _visits(curve: Curve) -> Iterator[tuple[int, int, Vector]]:
    """For each visit and earlier task: the task, the phase, and the rows from its reference to its last."""
    learning = curve.being_learned()
    starts = np.flatnonzero(np.diff(curve.learning)) + 1
    known = ~np.isnan(curve.accuracy)
    for start, stop in pairwise([*starts.tolist(), len(curve)]):
        started = learning[:start].any(axis=0)
        for column in np.flatnonzero(started & ~learning[start]):
            before = np.flatnonzero(known[:start, column])
            rows = start + np.flatnonzero(known[start:stop, column])
            if before.size and rows.size:
                yield int(column), int(curve.learning[start]), np.append(before[-1], rows)


def _gap(curve: Curve, column: int, phase: int, rows: Vector, *, tolerance: float) -> StabilityGap:
    steps, values = curve.step[rows], curve.accuracy[rows, column]
    before, inside = float(values[0]), values[1:]
    deepest = int(inside.argmin())
    lowest = float(inside[deepest])
    level = recovered_level(values[0], tolerance)
    back = np.flatnonzero(inside[deepest:] >= level)
    recovered = int(steps[1 + deepest + back[0]]) if back.size else None
    if lowest >= level:
        recovered = int(steps[0])
    return StabilityGap(
        task=column,
        phase=phase,
        start=int(steps[0]),
        end=int(steps[-1]),
        before=before,
        lowest=lowest,
        lowest_step=int(steps[1 + deepest]),
        after=float(inside[-1]),
        area=float((np.maximum(before - inside, 0) * np.diff(steps)).sum()),
        recovered_step=recovered,
    )


@metric(
    "gap-depth",
    title="depth of stability gaps",
    higher_is_better=False,
    bounds=(0, 1),
    source=GAP,
    needs="curve",
    aliases=["stability gap"],
    stream="engram.metrics.gap_streams:GapDepth",
)
def gap_depth(curve: Curve) -> History:
    """How far earlier tasks fall below their accuracy at a switch, on average.

    Formula: mean over tasks of the mean over its gaps of max(0, A_i(switch) − min A_i(n) until the next one)
    Divisor: the gaps of a task, one per later switch; then the tasks that have any
    NaN: undefined until a task is evaluated while a later one is learned
    Worked: (((.95 − .40) + (.90 − .30)) / 2 + (.92 − .50)) / 2

    A(switch) is the last evaluation before the switch. `engram gaps RUN` lists every gap. On a subset of the
    test samples it is somewhat too large, as WF is: a minimum of noisy values is too low.

    Example:
        >>> from engram.metrics.examples import worked_curve
        >>> gap_depth(worked_curve()).by_task.round(4)
        array([0.575, 0.42 ,   nan])
    """
    return _over_visits(curve, _depths)


@metric(
    "gap-area",
    title="accuracy lost in stability gaps",
    higher_is_better=False,
    bounds=(0, 1),
    source=GAP,
    needs="curve",
    aliases=["stability gap"],
    stream="engram.metrics.gap_streams:GapArea",
)
def gap_area(curve: Curve) -> History:
    """How far earlier tasks are below their accuracy at the last switch, averaged over the evaluations since.

    Formula: mean over tasks of the mean over its gaps of (1/N) Σ_n max(0, A_i(switch) − A_i(n))
    Divisor: N, the evaluations of the task until the next switch; then gaps and tasks, as for gap-depth
    NaN: undefined until a task is evaluated while a later one is learned
    Worked: (((.55 + .40 + .10 + .05) / 4 + (.60 + .30 + .20 + .02) / 4) / 2
        + (.27 + .42 + .17 + .12) / 4) / 2

    Unlike the depth it tells a short dip from a long one, and lasting forgetting counts in it as well.

    Example:
        >>> from engram.metrics.examples import worked_curve
        >>> gap_area(worked_curve()).by_task.round(4)
        array([0.2775, 0.245 ,    nan])
    """
    return _over_visits(curve, _areas)


@metric(
    "gap-duration",
    title="duration of stability gaps",
    higher_is_better=False,
    bounds=(0, 1),
    source=GAP,
    needs="curve",
    aliases=["stability gap"],
    stream="engram.metrics.gap_streams:GapDuration",
)
def gap_duration(curve: Curve) -> History:
    """The share of the time after a switch that earlier tasks need to be back at their accuracy before it.

    Formula: mean over tasks of the mean over its gaps of r/N; the task is back at its r-th of N evaluations
    Divisor: N, the evaluations of the task until the next switch; then gaps and tasks, as for gap-depth
    NaN: undefined until a task is evaluated while a later one is learned
    Worked: ((4/4 + 4/4) / 2 + 4/4) / 2

    A task is back at the first evaluation after its lowest at which it is at most one percentage point below
    its accuracy before the switch. It counts 1 if it is not back, and 0 if it never fell further than that.
    `engram gaps RUN` has the number of updates.

    Example:
        >>> accuracy = np.array([[0.9, np.nan], [0.4, 0.2], [0.895, 0.8], [0.7, 0.9], [0.9, 0.9]])
        >>> curve = Curve(step=np.arange(5), learning=np.array([0, 1, 1, 1, 1]), accuracy=accuracy)
        >>> gap_duration(curve).by_task
        array([0.5, nan])
    """
    return _over_visits(curve, _durations)


T = TypeVar("T", float, Vector)


def recovered_level(before: T, tolerance: float = TOLERANCE) -> T:
    """The lowest accuracy at which a task counts as recovered, whatever the rounding of fractions.

    Example:
        >>> 0.12 >= 0.13 - 0.01, 0.12 >= recovered_level(0.13)
        (False, True)
    """
    return before - tolerance - _ROUNDING


def _depths(before: float, values: Vector) -> Vector:
    return np.maximum(before - np.minimum.accumulate(values), 0)


def _areas(before: float, values: Vector) -> Vector:
    return np.asarray(np.cumsum(np.maximum(before - values, 0)) / np.arange(1, len(values) + 1))


def _durations(before: float, values: Vector) -> Vector:
    """At every evaluation, the share of those so far that it took until the task was back."""
    level = recovered_level(before)
    lowest = np.minimum.accumulate(values)
    places = np.arange(len(values))
    # Since the lowest so far, the first evaluation at which the task was back; none yet if that is to come.
    falls = np.append(False, lowest[1:] < lowest[:-1])
    deepest = np.maximum.accumulate(np.where(falls, places, 0))
    back = np.where((values >= level) & (lowest < level), places, len(values))
    first = np.minimum.accumulate(back[::-1])[::-1][deepest]
    taken = np.where(lowest >= level, 0, np.minimum(first, places) + 1)
    return np.asarray(taken / (places + 1))


def _over_visits(curve: Curve, so_far: Callable[[float, Vector], Vector]) -> History:
    """The mean over the gaps of each task, at every evaluation; a gap under way counts as far as it has come.

    Args:
        curve: The evaluation history.
        so_far: From the reference and the accuracies of a visit, the value of the gap at each of them.
    """
    values = np.full(curve.accuracy.shape, np.nan)
    sums, counts = np.zeros(curve.accuracy.shape[1]), np.zeros(curve.accuracy.shape[1])
    for column, _, rows in _visits(curve):
        own = curve.accuracy[rows, column]
        gap = so_far(float(own[0]), own[1:])
        values[rows[1:], column] = (sums[column] + gap) / (counts[column] + 1)
        sums[column] += gap[-1]
        counts[column] += 1
    # Between its evaluations, and while it is learned again, a task keeps its value.
    known = ~np.isnan(values)
    latest = np.maximum.accumulate(np.where(known, np.arange(len(values))[:, np.newaxis], -1), axis=0)
    kept = np.take_along_axis(values, np.maximum(latest, 0), axis=0)
    return History(np.where(latest >= 0, kept, np.nan))


def mean_recovery(gaps: list[StabilityGap]) -> float:
    """The mean number of updates until tasks were back, of those that came back; NaN if none did.

    Example:
        >>> mean_recovery([])
        nan
    """
    updates = [gap.updates_to_recovery for gap in gaps if gap.depth > 0]
    return mean_of_known(np.array([number for number in updates if number is not None], dtype=np.float64))


def check_tolerance(tolerance: float) -> None:
    """Refuse a tolerance below 0.

    Example:
        >>> check_tolerance(-0.1)
        Traceback (most recent call last):
        engram.core.errors.InputError: tolerance must be at least 0, got -0.1
    """
    if not tolerance >= 0:
        raise InputError(f"tolerance must be at least 0, got {tolerance:g}")
