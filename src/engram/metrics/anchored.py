"""Curves of two levels of samples: a small part asked at every evaluation, all of them at anchors.

Between anchors, only the small part was asked. What all samples would have said is estimated by the line
between the anchors before and after, plus what the small part did beyond its own line between them. Of that
deviation, only the share is counted that the number of its samples allows to be taken for real.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics.arrays import Matrix, Vector

Places = NDArray[np.int64]

_BLOCK = 2**22
"""The most answers that are compared at a time."""


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
    weight: Matrix

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
        return cls(np.searchsorted(steps, known), before, after, weight[:, np.newaxis])

    def apply(self, small: Matrix, whole: Matrix, noise: Matrix | None = None) -> Matrix:
        """The accuracy on all samples at every evaluation: as asked at anchors, estimated between them.

        A deviation d of the small part, with the variance v that the choice of its samples gives it, counts
        with the share 1 − v/d², and not at all where v is larger (James and Stein): the mean of d² is the
        square of the true deviation plus v.

        Args:
            small: The accuracies of the small part: one row per evaluation, any number of columns.
            whole: Those of all samples: one row per anchor.
            noise: The variance of each deviation; None counts deviations fully.
        """
        deviation = small - self._line(small[self.anchors])
        if noise is not None:
            square = deviation**2
            real = np.divide(square - noise, square, out=np.zeros_like(square), where=square > noise)
            deviation = deviation * real
        estimated: Matrix = np.clip(self._line(whole) + deviation, 0.0, 1.0)
        # As asked, without rounding.
        estimated[self.anchors] = whole
        return estimated

    def noise(self, right: NDArray[np.uint8], weights: NDArray[np.float32]) -> Matrix:
        """The variance of the deviations over samples, for one sample: divide by their number.

        Args:
            right: Which samples of the small part were right: one row per evaluation.
            weights: For each sample, one row with its weights, which sum to 1 in each column.
        """
        rows = max(1, _BLOCK // max(1, right.shape[1]))
        parts = [
            self._noise(right, weights, slice(first, first + rows)) for first in range(0, len(right), rows)
        ]
        return np.concatenate(parts)

    def _noise(self, right: NDArray[np.uint8], weights: NDArray[np.float32], some: slice) -> Matrix:
        def mean(table: NDArray[np.uint8]) -> Matrix:
            return (table.astype(np.float32) @ weights).astype(np.float64)

        now, weight = right[some], self.weight[some]
        earlier, later = (right[self.anchors[side[some]]] for side in (self.before, self.after))
        before, after, at = mean(earlier), mean(later), mean(now)
        deviation = at - (1 - weight) * before - weight * after
        # Squares of answers are the answers.
        squares = (
            at
            + (1 - weight) ** 2 * before
            + weight**2 * after
            - 2 * (1 - weight) * mean(now & earlier)
            - 2 * weight * mean(now & later)
            + 2 * weight * (1 - weight) * mean(earlier & later)
        )
        return np.maximum(squares - deviation**2, 0.0)

    def _line(self, known: Matrix) -> Matrix:
        """The values between those at anchors, on straight lines."""
        return (1 - self.weight) * known[self.before] + self.weight * known[self.after]


def corrected(trace: Trace) -> tuple[Vector, Vector]:
    """The accuracies on all samples, one per row of a trace, and how many samples were asked there.

    A task without anchors stays as it was measured. Without bits, deviations count fully.

    Args:
        trace: The trace, with anchors.

    Raises:
        InputError: An anchor is at a step at which its task was not evaluated, or twice at one step.

    Example:
        >>> trace, right = Trace(anchors=Trace()), np.array([True, False, True, True])
        >>> for step in (1, 2, 3):
        ...     trace.add(step=step, learning=0, task=0, right=right[:2])
        >>> trace.anchors.add(step=1, learning=0, task=0, right=right)
        >>> trace.anchors.add(step=3, learning=0, task=0, right=~right)
        >>> corrected(trace)
        (array([0.75, 0.5 , 0.25]), array([4., 2., 4.]))
    """
    step, task = np.array(trace.step), np.array(trace.task)
    accuracy, total = trace.accuracy(), np.array(trace.total, dtype=np.float64)
    anchors = trace.anchors or Trace()
    anchor_step, anchor_task, whole = np.array(anchors.step), np.array(anchors.task), anchors.accuracy()
    for name in np.unique(anchor_task):
        rows, known = (np.flatnonzero(tasks == name) for tasks in (task, anchor_task))
        rows = rows[np.argsort(step[rows], kind="stable")]
        known = known[np.argsort(anchor_step[known], kind="stable")]
        if (np.diff(anchor_step[known]) == 0).any():
            raise InputError(f"all samples of task {name} were asked twice at one step")
        correction = Correction.between(step[rows], anchor_step[known])
        noise = None
        if all(trace.bits[row] for row in rows):
            right = np.array([trace.right(int(row)) for row in rows]).astype(np.uint8)
            few, all_samples = right.shape[1], anchors.total[known[0]]
            share = np.full((few, 1), 1 / few, dtype=np.float32)
            noise = correction.noise(right, share) * (1 - few / all_samples) / few
        accuracy[rows] = correction.apply(accuracy[rows, np.newaxis], whole[known, np.newaxis], noise)[:, 0]
        total[rows[correction.anchors]] = [anchors.total[row] for row in known]
    return accuracy, total


def last_shifts(trace: Trace) -> dict[int, float]:
    """For each task, what all samples added to the accuracy of the small part at the last anchor.

    Example:
        >>> trace, right = Trace(anchors=Trace()), np.array([True, False, True, True])
        >>> trace.add(step=1, learning=0, task=0, right=right[:2])
        >>> trace.anchors.add(step=1, learning=0, task=0, right=right)
        >>> last_shifts(trace)
        {0: 0.25}
    """
    if trace.anchors is None:
        return {}
    small = dict(zip(zip(trace.step, trace.task, strict=True), trace.accuracy().tolist(), strict=True))
    rows = zip(trace.anchors.step, trace.anchors.task, trace.anchors.accuracy().tolist(), strict=True)
    return {task: whole - small[step, task] for step, task, whole in rows}


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
            f"{self.anchors:,} of {self.evaluations:,}: {self.share:.2f} of the samples of asking all "
            "every time"
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
