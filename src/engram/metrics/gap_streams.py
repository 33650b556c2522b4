"""Streaming versions of the metrics of stability gaps; see `engram.metrics.gaps`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from engram.metrics.arrays import Mask, Vector
from engram.metrics.gaps import recovered_level
from engram.metrics.streaming import StreamingMetric


class _OfGaps(StreamingMetric):
    """The mean over the gaps of each task, of which the last may be under way."""

    def __init__(self, n_tasks: int) -> None:
        super().__init__(n_tasks)
        self._started: Mask = np.zeros(n_tasks, dtype=np.bool_)
        self._latest: Vector = np.full(n_tasks, np.nan)
        self._reference: Vector = np.full(n_tasks, np.nan)
        self._number = np.zeros(n_tasks, dtype=np.int64)
        self._lowest: Vector = np.full(n_tasks, np.inf)
        self._sums: Vector = np.zeros(n_tasks)
        self._gaps = np.zeros(n_tasks, dtype=np.int64)

    def by_task(self) -> Vector:
        """The mean over the gaps of each task so far."""
        open_now = self._number > 0
        gaps = self._gaps + open_now
        sums = self._sums + np.where(open_now, self._under_way(), 0.0)
        means: Vector = np.full(self.n_tasks, np.nan)
        np.divide(sums, gaps, out=means, where=gaps > 0)
        return means

    @abstractmethod
    def _under_way(self) -> Vector:
        """The value of the gap under way, for each task that has one."""

    @abstractmethod
    def _fallen(self, counted: Mask, accuracies: Vector) -> None:
        """Add one evaluation of the counted tasks to their gaps; `_lowest` is still that before it."""

    def _turn_to(self, learning: int | Sequence[int]) -> None:
        open_now = self._number > 0
        self._sums += np.where(open_now, self._under_way(), 0.0)
        self._gaps += open_now
        super()._turn_to(learning)
        self._reference = self._latest.copy()
        self._number[:] = 0
        self._lowest[:] = np.inf

    def _observe(self, accuracies: Vector, *, updated: bool) -> None:
        known = ~np.isnan(accuracies)
        counted = known & self._started & ~self._current & ~np.isnan(self._reference)
        self._number += counted
        self._fallen(counted, accuracies)
        np.fmin(self._lowest, accuracies, out=self._lowest, where=counted)
        self._latest[known] = accuracies[known]
        self._started |= self._current


class GapDepth(_OfGaps):
    """gap-depth: how far earlier tasks fall after a switch; see `gaps.gap_depth`.

    Example:
        >>> stream = GapDepth(2)
        >>> for learning, accuracies in [(0, [0.9, np.nan]), (1, [0.4, 0.2]), (1, [0.7, 0.8])]:
        ...     stream.update(learning, np.array(accuracies))
        >>> stream.get()
        0.5
    """

    def _under_way(self) -> Vector:
        return np.maximum(self._reference - self._lowest, 0)

    def _fallen(self, counted: Mask, accuracies: Vector) -> None:
        """The lowest accuracy is all that counts."""


class GapArea(_OfGaps):
    """gap-area: how far earlier tasks are below their accuracy at the switch; see `gaps.gap_area`.

    Example:
        >>> stream = GapArea(2)
        >>> for learning, accuracies in [(0, [0.9, np.nan]), (1, [0.4, 0.2]), (1, [0.7, 0.8])]:
        ...     stream.update(learning, np.array(accuracies))
        >>> round(stream.get(), 6)
        0.35
    """

    def __init__(self, n_tasks: int) -> None:
        super().__init__(n_tasks)
        self._lacking: Vector = np.zeros(n_tasks)

    def _under_way(self) -> Vector:
        return self._lacking / np.maximum(self._number, 1)

    def _fallen(self, counted: Mask, accuracies: Vector) -> None:
        np.add(self._lacking, np.maximum(self._reference - accuracies, 0), out=self._lacking, where=counted)

    def _turn_to(self, learning: int | Sequence[int]) -> None:
        super()._turn_to(learning)
        self._lacking[:] = 0


class GapDuration(_OfGaps):
    """gap-duration: the share of the time until earlier tasks are back; see `gaps.gap_duration`.

    Example:
        >>> stream = GapDuration(2)
        >>> for learning, accuracies in [(0, [0.9, np.nan]), (1, [0.4, 0.2]), (1, [0.9, 0.8])]:
        ...     stream.update(learning, np.array(accuracies))
        >>> stream.get()
        1.0
    """

    def __init__(self, n_tasks: int) -> None:
        super().__init__(n_tasks)
        self._back = np.zeros(n_tasks, dtype=np.int64)

    def _under_way(self) -> Vector:
        number = np.maximum(self._number, 1)
        fell = self._lowest < recovered_level(self._reference)
        taken = np.where(self._back > 0, self._back, self._number)
        return np.where(fell, taken, 0) / number

    def _fallen(self, counted: Mask, accuracies: Vector) -> None:
        level = recovered_level(self._reference)
        self._back[counted & (accuracies < self._lowest)] = 0
        fell = self._lowest < level
        self._back = np.where(
            counted & fell & (self._back == 0) & (accuracies >= level), self._number, self._back
        )

    def _turn_to(self, learning: int | Sequence[int]) -> None:
        super()._turn_to(learning)
        self._back[:] = 0
