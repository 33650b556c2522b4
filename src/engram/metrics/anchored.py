"""Curves of two levels of samples: a small part asked at every evaluation, all of them at anchors.

Between anchors, only the small part was asked. What all samples would have said is estimated as the accuracy
of the small part plus the difference of both, interpolated linearly between the anchors before and after.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.trace import Counts, Trace
from engram.metrics.arrays import Matrix, Vector

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """How the curve of a small part of the samples of one task becomes that of all.

    Attributes:
        anchors: The evaluations at which all samples were asked, in ascending order.
        before: For each evaluation, the anchor before it (the first, where there is none), counted from 0.
        after: Likewise, the anchor after it (the last, where there is none).
        weight: The weight of the anchor after it, by the number of updates in between.

    Example:
        >>> correction = Correction.between([0, 10, 20], [0, 20])
        >>> correction.apply(np.array([[0.5], [0.6], [0.7]]), np.array([[0.4], [0.8]])).round(6).ravel()
        array([0.4, 0.6, 0.8])
    """

    anchors: Places
    before: Places
    after: Places
    weight: Vector

    @classmethod
    def between(cls, step: Places | list[int], anchor_step: Places | list[int]) -> Correction:
        """The correction of evaluations at some steps by anchors at some of these.

        Args:
            step: The updates done at each evaluation, in ascending order.
            anchor_step: The updates done at each anchor, in ascending order; at least one.

        Raises:
            InputError: An anchor is at a step without an evaluation.
        """
        steps, known = np.asarray(step, dtype=np.int64), np.asarray(anchor_step, dtype=np.int64)
        alone = ~np.isin(known, steps)
        if alone.any():
            raise InputError(
                f"all samples were asked at step {known[alone][0]}, and the small part was not: "
                "anchors must be among the evaluations"
            )
        after = np.minimum(np.searchsorted(known, steps), len(known) - 1)
        before = np.maximum(np.searchsorted(known, steps, side="right") - 1, 0)
        width = np.maximum(known[after] - known[before], 1)
        weight = np.clip((steps - known[before]) / width, 0.0, 1.0)
        return cls(np.searchsorted(steps, known), before, after, weight)

    def apply(self, small: Matrix, whole: Matrix) -> Matrix:
        """The accuracy on all samples at every evaluation: as asked at anchors, estimated between them.

        Args:
            small: The accuracies of the small part: one row per evaluation, any number of columns.
            whole: Those of all samples: one row per anchor.
        """
        difference = whole - small[self.anchors]
        weight = self.weight[:, np.newaxis]
        shift = (1 - weight) * difference[self.before] + weight * difference[self.after]
        estimated: Matrix = np.clip(small + shift, 0.0, 1.0)
        # As asked, without rounding.
        estimated[self.anchors] = whole
        return estimated


def corrected(counts: Counts, anchors: Counts) -> tuple[Vector, Vector]:
    """The accuracies on all samples, one per row of a trace, and how many samples were asked there.

    A task without anchors stays as it was measured.

    Args:
        counts: The rows of the trace, in any order.
        anchors: The rows of its anchors.

    Raises:
        InputError: An anchor is at a step at which its task was not evaluated, or twice at one step.

    Example:
        >>> small = Counts([1, 2, 3], [0, 0, 0], [0, 0, 0], [1, 2, 1], [2, 2, 2])
        >>> all_samples = Counts([1, 3], [0, 0], [0, 0], [2, 3], [4, 4])
        >>> corrected(small, all_samples)
        (array([0.5  , 1.   , 0.75]), array([4., 2., 4.]))
    """
    step, task = (np.asarray(values, dtype=np.int64) for values in (counts.step, counts.task))
    total = np.array(counts.total, dtype=np.float64)
    accuracy = np.asarray(counts.correct, dtype=np.float64) / total
    anchor_step, anchor_task = (
        np.asarray(values, dtype=np.int64) for values in (anchors.step, anchors.task)
    )
    whole_total = np.asarray(anchors.total, dtype=np.float64)
    whole = np.asarray(anchors.correct, dtype=np.float64) / whole_total
    for name in np.unique(anchor_task):
        rows, known = (np.flatnonzero(tasks == name) for tasks in (task, anchor_task))
        rows = rows[np.argsort(step[rows], kind="stable")]
        known = known[np.argsort(anchor_step[known], kind="stable")]
        if (np.diff(anchor_step[known]) == 0).any():
            raise InputError(f"all samples of task {name} were asked twice at one step")
        correction = Correction.between(step[rows], anchor_step[known])
        accuracy[rows] = correction.apply(accuracy[rows, np.newaxis], whole[known, np.newaxis])[:, 0]
        total[rows[correction.anchors]] = whole_total[known]
    return accuracy, total


@dataclass(frozen=True, slots=True)
class Levels:
    """How many samples were asked at two levels.

    Attributes:
        small: Samples of each task that were asked at every evaluation; the most, where tasks differ.
        whole: Samples of each task that were asked at anchors, likewise.
        evaluations: How many evaluations there were.
        anchors: How many of them were anchors.
        share: The samples that were asked, divided by those of asking all of them at every evaluation.
    """

    small: int
    whole: int
    evaluations: int
    anchors: int
    share: float

    def __str__(self) -> str:
        """The levels and their price, in words."""
        return (
            f"{self.small:,} of {self.whole:,} samples of each task at every evaluation, all of them at "
            f"{self.anchors:,} of {self.evaluations:,}: {self.share:.2f} of the samples of asking all every time"
        )


def levels_of(trace: Trace) -> Levels | None:
    """The two levels of a trace; None where there is one.

    Example:
        >>> trace, right = Trace(anchors=Trace()), np.array([True, False, True, True])
        >>> for step in (1, 2):
        ...     trace.add(step=step, learning=0, task=0, right=right[:1])
        >>> trace.anchors.add(step=2, learning=0, task=0, right=right)
        >>> levels_of(trace).share
        0.625
    """
    anchors = trace.anchors
    if anchors is None or not len(anchors):
        return None
    whole = dict(zip(anchors.task, anchors.total, strict=True))
    small = dict(zip(trace.task, trace.total, strict=True))
    every_time = sum(whole.get(task, small[task]) for task in trace.task)
    asked = sum(trace.total) + sum(whole[task] - small[task] for task in anchors.task)
    return Levels(
        small=max(small.values()),
        whole=max(whole.values()),
        evaluations=len(set(trace.step)),
        anchors=len(set(anchors.step)),
        share=asked / every_time,
    )
