"""Two moments of one run: which samples were lost and gained in between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engram.core.errors import InputError
from engram.core.jsons import JsonObject
from engram.metrics.arrays import Label, Mask
from engram.metrics.flips import exact_test
from engram.metrics.history import Curve
from engram.metrics.sample_curve import SampleCurve
from engram.record.run import Run
from engram.results.query import task_ends


@dataclass(frozen=True, slots=True)
class Flips:
    """What changed in the answers to some samples between two moments.

    Attributes:
        name: The task, or `all`.
        samples: How many samples there are.
        before: How many were right at the first moment.
        lost: How many of these are wrong at the second (negative flips).
        gained: How many were wrong and are right (positive flips).
        p: The exact McNemar test that losses and gains are equally likely.
        answer_churn: The share of samples that are answered differently, also from one wrong answer to
            another; None where answers were not recorded.
    """

    name: str
    samples: int
    before: int
    lost: int
    gained: int
    p: float
    answer_churn: float | None = None

    @property
    def negative_flip_rate(self) -> float:
        """Lost samples as a share of all."""
        return self.lost / self.samples

    @property
    def churn(self) -> float:
        """Lost and gained samples as a share of all."""
        return (self.lost + self.gained) / self.samples

    def as_json(self) -> JsonObject:
        """One row of the table, as fractions."""
        return {
            "task": self.name,
            "samples": self.samples,
            "before": self.before / self.samples,
            "after": (self.before - self.lost + self.gained) / self.samples,
            "lost": self.lost,
            "gained": self.gained,
            "negative_flip_rate": self.negative_flip_rate,
            "positive_flip_rate": self.gained / self.samples,
            "churn": self.churn,
            "answer_churn": self.answer_churn,
            "p": self.p,
        }


def samples_of(run: Run) -> SampleCurve:
    """Which samples of a run were right at every evaluation.

    Raises:
        InputError: Other samples were drawn for every evaluation, or the trace has no bits.
    """
    if run.redrawn:
        raise InputError(
            f"the run {run.id} drew other samples for every evaluation: run it without --redraw to follow "
            "single samples"
        )
    return SampleCurve.of_trace(run.trace, run.curve)


def row_of(curve: Curve, moment: str) -> int:
    """The evaluation that a moment names.

    Args:
        curve: The evaluation history.
        moment: `start` for the first evaluation, `end` for the last, `task2` for the end of the second
            learning phase, or a number of updates: the last evaluation until then.

    Raises:
        InputError: There is no such moment.

    Example:
        >>> curve = Curve(np.array([0, 10, 20]), np.array([0, 0, 1]), np.full((3, 2), 0.5))
        >>> [row_of(curve, moment) for moment in ("start", "task1", "15", "end")]
        [0, 1, 1, 2]
    """
    text = moment.strip().lower()
    if text in ("start", "end"):
        return 0 if text == "start" else len(curve) - 1
    ends = task_ends(curve)
    phase = re.fullmatch(r"task ?(\d+)", text)
    if phase and 1 <= int(phase[1]) <= len(ends):
        return int(ends[int(phase[1]) - 1])
    if text.isdecimal() and int(text) >= curve.step[0]:
        return int(np.searchsorted(curve.step, int(text), side="right")) - 1
    raise InputError(
        f"a moment must be start, end, task1 to task{len(ends)}, or a number of updates from "
        f"{curve.step[0]} to {curve.step[-1]}, got {moment!r}"
    )


def flips_between(run: Run, first: str, second: str) -> tuple[list[Flips], tuple[int, int]]:
    """The flips of each task between two moments, and of all samples; and the steps of the evaluations.

    Tasks that were not evaluated at both are left out.

    Args:
        run: The run.
        first: The earlier moment; see `row_of`.
        second: The later moment.

    Raises:
        InputError: There is no such moment, the order is wrong, or no task was evaluated at both.
    """
    samples = samples_of(run)
    curve = samples.curve
    rows = row_of(curve, first), row_of(curve, second)
    steps = int(curve.step[rows[0]]), int(curve.step[rows[1]])
    if rows[0] >= rows[1]:
        raise InputError(
            f"the second moment must be after the first, got the evaluations at updates {steps[0]} and "
            f"{steps[1]}"
        )
    table: list[Flips] = []
    for column, name in enumerate(curve.tasks):
        before, after = samples.at(column, rows[0]), samples.at(column, rows[1])
        if before is not None and after is not None:
            table.append(_flips(run.task_name(column), before, after, _answer_churn(run, name, steps)))
    if not table:
        raise InputError(f"no task was evaluated both at update {steps[0]} and at update {steps[1]}")
    return [*table, _together(table)] if len(table) > 1 else table, steps


def _flips(name: str, before: Mask, after: Mask, answer_churn: float | None) -> Flips:
    lost, gained = int((before & ~after).sum()), int((~before & after).sum())
    p = float(exact_test(lost, gained))
    return Flips(name, len(before), int(before.sum()), lost, gained, p, answer_churn)


def _together(table: Sequence[Flips]) -> Flips:
    """The samples of all tasks."""
    samples, before = sum(row.samples for row in table), sum(row.before for row in table)
    lost, gained = sum(row.lost for row in table), sum(row.gained for row in table)
    known = [row.answer_churn * row.samples for row in table if row.answer_churn is not None]
    churn = sum(known) / samples if len(known) == len(table) else None
    return Flips("all", samples, before, lost, gained, float(exact_test(lost, gained)), churn)


def _answer_churn(run: Run, task: Label, steps: tuple[int, int]) -> float | None:
    """The share of samples of a task that are answered differently; None if answers were not recorded."""
    if not isinstance(task, int) or not all(run.answers.has(step, task) for step in steps):
        return None
    return run.answers.churn(*steps, task=task)
