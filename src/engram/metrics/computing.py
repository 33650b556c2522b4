"""Computes one metric of one run, and checks what its function returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engram.metrics.arrays import Matrix, Vector, mean_of_known
from engram.metrics.history import Curve, History
from engram.metrics.matrix import final
from engram.metrics.registry import Keywords, Metric


class Value(NamedTuple):
    """A metric of one run.

    Attributes:
        final: The value at the end; NaN where it is undefined.
        by_task: One value per task, if the metric has them.
        curve: One value per evaluation, for metrics of an evaluation history.
    """

    final: float
    by_task: Vector | None = None
    curve: Vector | None = None


def compute(metric: Metric, arguments: Sequence[object], options: Keywords, acc: Matrix) -> Value:
    """The value of a metric.

    Args:
        metric: The metric.
        arguments: The positional arguments of its function, in the order of its needs.
        options: Its options.
        acc: The accuracy matrix, from which the number of tasks and the last task learned are read.

    Raises:
        InputError: A user's function failed, or did not return a valid value; the message says where.

    Example:
        >>> from engram.metrics.registry import METRICS
        >>> acc = np.array([[0.9, np.nan], [0.5, 0.75]])
        >>> compute(METRICS["BWT"], [acc], {}, acc)
        Value(final=-0.4, by_task=array([-0.4,  nan]), curve=None)
    """
    returned = metric(*arguments, **options)
    if isinstance(returned, History):
        evaluations = [len(value) for value in arguments if isinstance(value, Curve)]
        expected = (*evaluations, len(acc))
        if returned.values.shape != expected:
            metric.refuse(f"returned a history of shape {returned.values.shape}, expected {expected}")
        _refuse_infinite(metric, returned.values)
        return Value(returned.final, returned.by_task, returned.curve)
    values = _numbers(metric, returned)
    if values.ndim:
        values = _one_per_task(metric, values, acc)
        return Value(mean_of_known(values) if metric.average else final(values, acc), values)
    if metric.by_task is None:
        return Value(float(values))
    by_task = _numbers(metric, metric.guarded(metric.by_task, *arguments, **options))
    return Value(float(values), _one_per_task(metric, by_task, acc))


def _numbers(metric: Metric, returned: object) -> Vector:
    try:
        values = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError):
        metric.refuse(f"returned {type(returned).__name__}, expected a number or one number per task")
    _refuse_infinite(metric, values)
    return values


def _refuse_infinite(metric: Metric, values: Matrix) -> None:
    if np.isinf(values).any():
        metric.refuse("returned an infinite number; return NaN where it is undefined")


def _one_per_task(metric: Metric, values: Vector, acc: Matrix) -> Vector:
    """One value per task, NaN for tasks without class counts."""
    counted = "classes" in metric.needs and values.ndim == 1 and len(values) < len(acc)
    if counted:
        values = np.append(values, np.full(len(acc) - len(values), np.nan))
    if values.shape != (len(acc),):
        metric.refuse(
            f"returned shape {values.shape} for {len(acc)} tasks, expected a number, one number per task or "
            "a History"
        )
    return values
