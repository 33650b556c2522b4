"""The inputs of metrics: everything known of a run, by the names used in `needs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics import matrix
from engram.metrics.anchored import Levels, levels_of
from engram.metrics.arrays import Label, Matrix, Vector
from engram.metrics.history import Curve, Phases
from engram.metrics.registry import NEEDS, Metric
from engram.metrics.sample_curve import SampleCurve

_OF_UNLEARNED: Final = "FORG-unlearned"
_OF_LEARNED: Final = (
    *("ACC", "AA", "AvgAcc", "ACC-pooled", "RAA", "FORG", "AF", "AvgFgt", "BWT", "RAF", "AvgLAcc"),
    *("min-ACC", "WC-ACC"),
)
"""The metrics that count only tasks that were learned."""
_OF_FORGETTING: Final = ("FORG", "AF", "AvgFgt", "BWT", "RAF")
"""The metrics that compare the end of the run with the moments when another task begins."""
_OF_LEARNING: Final = "AvgLAcc"
"""The metric of what was learned, at the moments when another task begins."""
_OF_SAMPLES: Final = frozenset(("bits", "right"))
"""What metrics of single samples need."""


Choices = Sequence[Sequence[int]]
"""For each phase, the number of classes among which the answers of each task are sought."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known of a run.

    Attributes:
        matrix: The accuracy matrix.
        values: All inputs, by the names of `NEEDS`.
        classes_seen: The class counts among them; empty where they are unknown.
        counted: The number of tasks that must have class counts, starting with the first.
        unlearned: The columns of tasks that were evaluated but never learned.
        tasks: The names of the tasks.
        levels: How many samples were asked at which level; None with one level.
        followed: The columns of tasks after which, and before the next new one, an earlier one was learned
            again.
    """

    matrix: Matrix
    values: dict[str, object]
    classes_seen: Sequence[int]
    counted: int
    unlearned: tuple[int, ...] = ()
    tasks: tuple[Label, ...] = ()
    levels: Levels | None = None
    followed: tuple[int, ...] = ()

    def reservation(self, metric: Metric) -> str:
        """What a metric leaves out though it was measured; empty where it counts everything.

        Example:
            >>> from engram.metrics.registry import METRICS
            >>> gather_inputs(np.array([[0.9, 0.1], [np.nan, np.nan]])).reservation(METRICS["ACC"])
            'does not count the task that was evaluated but never learned; see FORG-unlearned'
        """
        if self.levels is not None and not _OF_SAMPLES.isdisjoint(metric.needs):
            few, all_samples = self.levels.small, self.levels.whole
            return f"counts the {few:,} of {all_samples:,} samples of each task that every evaluation asks"
        if self.followed and metric.name in (*_OF_FORGETTING, _OF_LEARNING):
            names = ", ".join(str(self.tasks[column]) for column in self.followed)
            tasks = f"task{'s' * (len(self.followed) > 1)} {names}"
            if metric.name == _OF_LEARNING:
                return f"counts {tasks} as evaluated after earlier tasks were learned again"
            return f"does not count what {tasks} lost while earlier tasks were learned again"
        if not self.unlearned or metric.name not in _OF_LEARNED:
            return ""
        n = len(self.unlearned)
        tasks = "the task that was" if n == 1 else f"the {n} tasks that were"
        fall = self._largest_fall()
        return f"does not count {tasks} evaluated but never learned{fall}; see {_OF_UNLEARNED}"

    def _largest_fall(self) -> str:
        """Which of the tasks that were never learned fell most, in words; empty where none did."""
        falls = {}
        for column in self.unlearned:
            series = self.matrix[~np.isnan(self.matrix[:, column]), column]
            falls[column] = (float(series.max()), float(series[-1]))
        worst = max(falls, key=lambda column: falls[column][0] - falls[column][1])
        best, now = falls[worst]
        name = self.tasks[worst] if self.tasks else worst
        return f" (task {name} fell from {100 * best:.1f} % to {100 * now:.1f} %)" if best > now else ""

    def lacks(self, metric: Metric) -> str:
        """Why a metric cannot be computed; empty if it can.

        Example:
            >>> from engram.metrics.registry import METRICS
            >>> gather_inputs(np.eye(2)).lacks(METRICS["RAA"])
            'needs the number of classes of each task'
        """
        return next((NEEDS[need] for need in metric.needs if need not in self.values), "")

    def arguments(self, metric: Metric) -> list[object]:
        """The positional arguments of a metric's function.

        Raises:
            InputError: The metric needs class counts, and there are more or fewer of them than tasks.
        """
        values = [self.values[need] for need in metric.needs]
        if "classes" not in metric.needs:
            return values
        n, counts = self.counted, len(self.classes_seen)
        if counts != n:
            raise InputError(f"{n} tasks need {n} class counts, got {counts}")
        # Tasks that were evaluated but not learned yet may have no counts; the others do not depend on them.
        cut = ("matrix", "correct", "samples")
        return [
            value[:n, :n] if need in cut and isinstance(value, np.ndarray) else value
            for need, value in zip(metric.needs, values, strict=True)
        ]


def gather_inputs(
    source: Curve | Trace | Matrix,
    *,
    ends: Curve | Trace | Matrix | None = None,
    classes_seen: Sequence[int] | None = None,
    initial: Vector | None = None,
    phases: Phases | None = None,
    choices: Choices | None = None,
    redrawn: bool = False,
    names: Sequence[str] | None = None,
) -> Inputs:
    """The inputs of metrics; see `engram.metrics.summary.summarise` for the arguments.

    Example:
        >>> sorted(gather_inputs(np.eye(2), classes_seen=[2, 4]).values)
        ['choices', 'classes', 'matrix']
    """
    history = _as_curve(source, phases)
    task_ends = history if ends is None else _as_curve(ends, phases)
    acc = _matrix_of(source if ends is None else ends, task_ends)
    values: dict[str, object] = {"matrix": acc}
    if history is not None:
        values["curve"] = history
    if isinstance(source, Trace):
        values |= _of_samples(source, history, redrawn=redrawn)
    totals = None if task_ends is None else task_ends.totals()
    if totals is not None:
        values |= {"correct": acc * totals, "samples": totals}
    counts: Sequence[int] = ()
    if classes_seen is not None:
        counts = values["classes"] = _after_each_task(classes_seen, len(acc), task_ends)
    if choices is not None or counts:
        values["choices"] = _sought(acc, counts, choices, history)
    counted = len(counts) if len(counts) == 1 + matrix.last_learned(acc) else len(acc)
    if initial is None and history is not None and history.step[0] == 0:
        initial = history.accuracy[0]
    if initial is not None:
        values["initial"] = initial
    unlearned = matrix.unlearned_tasks(acc)
    if any(np.count_nonzero(~np.isnan(acc[:, column])) > 1 for column in unlearned):
        values["unlearned"] = unlearned
    tasks = () if task_ends is None else task_ends.tasks
    if names is not None:
        tasks = tuple(names[task] if isinstance(task, int) else task for task in tasks)
    levels = levels_of(source) if isinstance(source, Trace) else None
    followed = () if task_ends is None else task_ends.followed_by_earlier()
    return Inputs(acc, values, counts, counted, unlearned, tasks, levels, followed)


def _of_samples(trace: Trace, curve: Curve | None, *, redrawn: bool) -> dict[str, object]:
    """What is known of single samples."""
    if not all(trace.bits):
        return {}
    values: dict[str, object] = {"bits": trace}
    if curve is not None and not redrawn and _same_samples(trace):
        values["right"] = SampleCurve.of_trace(trace, curve)
    return values


def _same_samples(trace: Trace) -> bool:
    """Whether every task is always evaluated on the same number of samples."""
    return len(set(zip(trace.task, trace.total, strict=True))) == len(set(trace.task))


def _sought(acc: Matrix, counts: Sequence[int], choices: Choices | None, curve: Curve | None) -> Matrix:
    """`choices[learned, evaluated]`: among how many classes the answers are sought.

    Where that is not said, among all classes seen so far.
    """
    width = len(acc)
    sought = np.full((width, width), np.nan)
    if choices is None:
        for row, count in enumerate(counts[:width]):
            sought[row] = count
        return sought
    names = range(width) if curve is None else curve.tasks
    phases = [(column,) for column in range(width)] if curve is None else curve.phases
    learned = 0
    for columns, of_task in zip(phases, choices, strict=False):
        learned = max(learned, 1 + max(columns))
        sought[learned - 1] = [of_task[name] if isinstance(name, int) else np.nan for name in names]
    # A task that is not the last of its phase has no row of its own.
    for row in range(width - 2, -1, -1):
        if np.isnan(sought[row]).all():
            sought[row] = sought[row + 1]
    return sought


def _as_curve(source: Curve | Trace | Matrix, phases: Phases | None) -> Curve | None:
    if isinstance(source, Trace):
        return Curve.of_trace(source, phases=phases)
    return source if isinstance(source, Curve) else None


def _matrix_of(source: Curve | Trace | Matrix, curve: Curve | None) -> Matrix:
    if curve is not None:
        return curve.matrix()
    if isinstance(source, np.ndarray):
        return matrix.check_matrix(source)
    raise InputError(f"expected a trace, a curve or an accuracy matrix, got {type(source).__name__}")


def _after_each_task(classes_seen: Sequence[int], n_tasks: int, curve: Curve | None) -> Sequence[int]:
    """One class count per task, expanded from one per phase where phases learn several tasks."""
    if curve is None or len(classes_seen) == n_tasks or len(classes_seen) != len(curve.phases):
        return classes_seen
    counts: list[int] = []
    for count, columns in zip(classes_seen, curve.phases, strict=True):
        counts += [count] * (1 + max(columns) - len(counts))
    return counts
