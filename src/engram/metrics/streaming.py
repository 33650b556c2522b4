"""Streaming metrics: one `update` per evaluation, in constant memory.

A stream is registered in the decorator of the pure function that it mirrors (`stream=`): after any number of
updates, `get()` returns what the function returns for the evaluations so far. A stream keeps a few numbers
per task, or as many as its window is long; its size does not grow with the number of evaluations. Metrics of
the accuracy matrix need no class of their own: `stream_of` returns a `MatrixStream` for them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from engram.core.errors import InputError
from engram.metrics import curve as pure
from engram.metrics.arrays import Mask, Matrix, Vector, mean_of_known
from engram.metrics.computing import Value, compute
from engram.metrics.curve import Mode, Span
from engram.metrics.registry import WINDOWS, Keywords, Metric, Options, all_metrics


class StreamingMetric(ABC):
    """A metric that is updated with one evaluation after the other.

    Args:
        n_tasks: The total number of tasks, including those not learned yet.
    """

    def __init__(self, n_tasks: int) -> None:
        self.n_tasks = n_tasks
        self._learning: int | Sequence[int] = ()
        self._current: Mask = np.zeros(n_tasks, dtype=np.bool_)

    def update(self, learning: int | Sequence[int], accuracies: Vector, *, updated: bool = True) -> None:
        """Add one evaluation.

        Args:
            learning: The task or tasks being learned, as indices into `accuracies`.
            accuracies: One fraction per task; NaN where it was not evaluated.
            updated: False for an evaluation before the run's first update.

        Raises:
            InputError: There are more or fewer accuracies than tasks, or `learning` is not one of them.
        """
        if len(accuracies) != self.n_tasks:
            raise InputError(
                f"accuracies must have one entry per task, got {len(accuracies)} for {self.n_tasks} tasks"
            )
        if learning != self._learning:
            self._turn_to(learning)
        self._observe(accuracies, updated=updated)

    def get(self) -> float:
        """The metric now: the mean over tasks; NaN where it is undefined."""
        return mean_of_known(self.by_task())

    @abstractmethod
    def by_task(self) -> Vector:
        """The metric now, for each task; NaN where it is undefined for the task."""

    @abstractmethod
    def _observe(self, accuracies: Vector, *, updated: bool) -> None:
        """Add one evaluation."""

    def _turn_to(self, learning: int | Sequence[int]) -> None:
        """Set what is being learned."""
        columns = list(learning) if isinstance(learning, Sequence) else [learning]
        if not all(0 <= column < self.n_tasks for column in columns):
            raise InputError(f"learning must be between 0 and {self.n_tasks - 1}, got {learning}")
        self._learning = learning
        self._current = np.zeros(self.n_tasks, dtype=np.bool_)
        self._current[columns] = True


class MinAccuracy(StreamingMetric):
    """min-ACC: the lowest accuracy of earlier tasks since they were learned; see `curve.min_accuracy`.

    Example:
        >>> metric = MinAccuracy(2)
        >>> for learning, accuracies in [(0, [0.9, np.nan]), (1, [0.4, 0.2]), (1, [0.7, 0.8])]:
        ...     metric.update(learning, np.array(accuracies))
        >>> metric.get(), metric.by_task()
        (0.4, array([0.4, nan]))
    """

    def __init__(self, n_tasks: int, *, span: Span = "after") -> None:
        super().__init__(n_tasks)
        pure.check_span(span)
        self.span = span
        self._started: Mask = np.zeros(n_tasks, dtype=np.bool_)
        self._counted: Mask = np.zeros(n_tasks, dtype=np.bool_)
        self._lowest: Vector = np.full(n_tasks, np.nan)
        self._latest: Vector = np.full(n_tasks, np.nan)

    def by_task(self) -> Vector:
        """The lowest accuracy of each earlier task."""
        return np.where(self._started & ~self._current, self._lowest, np.nan)

    def _turn_to(self, learning: int | Sequence[int]) -> None:
        before = self._current
        super()._turn_to(learning)
        if self.span == "inclusive":
            np.fmin(self._lowest, self._latest, out=self._lowest, where=before & ~self._current)
        self._started |= self._current
        self._counted = self._started if self.span == "printed" else self._started & ~self._current

    def _observe(self, accuracies: Vector, *, updated: bool) -> None:
        if updated or self.span != "printed":
            np.fmin(self._lowest, accuracies, out=self._lowest, where=self._counted)
        self._latest[:] = accuracies


class WorstCaseAccuracy(StreamingMetric):
    """WC-ACC: the current task's accuracy and the lowest of earlier ones; see `curve.worst_case_accuracy`.

    Example:
        >>> metric = WorstCaseAccuracy(2)
        >>> metric.update(0, np.array([0.9, np.nan]))
        >>> metric.update(1, np.array([0.4, 0.2]))
        >>> round(metric.get(), 6)
        0.3
    """

    def __init__(self, n_tasks: int, *, span: Span = "after") -> None:
        super().__init__(n_tasks)
        self.span = span
        self._minimum = MinAccuracy(n_tasks, span=span)
        self._latest: Vector = np.full(n_tasks, np.nan)

    def by_task(self) -> Vector:
        """The accuracy of each current task, the lowest of each earlier one."""
        if np.isnan(self._latest[self._current]).all():
            return np.full(self.n_tasks, np.nan)
        return np.where(self._current, self._latest, self._minimum.by_task())

    def _observe(self, accuracies: Vector, *, updated: bool) -> None:
        self._minimum.update(self._learning, accuracies, updated=updated)
        self._latest[:] = accuracies


class _Windowed(StreamingMetric):
    """The largest change of each task within a window so far."""

    def __init__(self, n_tasks: int, *, window: int | None = 10, mode: Mode = "exact") -> None:
        super().__init__(n_tasks)
        pure.check_mode(mode)
        self.window = window
        self.mode: Mode = mode
        self._recent = _recent(n_tasks, window)
        self._largest: Vector = np.full(n_tasks, np.nan)

    def by_task(self) -> Vector:
        """The largest change of each task."""
        return self._largest.copy()


class WindowedForgetting(_Windowed):
    """WF^w: the largest drop of each task within a window so far; see `curve.windowed_forgetting`.

    Example:
        >>> metric = WindowedForgetting(1, window=2)
        >>> for accuracy in [0.9, 0.7, 0.6, 0.8]:
        ...     metric.update(0, np.array([accuracy]))
        >>> round(metric.get(), 6)
        0.2
    """

    def _observe(self, accuracies: Vector, *, updated: bool) -> None:
        self._recent.push(accuracies)
        np.fmax(self._largest, self._recent.highest() - accuracies, out=self._largest)


class WindowedPlasticity(_Windowed):
    """WP^w: the largest rise of each task within a window so far; see `curve.windowed_plasticity`.

    Example:
        >>> metric = WindowedPlasticity(1)
        >>> for accuracy in [0.5, 0.0, 1.0]:
        ...     metric.update(0, np.array([accuracy]))
        >>> metric.get()
        1.0
    """

    def _observe(self, accuracies: Vector, *, updated: bool) -> None:
        if self.mode == "exact":
            self._recent.push(-accuracies)
            rise = self._recent.highest() + accuracies
        else:
            self._recent.push(accuracies)
            present = ~np.isnan(accuracies)
            rise = np.full(self.n_tasks, np.nan)
            np.subtract(self._recent.highest(), self._recent.oldest(), out=rise, where=present)
        np.fmax(self._largest, rise, out=self._largest)


class LearningCurveArea(StreamingMetric):
    """LCA: the mean of a task's first β accuracies while it is learned; see `curve.learning_curve_area`.

    Example:
        >>> metric = LearningCurveArea(1, beta=2)
        >>> for accuracy in [0.1, 0.5, 0.9]:
        ...     metric.update(0, np.array([accuracy]))
        >>> round(metric.get(), 6)
        0.3
    """

    def __init__(self, n_tasks: int, *, beta: int = 10) -> None:
        super().__init__(n_tasks)
        pure.check_beta(beta)
        self.beta = beta
        self._number = np.zeros(n_tasks, dtype=np.int64)
        self._sum: Vector = np.zeros(n_tasks)

    def by_task(self) -> Vector:
        """The area of each task that has been evaluated β times."""
        return np.where(self._number >= self.beta, self._sum / self.beta, np.nan)

    def _observe(self, accuracies: Vector, *, updated: bool) -> None:
        counted = self._current & (self._number < self.beta) & ~np.isnan(accuracies)
        np.add(self._sum, accuracies, out=self._sum, where=counted)
        self._number += counted


class CurrentAccuracy(StreamingMetric):
    """The accuracy of the task being learned, now; see `curve.current_accuracy`.

    Example:
        >>> metric = CurrentAccuracy(2)
        >>> metric.update(1, np.array([0.6, 0.8]))
        >>> metric.get()
        0.8
    """

    def __init__(self, n_tasks: int) -> None:
        super().__init__(n_tasks)
        self._latest: Vector = np.full(n_tasks, np.nan)

    def by_task(self) -> Vector:
        """The accuracy of each task being learned."""
        return np.where(self._current, self._latest, np.nan)

    def _observe(self, accuracies: Vector, *, updated: bool) -> None:
        self._latest[:] = accuracies


class MatrixStream(StreamingMetric):
    """A metric of the accuracy matrix: stores the matrix and computes the value on demand.

    Args:
        n_tasks: The total number of tasks, including those not learned yet.
        metric: The metric; it must need only the matrix.
        options: The options of its function.

    Example:
        >>> from engram.metrics.registry import METRICS
        >>> stream = MatrixStream(2, METRICS["BWT"])
        >>> stream.update(0, np.array([0.9, np.nan]))
        >>> stream.update(1, np.array([0.5, 0.7]))
        >>> stream.get(), stream.by_task()
        (-0.4, array([-0.4,  nan]))
    """

    def __init__(self, n_tasks: int, metric: Metric, **options: object) -> None:
        super().__init__(n_tasks)
        self.metric, self.options = metric, options
        self._acc: Matrix = np.full((n_tasks, n_tasks), np.nan)
        self._newest = 0

    def get(self) -> float:
        """The metric now; NaN where it is undefined."""
        return self._value().final

    def by_task(self) -> Vector:
        """The values per task now; NaN if the metric has none."""
        values = self._value().by_task
        return np.full(self.n_tasks, np.nan) if values is None else values

    def _value(self) -> Value:
        acc = self._acc.copy()
        return compute(self.metric, [acc], self.options, acc)

    def _turn_to(self, learning: int | Sequence[int]) -> None:
        super()._turn_to(learning)
        self._newest = max(self._newest, int(self._current.nonzero()[0][-1]))

    def _observe(self, accuracies: Vector, *, updated: bool) -> None:
        """As `Curve.matrix`: the latest evaluation of all is the row of the newest task so far."""
        self._acc[self._newest] = accuracies


def stream_of(metric: Metric, n_tasks: int, **options: object) -> StreamingMetric | None:
    """The stream of a metric: its registered class, or a `MatrixStream`; None if it cannot be streamed.

    Example:
        >>> from engram.metrics.registry import METRICS
        >>> [type(stream_of(METRICS[name], 2)).__name__ for name in ("WC-ACC", "FORG", "RAA")]
        ['WorstCaseAccuracy', 'MatrixStream', 'NoneType']
    """
    keywords: Keywords = options
    stream = metric.stream_class()
    if stream is not None:
        return stream(n_tasks, **keywords)
    return MatrixStream(n_tasks, metric, **options) if metric.needs == ("matrix",) else None


class StreamingMetrics:
    """All metrics with a registered stream, updated together.

    Args:
        n_tasks: The total number of tasks, including those not learned yet.
        windows: The windows of WF and WP; None is the whole history.
        beta: The number of evaluations in the learning-curve area.
        span: Which evaluations count for min-ACC.
        mode: How windowed metrics look for the largest change.

    Example:
        >>> metrics = StreamingMetrics(2, windows=(10,), beta=1)
        >>> metrics.update(0, np.array([0.9, np.nan]))
        >>> metrics.update(1, np.array([0.5, 0.7]))
        >>> {name: round(value, 6) for name, value in metrics.get().items()}
        {'min-ACC': 0.5, 'WC-ACC': 0.6, 'WF10': 0.2, 'WP10': 0.0, 'LCA1': 0.8, 'current-ACC': 0.7,
         'gap-depth': 0.4, 'gap-area': 0.4, 'gap-duration': 1.0}
    """

    def __init__(
        self,
        n_tasks: int,
        *,
        windows: Sequence[int | None] = WINDOWS,
        beta: int = 10,
        span: Span = "after",
        mode: Mode = "exact",
    ) -> None:
        options = Options(windows=windows, beta=beta, span=span, mode=mode)
        self.streams: dict[str, StreamingMetric] = {
            name: stream(n_tasks, **chosen)
            for metric in all_metrics()
            if (stream := metric.stream_class()) is not None
            for name, chosen in options.variants(metric).items()
        }

    def update(self, learning: int | Sequence[int], accuracies: Vector, *, updated: bool = True) -> None:
        """Add one evaluation; see `StreamingMetric.update`."""
        for stream in self.streams.values():
            stream.update(learning, accuracies, updated=updated)

    def get(self) -> dict[str, float]:
        """Every metric now; NaN where it is undefined."""
        return {name: stream.get() for name, stream in self.streams.items()}

    def by_task(self) -> dict[str, Vector]:
        """Every metric now, for each task."""
        return {name: stream.by_task() for name, stream in self.streams.items()}


class _Recent(Protocol):
    """The latest evaluations of each task; tasks may be evaluated at different times."""

    def push(self, values: Vector) -> None: ...

    def highest(self) -> Vector: ...

    def oldest(self) -> Vector: ...


def _recent(n_tasks: int, window: int | None) -> _Recent:
    pure.check_window(window)
    return _Everything(n_tasks) if window is None else _Ring(n_tasks, window)


class _Ring:
    """The last `window` evaluations of each task, the oldest overwritten first."""

    def __init__(self, n_tasks: int, window: int) -> None:
        self._window = window
        self._values: Vector = np.full((window, n_tasks), -np.inf)
        self._number = np.zeros(n_tasks, dtype=np.int64)
        self._columns = np.arange(n_tasks)

    def push(self, values: Vector) -> None:
        present = (~np.isnan(values)).nonzero()[0]
        self._values[self._number[present] % self._window, present] = values[present]
        self._number[present] += 1

    def highest(self) -> Vector:
        highest: Vector = self._values.max(axis=0)
        return highest

    def oldest(self) -> Vector:
        place = np.where(self._number < self._window, 0, self._number % self._window)
        return self._values[place, self._columns]


class _Everything:
    """All evaluations of each task, of which only the first and the highest are kept."""

    def __init__(self, n_tasks: int) -> None:
        self._first: Vector = np.full(n_tasks, np.nan)
        self._highest: Vector = np.full(n_tasks, np.nan)

    def push(self, values: Vector) -> None:
        self._first = np.where(np.isnan(self._first), values, self._first)
        np.fmax(self._highest, values, out=self._highest)

    def highest(self) -> Vector:
        return self._highest

    def oldest(self) -> Vector:
        return self._first
