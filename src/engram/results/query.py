"""Queries over finished runs: curves over seeds, matrices, metric tables, dips, forgotten samples.

Curves are aggregated over several runs of one experiment, as mean and standard deviation. Everything is
computed from traces; nothing is trained or evaluated again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics.curve import Curve, min_accuracy
from engram.metrics.extremes import Extremes, mean_extremes
from engram.metrics.intervals import Summary
from engram.metrics.sample_curve import TaskBits, times_forgotten
from engram.record.run import Run
from engram.record.tables import ProbeKey
from engram.results.runs import RunGroup
from engram.results.summaries import metrics_over_runs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class MeanCurve:
    """A measured value over the course of training, aggregated over runs.

    Attributes:
        step: Updates done at each point.
        mean: The mean over the runs that have a value at this point.
        sd: Their sample standard deviation (divisor n - 1); NaN for fewer than two runs.
    """

    step: Integers
    mean: Floats
    sd: Floats


@dataclass(frozen=True)
class Gap:
    """The lowest accuracy of earlier tasks, at task ends and at any evaluation.

    Both are means over all tasks but the last, and then over runs.

    Attributes:
        shown: The lowest accuracy at the end of any later task.
        lowest: The lowest accuracy at any evaluation after the task was learned (min-ACC).
    """

    shown: float
    lowest: float


@dataclass(frozen=True)
class Dip:
    """The drop and recovery of one task while another was learned, as means over runs.

    Attributes:
        task: The task whose accuracy dropped, as an index in the order of learning.
        phase: The phase that was learned meanwhile, as an index likewise.
        before: Accuracy at the end of the previous phase.
        lowest: The lowest accuracy during the phase.
        after: Accuracy at the end of the phase.
        depth: The drop below the lower of `before` and `after`, which task-end evaluation misses.
    """

    task: int
    phase: int
    before: float
    lowest: float
    after: float
    depth: float


@dataclass(frozen=True)
class MatrixSummary:
    """The accuracy matrix over runs: `mean[learned, evaluated]` and its sample standard deviation."""

    mean: Floats
    sd: Floats


@dataclass(frozen=True)
class ClassDip:
    """The lowest accuracy of one class, and the step at which it occurred."""

    accuracy: float
    step: int


def task_ends(curve: Curve) -> Integers:
    """The rows of task-end evaluations: the last one before each task switch, and the last of all.

    Example:
        >>> task_ends(Curve(np.arange(1, 6), np.array([0, 0, 1, 1, 1]), np.full((5, 2), 0.5)))
        array([1, 4])
    """
    return np.append(np.flatnonzero(np.diff(curve.learning)), len(curve) - 1).astype(np.int64)


def end_values(runs: Sequence[Run], task: int) -> tuple[Floats, Floats]:
    """At the end of each phase, the step and the accuracy of a task, as means over runs.

    Runs may have phases of different lengths: each is evaluated at the ends of its own.
    """
    ends = [task_ends(run.curve) for run in runs]
    steps, values = np.full((2, len(runs), max(map(len, ends))), np.nan)
    for number, (run, rows) in enumerate(zip(runs, ends, strict=True)):
        if task < run.curve.accuracy.shape[1]:
            values[number, : len(rows)] = run.curve.accuracy[rows, task]
            steps[number, : len(rows)] = np.where(
                np.isfinite(values[number, : len(rows)]), run.curve.step[rows], np.nan
            )
    step, value = _mean(steps), _mean(values)
    known = np.isfinite(value)
    return step[known], value[known]


def task_curves(runs: Sequence[Run]) -> list[MeanCurve]:
    """The accuracy of each task at every evaluation, over runs; tasks in the order of learning."""
    n_tasks = max(run.curve.accuracy.shape[1] for run in runs)
    by_task = [[run.curve for run in runs if task < run.curve.accuracy.shape[1]] for task in range(n_tasks)]
    return [
        _over_runs([(curve.step, curve.accuracy[:, task]) for curve in curves])
        for task, curves in enumerate(by_task)
    ]


def seen_curve(runs: Sequence[Run]) -> MeanCurve:
    """The mean accuracy over the tasks seen so far, equally weighted, at every evaluation, over runs."""
    return _over_runs([(run.curve.step, _mean(run.curve.seen().accuracy, axis=1)) for run in runs])


def min_accuracy_curve(runs: Sequence[Run]) -> MeanCurve:
    """min-ACC at every evaluation, over runs; it is defined from the second task on."""
    return _over_runs([(run.curve.step, min_accuracy(run.curve).curve) for run in runs])


def probe_curves(runs: Sequence[Run]) -> dict[ProbeKey, MeanCurve]:
    """The values of each probe, per task or overall, over runs, in order of first appearance."""
    keys = dict.fromkeys(key for run in runs for key in run.probes)
    by_key = {key: [run.probes[key] for run in runs if key in run.probes] for key in keys}
    return {
        key: _over_runs([(probe.step, probe.value) for probe in probes]) for key, probes in by_key.items()
    }


def stability_gap(runs: Sequence[Run]) -> Gap | None:
    """The lowest accuracy of earlier tasks at task ends and at any evaluation; None for a single task.

    Both are computed from the same evaluations of the same samples, so `lowest` is never above `shown`.
    """
    shown, lowest = [], []
    for run in runs:
        minima = min_accuracy(run.curve)
        if np.isnan(minima.final):
            return None
        ends = task_ends(run.curve)
        at_ends = np.where(_earlier(run.curve), run.curve.accuracy, np.nan)[ends]
        known = np.isfinite(minima.by_task)
        shown.append(float(np.nanmin(at_ends[:, known], axis=0).mean()))
        lowest.append(minima.final)
    return Gap(float(np.mean(shown)), float(np.mean(lowest)))


def deepest_dip(runs: Sequence[Run]) -> Dip | None:
    """The drop between two task ends that goes deepest below both, as a mean over runs.

    Only tasks that were learned before and evaluated at both ends are considered; None if no task dropped
    below both ends.
    """
    falls: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    for run in runs:
        curve, earlier, ends = run.curve, _earlier(run.curve), task_ends(run.curve)
        for start, stop in pairwise(ends):
            known = np.isfinite(curve.accuracy[[start, stop]]).all(axis=0)
            for column in np.flatnonzero(earlier[stop] & known):
                between = curve.accuracy[start : stop + 1, column]
                fall = (float(between[0]), float(np.nanmin(between)), float(between[-1]))
                falls.setdefault((int(column), int(curve.learning[stop])), []).append(fall)
    dips = []
    for (task, phase), seeds in falls.items():
        depth = float(np.mean([min(before, after) - lowest for before, lowest, after in seeds]))
        before, lowest, after = (float(value) for value in np.mean(seeds, axis=0))
        dips.append(Dip(task, phase, before, lowest, after, depth))
    deepest = max(dips, key=lambda dip: dip.depth, default=None)
    return deepest if deepest and deepest.depth > 0 else None


def accuracy_matrix(runs: Sequence[Run]) -> MatrixSummary:
    """The accuracy matrix over runs; NaN where a task was not evaluated."""
    matrices = [run.matrix for run in runs]
    size = max(len(matrix) for matrix in matrices)
    stack = np.full((len(matrices), size, size), np.nan)
    for run, matrix in enumerate(matrices):
        stack[run, : len(matrix), : len(matrix)] = matrix
    return MatrixSummary(_mean(stack), _sd(stack))


MetricsTable: TypeAlias = Mapping[str, Sequence[Summary]]
"""For each metric, its summary over the seeds of each group."""


def metrics_table(groups: Sequence[RunGroup]) -> dict[str, list[Summary]]:
    """The summary of each metric over the seeds of each group, in the order of the groups.

    For a group in which no run has a value, the summary is NaN with n = 0.
    """
    # Nearly all runs have the same metrics.
    different = dict.fromkeys(tuple(run.metrics) for group in groups for run in group.runs)
    names = dict.fromkeys(name for several in different for name in several)
    columns = [metrics_over_runs(group.runs, [*names]) for group in groups]
    return {name: [column[row] for column in columns] for row, name in enumerate(names)}


def stored_extremes(group: RunGroup) -> Extremes:
    """The extremes of a group, corrected for the bias of subsets: the means over its runs.

    Empty if they were not stored, as in runs of earlier versions; `Run.extremes` computes them.
    """
    stored = [run.estimates for run in group.runs if run.estimates is not None]
    return mean_extremes(stored) if len(stored) == len(group.runs) else Extremes()


def answers(trace: Trace, task: int) -> tuple[Integers, NDArray[np.bool_]]:
    """The steps at which a task was evaluated, and `right[evaluation, sample]`.

    Meaningful only if the same samples are evaluated every time.

    Raises:
        InputError: The trace has no bits, or the number of samples changes.
    """
    bits = TaskBits.of_trace(trace, task)
    steps = np.asarray(trace.step, dtype=np.int64)[bits.rows]
    return steps, np.unpackbits(bits.packed, axis=1, count=bits.samples).astype(np.bool_)


def forgetting_events(trace: Trace, task: int, *, since: int = 0) -> Integers:
    """How often the answer to each sample of a task changed from right to wrong between two evaluations.

    Counted from the first evaluation at or after step `since`; fewer than two evaluations give zeros.

    Example:
        >>> trace = Trace()
        >>> for step, right in enumerate([[True, True], [False, True], [True, True], [False, True]]):
        ...     trace.add(step=step, learning=0, task=0, right=np.array(right))
        >>> forgetting_events(trace, 0)
        array([2, 0])
    """
    bits = TaskBits.of_trace(trace, task)
    kept = np.asarray(trace.step, dtype=np.int64)[bits.rows] >= since
    return times_forgotten(bits.packed[kept], bits.samples)


def class_dips(trace: Trace, task: int, *, labels: Sequence[int], since: int = 0) -> dict[int, ClassDip]:
    """The lowest accuracy of each class of a task, and when it occurred.

    Args:
        trace: The trace, with bits.
        task: The task.
        labels: The class of each evaluated sample, in order.
        since: The first step that counts.

    Example:
        >>> trace = Trace()
        >>> for step, right in enumerate([[True, True, True], [False, True, False], [True, True, False]]):
        ...     trace.add(step=step, learning=0, task=0, right=np.array(right))
        >>> class_dips(trace, 0, labels=[7, 8, 7])
        {7: ClassDip(accuracy=0.0, step=1), 8: ClassDip(accuracy=1.0, step=0)}
    """
    step, right = answers(trace, task)
    classes = np.asarray(labels)
    if right.size and classes.shape != right.shape[1:]:
        raise InputError(
            f"labels must have one entry per sample, got {classes.size} labels for {right.shape[1]} samples"
        )
    kept, steps = right[step >= since], step[step >= since]
    dips = {}
    for label in np.unique(classes) if kept.size else ():
        accuracy = kept[:, classes == label].mean(axis=1)
        worst = int(accuracy.argmin())
        dips[int(label)] = ClassDip(float(accuracy[worst]), int(steps[worst]))
    return dips


def _earlier(curve: Curve) -> NDArray[np.bool_]:
    """Which tasks have been learned but are not being learned now: `earlier[evaluation, task]`."""
    learning = curve.being_learned()
    return np.asarray(np.logical_or.accumulate(learning, axis=0) & ~learning)


def _over_runs(series: Sequence[tuple[Integers, Floats]]) -> MeanCurve:
    """Mean and standard deviation of several series, at every step at which any of them has a value."""
    known = [(step[np.isfinite(value)], value[np.isfinite(value)]) for step, value in series]
    steps = np.unique(np.concatenate([step for step, _ in known]))
    values = np.full((len(series), len(steps)), np.nan)
    for run, (step, value) in enumerate(known):
        values[run, np.searchsorted(steps, step)] = value
    return MeanCurve(steps, _mean(values), _sd(values))


def _mean(values: Floats, *, axis: int = 0) -> Floats:
    """The mean of the finite values; NaN, without a warning, where there are none."""
    known = np.isfinite(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))


def _sd(values: Floats) -> Floats:
    """The sample standard deviation over the first axis; NaN where fewer than two values are finite."""
    known = np.isfinite(values)
    count = known.sum(axis=0)
    squares = np.where(known, (values - _mean(values)) ** 2, 0.0).sum(axis=0)
    variance = np.divide(squares, count - 1, out=np.full(squares.shape, np.nan), where=count > 1)
    return np.asarray(np.sqrt(variance), dtype=np.float64)
