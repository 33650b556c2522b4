"""Every metric that an input allows, at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics import matrix
from engram.metrics.arrays import Matrix, Vector
from engram.metrics.curve import Curve, Mode, Phases, Span
from engram.metrics.definitions import find
from engram.metrics.streaming import WINDOWS, StreamingMetrics

_NEEDS_CLASSES: Final = "needs the number of classes of each task"
_NEEDS_COUNTS: Final = "needs the number of samples: correct and total instead of accuracy"
_NEEDS_HISTORY: Final = "needs evaluations while learning goes on; a matrix has only task ends"
_NEEDS_UNSEEN: Final = (
    "needs the accuracies at initialisation, and those of each task just before it is learned"
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """All metrics of one run.

    Attributes:
        final: Each metric at the end; NaN where it is undefined.
        by_task: One value a task. ACC, ACC-pooled, AA, FORG, AF, RAA, RAF: after learning each task, the last
            being the final value. All others: of each task at the end, their mean being the final value
            (AvgFgt: Fgt after each task).
        curve: One value an evaluation, for the metrics that are followed while learning goes on.
        why: For each metric that is undefined or left out, the reason.
    """

    final: dict[str, float]
    by_task: dict[str, list[float]]
    curve: dict[str, list[float]]
    why: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """The same as JSON knows it: None where a number is undefined."""
        return {
            "final": {name: _or_none(value) for name, value in self.final.items()},
            "by_task": {name: [_or_none(value) for value in values] for name, values in self.by_task.items()},
            "curve": {name: [_or_none(value) for value in values] for name, values in self.curve.items()},
            "why": dict(self.why),
        }


def summarise(
    source: Curve | Trace | Matrix,
    *,
    ends: Curve | Trace | Matrix | None = None,
    classes_seen: Sequence[int] | None = None,
    initial: Vector | None = None,
    phases: Phases | None = None,
    windows: Sequence[int | None] = WINDOWS,
    beta: int = 10,
    span: Span = "after",
    mode: Mode = "exact",
    clamp: bool = False,
) -> Measurement:
    """Every metric that the input allows.

    Args:
        source: What was measured: an evaluation history or an accuracy matrix.
        ends: What was measured at task ends on the full test sets, where the history looks at a subset; the
            metrics of the accuracy matrix are taken from it.
        classes_seen: How many classes were seen after each task (or phase) that was learned, in total; RAA
            and RAF need it.
        initial: The accuracy of each task at random initialisation, which FWT needs; a history that begins at
            step 0 has it.
        phases: Where several tasks are learned together, the tasks for each value of a trace's `learning`.
        windows: The windows of WF and WP; None is the whole history.
        beta: How many evaluations the learning-curve area looks at.
        span: Which evaluations count for min-ACC.
        mode: How WF and WP look for the largest change.
        clamp: Whether a task that improved counts 0 in AF and RAF.

    Raises:
        InputError: The number of classes does not match that of tasks, or an option is not known.

    Example:
        >>> result = summarise(np.array([[0.9, np.nan], [0.6, 0.8]]), classes_seen=[2, 4])
        >>> round(result.final["ACC"], 6), round(result.final["FORG"], 6), result.by_task["RAA"]
        (0.7, 0.3, [0.45, 0.7])
        >>> result.why["min-ACC"]
        'needs evaluations while learning goes on; a matrix has only task ends'
    """
    history = _as_curve(source, phases)
    task_ends = history if ends is None else _as_curve(ends, phases)
    acc = _matrix_of(source if ends is None else ends, task_ends)
    final: dict[str, float] = {}
    by_task: dict[str, Vector] = {}
    why: dict[str, str] = {}

    after_each = {
        "ACC": matrix.average_accuracy(acc),
        "AA": matrix.average_accuracy(acc),
        "FORG": matrix.forgetting(acc),
        "AF": matrix.average_forgetting(acc, clamp=clamp),
    }
    totals = None if task_ends is None else task_ends.totals()
    if totals is None:
        why["ACC-pooled"] = _NEEDS_COUNTS
    else:
        after_each["ACC-pooled"] = matrix.pooled_accuracy(acc * totals, totals)
    if classes_seen is None:
        why["RAA"] = why["RAF"] = _NEEDS_CLASSES
    else:
        classes = _after_each_task(classes_seen, len(acc), task_ends)
        # Tasks that were evaluated but not learned yet may have no counts; the others do not depend on them.
        n = len(classes) if len(classes) == 1 + matrix.last_learned(acc) else len(acc)
        later = np.full(len(acc) - n, np.nan)
        known = acc[:n, :n]
        raa = matrix.rescaled_average_accuracy(known, classes)
        raf = matrix.rescaled_average_forgetting(known, classes, clamp=clamp)
        after_each["RAA"], after_each["RAF"] = np.append(raa, later), np.append(raf, later)
    for name, values in after_each.items():
        final[name], by_task[name] = matrix.final(values, acc), values

    row = matrix.last_learned(acc)
    of_each = {
        "AvgFgt": (matrix.average_signed_forgetting(acc), matrix.signed_forgetting(acc)),
        "AvgAcc": (
            matrix.final_average_accuracy(acc),
            np.where(np.arange(len(acc)) <= row, acc[row], np.nan),
        ),
        "AvgLAcc": (matrix.average_learning_accuracy(acc), matrix.learning_accuracy(acc)),
        "BWT": (matrix.backward_transfer(acc), matrix.transfer_by_task(acc)),
    }
    for name, (value, values) in of_each.items():
        final[name], by_task[name] = value, values

    if initial is None and history is not None and history.step[0] == 0:
        initial = history.accuracy[0]
    transfer = np.nan if initial is None else matrix.forward_transfer(acc, initial)
    if np.isnan(transfer):
        why["FWT"] = _NEEDS_UNSEEN
    else:
        final["FWT"] = transfer

    streams = StreamingMetrics(len(acc), windows=windows, beta=beta, span=span, mode=mode)
    curves: dict[str, Vector] = {}
    if history is None:
        why |= dict.fromkeys(streams.streams, _NEEDS_HISTORY)
    else:
        for name, values_over_time in streams.twins(history).items():
            curves[name] = values_over_time.curve
            final[name], by_task[name] = values_over_time.final, values_over_time.by_task
    why |= {name: find(name)[0].undefined for name, value in final.items() if np.isnan(value)}
    return Measurement(final, _lists(by_task.items()), _lists(curves.items()), why)


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
    """One class count a task, also where they were given one a phase of several tasks."""
    if curve is None or len(classes_seen) == n_tasks or len(classes_seen) != len(curve.phases):
        return classes_seen
    counts: list[int] = []
    for count, columns in zip(classes_seen, curve.phases, strict=True):
        counts += [count] * (1 + max(columns) - len(counts))
    return counts


def _lists(items: Iterable[tuple[str, Vector]]) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in items}


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
