"""What metrics are given: everything that can be known of a run, by the names that `needs` uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics import matrix
from engram.metrics.arrays import Matrix, Vector
from engram.metrics.history import Curve, Phases
from engram.metrics.registry import NEEDS, Metric


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known of a run.

    Attributes:
        matrix: The accuracy matrix.
        values: What is known besides, by the names of `NEEDS`.
        counted: How many tasks the class counts speak of, from the first on.
    """

    matrix: Matrix
    values: dict[str, Any]
    counted: int

    def lacks(self, metric: Metric) -> str:
        """Why a metric cannot be computed; nothing where it can.

        Example:
            >>> from engram.metrics.registry import METRICS
            >>> gather_inputs(np.eye(2)).lacks(METRICS["RAA"])
            'needs the number of classes of each task'
        """
        return next((NEEDS[need] for need in metric.needs if need not in self.values), "")

    def arguments(self, metric: Metric) -> list[Any]:
        """What a metric's function is given, in its order.

        Raises:
            InputError: It needs the numbers of classes, and there are more or fewer than tasks.
        """
        if "classes" not in metric.needs:
            return [self.values[need] for need in metric.needs]
        n, counts = self.counted, self.values["classes"]
        if len(counts) != n:
            raise InputError(f"{n} tasks need {n} class counts; got {len(counts)}")
        # Tasks that were evaluated but not learned yet may have no counts; the others do not depend on them.
        cut = ("matrix", "correct", "samples")
        return [self.values[need][:n, :n] if need in cut else self.values[need] for need in metric.needs]


def gather_inputs(
    source: Curve | Trace | Matrix,
    *,
    ends: Curve | Trace | Matrix | None = None,
    classes_seen: Sequence[int] | None = None,
    initial: Vector | None = None,
    phases: Phases | None = None,
) -> Inputs:
    """Everything that metrics can be given; see `engram.metrics.summary.summarise` for the arguments.

    Example:
        >>> sorted(gather_inputs(np.eye(2), classes_seen=[2, 4]).values)
        ['classes', 'matrix']
    """
    history = _as_curve(source, phases)
    task_ends = history if ends is None else _as_curve(ends, phases)
    acc = _matrix_of(source if ends is None else ends, task_ends)
    values: dict[str, Any] = {"matrix": acc}
    if history is not None:
        values["curve"] = history
    if isinstance(source, Trace) and all(source.bits):
        values["bits"] = source
    totals = None if task_ends is None else task_ends.totals()
    if totals is not None:
        values |= {"correct": acc * totals, "samples": totals}
    counted = len(acc)
    if classes_seen is not None:
        counts = values["classes"] = _after_each_task(classes_seen, len(acc), task_ends)
        counted = len(counts) if len(counts) == 1 + matrix.last_learned(acc) else len(acc)
    if initial is None and history is not None and history.step[0] == 0:
        initial = history.accuracy[0]
    if initial is not None:
        values["initial"] = initial
    return Inputs(acc, values, counted)


def _as_curve(source: Curve | Trace | Matrix, phases: Phases | None) -> Curve | None:
    if isinstance(source, Trace):
        return Curve.of_trace(source, phases=phases)
    return source if isinstance(source, Curve) else None


def _matrix_of(source: Curve | Trace | Matrix, curve: Curve | None) -> Matrix:
    if curve is not None:
        return curve.matrix()
    if isinstance(source, np.ndarray):
        return matrix.check_matrix(source)
    raise InputError(f"expected a trace, a curve or an accuracy matrix; got {type(source).__name__}")


def _after_each_task(classes_seen: Sequence[int], n_tasks: int, curve: Curve | None) -> Sequence[int]:
    """One class count per task, also where one per phase of several tasks was given."""
    if curve is None or len(classes_seen) == n_tasks or len(classes_seen) != len(curve.phases):
        return classes_seen
    counts: list[int] = []
    for count, columns in zip(classes_seen, curve.phases, strict=True):
        counts += [count] * (1 + max(columns) - len(counts))
    return counts
