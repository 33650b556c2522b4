"""Computes every metric that the input allows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engram.core.errors import InputError
from engram.core.jsons import JsonObject
from engram.core.trace import Trace
from engram.metrics.arrays import Matrix, Vector
from engram.metrics.computing import Value, compute
from engram.metrics.curve import Mode, Span
from engram.metrics.history import Curve, Phases
from engram.metrics.inputs import Choices, Inputs, gather_inputs
from engram.metrics.registry import NEEDS, WINDOWS, Keywords, Metric, Options, computed, expected_names


@dataclass(frozen=True, slots=True)
class Measurement:
    """All metrics of one run.

    Attributes:
        final: The value of each metric at the end; NaN where it is undefined.
        by_task: One value per task. ACC, ACC-pooled, AA, FORG, AF, RAA, RAF: the value after learning each
            task, of which the last is the final value. All others: the value of each task at the end, whose
            mean is the final value (AvgFgt: Fgt after each task).
        curve: One value per evaluation, for metrics of an evaluation history.
        why: The reason for each metric that is undefined or left out, and the reservation about each that
            does not count everything that was evaluated.
        failed: The error of each plugin metric whose function failed.
    """

    final: dict[str, float]
    by_task: dict[str, list[float]]
    curve: dict[str, list[float]]
    why: dict[str, str]
    failed: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        """The measurement as JSON, with None for undefined numbers."""
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
    choices: Choices | None = None,
    redrawn: bool = False,
    names: Sequence[str] | None = None,
    windows: Sequence[int | None] = WINDOWS,
    beta: int = 10,
    span: Span = "after",
    mode: Mode = "exact",
    clamp: bool = False,
    only: Collection[str] | None = None,
    tolerant: bool = False,
) -> Measurement:
    """Every registered metric that the input allows.

    Args:
        source: The measured accuracies: an evaluation history or an accuracy matrix.
        ends: Accuracies at task ends on the full test sets, if the history was measured on a subset; metrics
            of the accuracy matrix are computed from these.
        classes_seen: The total number of classes seen after each task (or phase), needed by RAA and RAF.
        initial: The accuracy of each task at random initialisation, needed by FWT; a history that begins at
            step 0 contains it.
        phases: The tasks for each value of a trace's `learning`, if several tasks are learned together.
        choices: For each phase, the number of classes among which the answers of each task are sought, needed
            by SF-chance and SBT-chance (default: the classes seen so far).
        redrawn: Whether other samples are evaluated every time; nothing can then be said of single samples.
        names: What the tasks of a trace are called, for messages.
        windows: The windows of WF and WP; None is the whole history.
        beta: The number of evaluations in the learning-curve area.
        span: Which evaluations count for min-ACC.
        mode: How WF and WP look for the largest change.
        clamp: Whether a task that improved counts 0 in AF and RAF.
        only: The metrics to compute, by the names used in results (default: all).
        tolerant: Whether the failure of a plugin metric is recorded in `failed` instead of raised, so that a
            finished run is not lost.

    Raises:
        InputError: The number of classes does not match that of tasks, an option is unknown, or a plugin
            metric failed.

    Example:
        >>> result = summarise(np.array([[0.9, np.nan], [0.6, 0.8]]), classes_seen=[2, 4])
        >>> round(result.final["ACC"], 6), round(result.final["FORG"], 6), result.by_task["RAA"]
        (0.7, 0.3, [0.45, 0.7])
        >>> result.why["min-ACC"]
        'needs evaluations during learning; a matrix has only task ends'
    """
    inputs = gather_inputs(
        source,
        ends=ends,
        classes_seen=classes_seen,
        initial=initial,
        phases=phases,
        choices=choices,
        redrawn=redrawn,
        names=names,
    )
    options = Options(windows=windows, beta=beta, span=span, mode=mode, clamp=clamp)
    values: dict[str, Value] = {}
    why: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name, metric in computed(options).items():
        if only is not None and name not in only:
            continue
        try:
            value, reason = _measured(metric, inputs, options.variants(metric)[name])
        except InputError as error:
            if metric.is_ours or not tolerant:
                raise
            failed[name] = str(error)
            continue
        if value is not None:
            values[name] = value
        if reason:
            why[name] = reason
    return Measurement(
        final={name: value.final for name, value in values.items()},
        by_task=_lists((name, value.by_task) for name, value in values.items()),
        curve=_lists((name, value.curve) for name, value in values.items()),
        why=why,
        failed=failed,
    )


def missing(stored: Collection[str], why: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The registered metrics that a finished run does not have, such as new ones and those of plugins.

    If there are any, `summarise(trace, only=missing(…))` computes them; otherwise the trace need not be read.
    Metrics of tasks that are never learned, which few runs have, are not worth reading the trace of all runs.

    Args:
        stored: The names of the metrics that the run has.
        why: The metrics that could not be computed for the run, with the reason.

    Example:
        >>> from engram.metrics.registry import computed
        >>> missing(computed().keys() - {"AF", "FWT"}, {"FWT": "needs the accuracies at initialisation"})
        ('AF',)
    """
    expected = expected_names()
    lacking = expected.keys() - set(stored)
    return tuple(name for name in expected if name in lacking and name not in (why or {})) if lacking else ()


def _measured(metric: Metric, inputs: Inputs, options: Keywords) -> tuple[Value | None, str]:
    """The value of a metric, or None if it is left out; and the reason, or a reservation about the value."""
    lacking = inputs.lacks(metric)
    if lacking:
        return None, lacking
    value = compute(metric, inputs.arguments(metric), options, inputs.matrix)
    if not np.isnan(value.final):
        return value, inputs.reservation(metric)
    if "initial" in metric.needs:
        # Most runs evaluate no task before it is learned; the metric is then left out.
        return None, NEEDS["initial"]
    return value, metric.undefined


def _lists(items: Iterable[tuple[str, Vector | None]]) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in items if values is not None}


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
