"""Worked examples: every metric applied to the same small data, computed when they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from engram.core.trace import Trace
from engram.metrics import matrix
from engram.metrics.arrays import Matrix
from engram.metrics.computing import compute
from engram.metrics.history import Curve
from engram.metrics.registry import Metric
from engram.metrics.sample_curve import SampleCurve

_OPTIONS: Final = {"window": 3, "beta": 2}
_OPTION_NOTES: Final = {"window": "window of 3", "beta": "β = 2"}
_SAMPLES: Final = (100.0, 200.0, 300.0, 400.0, 500.0)
_CLASSES: Final = (2, 4, 6, 8, 10)
_CHOICES: Final = np.array([[2.0] * 3, [4.0] * 3, [6.0] * 3])
_ANSWERS: Final = (
    (1, 0, 0, "1110"),
    (2, 0, 0, "1111"),
    (3, 1, 0, "1011"),
    (3, 1, 1, "0010"),
    (4, 1, 0, "1101"),
    (4, 1, 1, "1010"),
    (5, 2, 0, "1001"),
    (5, 2, 1, "1010"),
    (5, 2, 2, "0110"),
    (6, 2, 0, "1001"),
    (6, 2, 1, "1100"),
    (6, 2, 2, "1110"),
)
_FEATURES: Final = np.array(
    [
        [1, 0, 0.5],
        [0.8, 0.1, 0.4],
        [1.2, -0.1, 0.6],
        [0, 1, -0.5],
        [0.1, 0.9, -0.4],
        [-0.1, 1.1, -0.6],
        [0, 0.7, -0.3],
    ]
)


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example.

    Attributes:
        cells: The input.
        working: The formula with these numbers inserted, if the metric's docstring has it.
        value: The result.
    """

    cells: str
    working: str
    value: float


def worked_example(metric: Metric) -> Example | None:
    """A metric applied to the example data; None for a metric that needs bits.

    Example:
        >>> from engram.metrics.registry import METRICS
        >>> example = worked_example(METRICS["WC-ACC"])
        >>> example.working, round(example.value, 6)
        ('1/3 · .97 + 2/3 · .40', 0.59)
    """
    if "bits" in metric.needs:
        return None
    acc = worked_matrix()
    if "right" in metric.needs:
        acc = worked_samples().curve.matrix()
    if "curve" in metric.needs:
        acc = worked_curve().matrix()
    if "initial" in metric.needs:
        acc = np.array([[0.90, 0.30], [0.60, 0.80]])
    if "unlearned" in metric.needs:
        acc = matrix.accuracy_matrix([[0.90, 0.50, 0.96, 0.85], [0.60, 0.80, 0.01, 0.85]])
    options = {metric.named_by: _OPTIONS[metric.named_by]} if metric.named_by else {}
    value = compute(metric, [_input(need, acc) for need in metric.needs], options, acc)
    notes = [_cells(need, acc) for need in metric.needs]
    notes += [_OPTION_NOTES[option] for option in options]
    number = value.final
    if "classes" in metric.needs and value.by_task is not None:
        # After the last task the rescaling factor is 1, so an earlier value is shown.
        number = float(value.by_task[2])
        notes.append("after the third task")
    return Example("\n".join(note for note in notes if note), metric.definition.worked, number)


def worked_matrix() -> Matrix:
    """The accuracy matrix of the examples: five tasks."""
    return matrix.accuracy_matrix(
        [
            [0.98],
            [0.91, 0.90],
            [0.85, 0.92, 0.95],
            [0.70, 0.94, 0.80, 0.96],
            [0.75, 0.60, 0.85, 0.90, 0.93],
        ]
    )


def worked_curve() -> Curve:
    """The evaluation history of the examples: one evaluation before three tasks of four updates."""
    first = [0.10, 0.50, 0.80, 0.90, 0.95, 0.40, 0.55, 0.85, 0.90, 0.30, 0.60, 0.70, 0.88]
    second = [0.20, 0.70, 0.90, 0.92, 0.65, 0.50, 0.75, 0.80]
    third = [0.35, 0.75, 0.60, 0.97]
    columns = [
        np.concatenate([np.full(13 - len(series), np.nan), series]) for series in (first, second, third)
    ]
    return Curve(
        step=np.arange(13), learning=np.repeat([0, 1, 2], [5, 4, 4]), accuracy=np.column_stack(columns)
    )


def worked_samples() -> SampleCurve:
    """The samples of the examples: four per task, evaluated twice in each of three tasks."""
    trace = Trace()
    for step, learning, task, bits in _ANSWERS:
        right = np.array([bit == "1" for bit in bits])
        trace.add(step=step, learning=learning, task=task, right=right)
    return SampleCurve.of_trace(trace, Curve.of_trace(trace))


def written_matrix(cells: Matrix) -> str:
    """A matrix as text, with blanks where nothing was evaluated.

    Example:
        >>> print(written_matrix(np.array([[0.9, np.nan], [0.6, 0.8]])))
        .90
        .60 .80
    """
    return "\n".join(" ".join("   " if np.isnan(v) else _number(v) for v in row).rstrip() for row in cells)


def _input(need: str, acc: Matrix) -> object:
    """The example data for one of a metric's needs."""
    samples = np.where(np.isnan(acc), np.nan, np.array(_SAMPLES[: len(acc)]))
    inputs: dict[str, object] = {
        "matrix": acc,
        "curve": worked_curve(),
        "correct": acc * samples,
        "samples": samples,
        "classes": list(_CLASSES[: len(acc)]),
        "initial": np.full(len(acc), 0.10),
        "unlearned": matrix.unlearned_tasks(acc),
        "right": worked_samples(),
        "choices": _CHOICES,
        "features": _FEATURES,
        "labels": [0, 0, 0, 1, 1, 1, 1],
        "quality": 0.30,
        "joint": 0.50,
    }
    return inputs[need]


def _cells(need: str, acc: Matrix) -> str:
    """The same data as text."""
    if need in ("matrix", "correct"):
        return written_matrix(acc)
    if need == "curve":
        return _series()
    if need == "right":
        return _bits()
    if need == "features":
        return "\n".join(" ".join(f"{value:4.1f}" for value in row) for row in _FEATURES)
    return {
        "samples": f"samples of each task: {' '.join(f'{count:g}' for count in _SAMPLES[: len(acc)])}",
        "classes": "two new classes per task",
        "initial": f"at initialisation: {' '.join(['.10'] * len(acc))}",
        "unlearned": "the third and the fourth task are never learned",
        "choices": "answers are sought among 2, then 4, then 6 classes",
        "labels": "the first three samples are of one class, the other four of another; ε = 0.5",
        "quality": "best accuracy on both tasks .30",
        "joint": "joint training .50",
    }[need]


def _bits() -> str:
    """The samples of the examples: one group of bits per evaluation."""
    lines = []
    for task in range(3):
        cells = {step: bits for step, _, evaluated, bits in _ANSWERS if evaluated == task}
        row = " ".join(cells.get(step, "    ") for step in range(1, 7))
        lines.append(f"task {task + 1}: {row}")
    return "\n".join(
        [*lines, "1: right, 0: wrong; a group of four samples per evaluation, two evaluations in each task"]
    )


def _series() -> str:
    lines = (
        f"task {task}: " + " ".join("   " if np.isnan(v) else _number(v) for v in series)
        for task, series in enumerate(worked_curve().accuracy.T, start=1)
    )
    return "\n".join([*lines, "one column per evaluation; the tasks end at the 5th, 9th and 13th"])


def _number(value: float) -> str:
    return f"{value:.2f}".removeprefix("0") if 0 <= value < 1 else f"{value:g}"
