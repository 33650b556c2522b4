"""Which samples were right at every evaluation: the counterpart of `Curve` for single samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics.arrays import Label, Mask
from engram.metrics.history import Curve

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TaskBits:
    """Which samples of one task were right, evaluation by evaluation.

    Attributes:
        rows: The rows of the trace, in the order of their steps.
        packed: One packed row of bits per evaluation.
        samples: The number of samples; 0 for a task that was never evaluated.
    """

    rows: Counts
    packed: NDArray[np.uint8]
    samples: int

    @classmethod
    def of_trace(cls, trace: Trace, task: Label) -> TaskBits:
        """The bits of a task. The same samples must be evaluated every time, in the same order.

        Raises:
            InputError: The trace has no bits, or the number of samples changes.
        """
        rows = np.flatnonzero(np.asarray(trace.task) == task)
        rows = rows[np.argsort(np.asarray(trace.step, dtype=np.int64)[rows], kind="stable")]
        # Lists are looked up with plain numbers: it takes half as long, and reports do it for many runs.
        places = rows.tolist()
        totals = {trace.total[row] for row in places}
        bits = [trace.bits[row] for row in places]
        if len(totals) > 1:
            raise InputError(
                f"task {task} was evaluated on {min(totals)} to {max(totals)} samples: "
                "the number must not change"
            )
        if not all(bits):
            raise InputError(
                f"the trace does not record which samples of task {task} were right: record it with bits"
            )
        samples = totals.pop() if totals else 0
        flat = np.frombuffer(b"".join(bits), dtype=np.uint8)
        return cls(rows, flat.reshape(len(rows), (samples + 7) // 8), samples)


def times_forgotten(packed: NDArray[np.uint8], samples: int) -> Counts:
    """How often the answer to each sample turned from right to wrong between two evaluations.

    Args:
        packed: One packed row of bits per evaluation.
        samples: The number of samples.

    Example:
        >>> right = np.array([[1, 1], [0, 1], [1, 1], [0, 1]])
        >>> times_forgotten(np.packbits(right, axis=1), 2)
        array([2, 0])
    """
    # Combined while packed, eight samples at a time; only the counts need single bits.
    falls = np.unpackbits(packed[:-1] & ~packed[1:], axis=1, count=samples)
    return np.asarray(falls.sum(axis=0, dtype=np.int64))


@dataclass(frozen=True)
class Fates:
    """What became of each sample of a task, from the first update of the task to the end of the run.

    Attributes:
        learned: How often its answer turned from wrong to right between two evaluations.
        forgotten: How often it turned from right to wrong: its forgetting events.
        ever: Whether it was right at any evaluation.
        kept: Whether it was right at every evaluation from the end of its task on.
        now: Whether it is right at the last evaluation.
    """

    learned: Counts
    forgotten: Counts
    ever: Mask
    kept: Mask
    now: Mask


@dataclass(frozen=True, eq=False)
class SampleCurve:
    """Which samples of each task were right, evaluation by evaluation.

    Made from a trace with bits. The same samples must be evaluated every time, in the same order.

    Attributes:
        curve: The accuracies, from which tasks, phases and steps are read.
        rows: For each column of the curve, the evaluations (rows of the curve) that include the task.
        packed: For each column, one packed row of bits per such evaluation.
        samples: For each column, the number of samples.

    Example:
        >>> trace = Trace()
        >>> trace.add(step=1, learning=0, task=0, right=np.array([True, False]))
        >>> trace.add(step=2, learning=0, task=0, right=np.array([True, True]))
        >>> SampleCurve.of_trace(trace, Curve.of_trace(trace)).right(0)
        array([[ True, False],
               [ True,  True]])
    """

    curve: Curve
    rows: tuple[Counts, ...]
    packed: tuple[NDArray[np.uint8], ...]
    samples: tuple[int, ...]
    _fates: dict[int, Fates] = field(default_factory=dict, repr=False)

    @classmethod
    def of_trace(cls, trace: Trace, curve: Curve) -> SampleCurve:
        """The samples of a trace.

        Args:
            trace: The trace, with bits.
            curve: Its curve, see `Curve.of_trace`.

        Raises:
            InputError: The trace has no bits, or the number of samples of a task changes.
        """
        step = np.asarray(trace.step)
        tasks = [TaskBits.of_trace(trace, name) for name in curve.tasks]
        return cls(
            curve,
            tuple(np.searchsorted(curve.step, step[bits.rows]).astype(np.int64) for bits in tasks),
            tuple(bits.packed for bits in tasks),
            tuple(bits.samples for bits in tasks),
        )

    def right(self, column: int, evaluations: slice = slice(None)) -> Mask:
        """`right[evaluation, sample]` of a task, for the evaluations that include it."""
        return self._unpacked(column, self.packed[column][evaluations])

    def at(self, column: int, row: int) -> Mask | None:
        """Which samples of a task were right at a row of the curve; None if it was not evaluated there."""
        place = int(np.searchsorted(self.rows[column], row))
        if place == len(self.rows[column]) or self.rows[column][place] != row:
            return None
        return np.asarray(self.right(column, slice(place, place + 1))[0])

    @cached_property
    def ends(self) -> tuple[int | None, ...]:
        """For each task, the last row of the curve while it was learned; None if it never was.

        A task that is learned again ends with its last phase; in `Curve.matrix` it ends with its first one.
        """
        learning = self.curve.being_learned()
        rows = (np.flatnonzero(learning[:, column]) for column in range(learning.shape[1]))
        return tuple(int(own[-1]) if own.size else None for own in rows)

    def ends_of(self, column: int) -> tuple[Mask, Mask] | None:
        """Which samples of a task were right just after it was learned, and at the last evaluation.

        None where one of them is unknown, or where both are the same evaluation.
        """
        end, last = self.ends[column], len(self.curve) - 1
        if end is None or end == last:
            return None
        before, after = self.at(column, end), self.at(column, last)
        return None if before is None or after is None else (before, after)

    def fates(self, column: int) -> Fates | None:
        """What became of each sample of a task; None if it was never evaluated since its learning began.

        An evaluation before the first update does not count.
        """
        if column not in self._fates:
            fates = self._computed(column)
            if fates is None:
                return None
            self._fates[column] = fates
        return self._fates[column]

    def _computed(self, column: int) -> Fates | None:
        learning = np.flatnonzero(self.curve.being_learned()[:, column])
        end = self.ends[column]
        if not learning.size or end is None:
            return None
        rows = self.rows[column]
        first = int(np.searchsorted(rows, learning[0]))
        if first < len(rows) and self.curve.step[rows[first]] == 0:
            first += 1
        if first >= len(rows):
            return None
        packed = self.packed[column][first:]
        after = packed[int(np.searchsorted(rows[first:], end)) :]
        forgotten = times_forgotten(packed, self.samples[column])
        start, now = (self._unpacked(column, packed[[place]])[0] for place in (0, -1))
        return Fates(
            # Whoever turns from right to wrong and ends right has turned back as often.
            learned=forgotten + now.astype(np.int64) - start.astype(np.int64),
            forgotten=forgotten,
            ever=self._unpacked(column, np.bitwise_or.reduce(packed, axis=0, keepdims=True))[0],
            kept=self._unpacked(column, np.bitwise_and.reduce(after, axis=0, keepdims=True))[0],
            now=now,
        )

    def _unpacked(self, column: int, packed: NDArray[np.uint8]) -> Mask:
        return np.unpackbits(packed, axis=1, count=self.samples[column]).view(np.bool_)
