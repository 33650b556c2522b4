"""Extremes on subsets: without the bias of a minimum or maximum of noisy estimates, and with an interval.

The minimum of many accuracies that were each estimated from a subset is too low, and the largest drop too
large, because the extreme also selects noise. Both can be measured: on random parts of the subset, the same
metric is biased further, by as much as the subset itself is biased relative to the whole test set. Samples
are drawn once for all evaluations, as the subset was; drawn per evaluation, noise would look like drops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.jsons import JsonMapping, JsonObject
from engram.core.trace import Trace
from engram.metrics.anchored import Correction
from engram.metrics.arrays import Mask, Matrix, Vector, row_means
from engram.metrics.computing import compute
from engram.metrics.history import Curve, History, Phases
from engram.metrics.inputs import Inputs, gather_inputs
from engram.metrics.registry import NEEDS, Keywords, Metric, Options, computed

REPLICATES: Final = 100
"""Random parts of the subset; their mean then adds 1 % to the variance of the corrected value."""

LEAST: Final = 10
"""Samples of each task below which nothing is said about the others."""

Z95: Final = 1.959964
DOUBT: Final = 0.5
"""The variance of a correction, in units of its square: corrected values vary more than measured ones."""

REDRAWN: Final = "the samples were drawn anew for every evaluation, which nothing can correct"
REDRAW_WARNING: Final = (
    "redraw evaluates other samples every time, and this noise looks like dips and drops: with 100 samples, "
    "min-ACC is up to 4 points too low and WF10 up to 8 points too high, several times as much as with a "
    "fixed subset, and no correction is possible; use it only to repeat De Lange et al. (2023)"
)

_SEED: Final = 20_231
_BLOCK: Final = 2**22
_TABLES: Final = 2**23
"""The most answers that are unpacked at a time, and the most bytes of accuracies."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An extreme on the whole test sets, as estimated from subsets.

    Attributes:
        corrected: The value without the bias of a subset.
        low: The lower end of the 95 % interval.
        high: The upper end.
    """

    corrected: float
    low: float
    high: float


PARTS: Final = ("corrected", "low", "high")
"""The numbers of an estimate, as files and tables name them."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """The extremes of one run, as estimates of their values on the whole test sets.

    Attributes:
        values: One estimate per metric, by the names used in results.
        why: Why there are none, if so.
    """

    values: Mapping[str, Estimate] = field(default_factory=dict)
    why: str = ""

    @property
    def exact(self) -> bool:
        """Whether whole test sets were evaluated, so that nothing is uncertain."""
        return bool(self.values) and all(value.low == value.high for value in self.values.values())

    def as_json(self) -> JsonObject:
        """The estimates as JSON, or the reason for their absence.

        Example:
            >>> Extremes({"WF10": Estimate(0.1, 0.05, 0.15)}).as_json()
            {'values': {'WF10': {'corrected': 0.1, 'low': 0.05, 'high': 0.15}}, 'why': ''}
        """
        values = {name: {part: getattr(value, part) for part in PARTS} for name, value in self.values.items()}
        return {"values": values, "why": self.why}

    def columns(self) -> dict[str, float]:
        """The estimates as columns of a table.

        Example:
            >>> Extremes({"WF10": Estimate(0.1, 0.05, 0.15)}).columns()
            {'WF10 corrected': 0.1, 'WF10 low': 0.05, 'WF10 high': 0.15}
        """
        return {
            f"{name} {part}": getattr(value, part) for name, value in self.values.items() for part in PARTS
        }

    @classmethod
    def of_json(cls, value: JsonMapping) -> Extremes:
        """The estimates that `as_json` wrote.

        Example:
            >>> Extremes.of_json(Extremes(why="no bits").as_json())
            Extremes(values={}, why='no bits')
        """
        values = {
            str(name): Estimate(float(parts["corrected"]), float(parts["low"]), float(parts["high"]))
            for name, parts in value["values"].items()
        }
        return cls(values, str(value["why"]))


def estimate_extremes(
    source: Trace | Curve | Matrix,
    *,
    sizes: Mapping[int, int] | None = None,
    redrawn: bool = False,
    ends: Curve | Trace | None = None,
    classes_seen: Sequence[int] | None = None,
    phases: Phases | None = None,
    options: Options | None = None,
    replicates: int = REPLICATES,
) -> Extremes:
    """Every extreme of a trace, corrected for the bias of a subset, with its 95 % interval.

    With n of N samples of a task, n / (2 − n/N) of the n are drawn at random, without replacement: half of
    them where N is large or unknown. They differ from the subset as the subset differs from the whole test
    set. With θ the metric on the subset and θ* its mean over such draws, the corrected value is 2θ − θ*, and
    the interval is 1.96 standard deviations to both sides: those of the draws, but at least those of two
    errors in a task, and half the squared correction added. Tasks are drawn independently.

    Where samples have two levels, θ is the metric of the corrected curve (see `engram.metrics.anchored`).
    Both levels are drawn, each as said above and independently of the other, and each pair of draws is
    corrected in the same way: what anchors tell is not uncertain, but for what all samples at an anchor are
    relative to the whole test set.

    The interval is about the whole test sets: where they were evaluated, it has no width. It does not cover
    what another seed or another test set would change. The draws are the same every time, and do not depend
    on the order of samples.

    Args:
        source: The trace, with bits of the same samples at every evaluation of a task; anything else has no
            extremes to correct, and `why` says so.
        sizes: The number of samples in the whole test set of each task (default: unknown, taken as much
            larger than the subset).
        redrawn: Whether the samples were drawn anew for every evaluation; there is no correction then.
        ends: Task ends on the whole test sets; extremes among these are exact.
        classes_seen: As for `engram.metrics.summary.summarise`.
        phases: As for `summarise`.
        options: The options of the metrics, such as windows.
        replicates: The number of draws.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> trace = Trace()
        >>> for step in range(1, 31):
        ...     learning, right = int(step > 10), draw.random(100) < 0.8
        ...     trace.add(step=step, learning=learning, task=0, right=right)
        >>> lowest = estimate_extremes(trace).values["min-ACC"]
        >>> min(trace.correct[10:]), round(100 * lowest.corrected, 1), lowest.low < 0.8 < lowest.high
        (73, 76.8, True)
    """
    if not isinstance(source, Trace):
        return Extremes(why=NEEDS["bits"])
    reason = REDRAWN if redrawn else _unusable(source)
    if reason:
        return Extremes(why=reason)
    curve = Curve.of_trace(source, phases=phases)
    task_ends = Curve.of_trace(ends, phases=phases) if isinstance(ends, Trace) else ends
    columns = range(len(curve.tasks))
    samples = [_Samples.of(source, curve, column, sizes or {}) for column in columns]
    anchors = None
    if source.anchors is not None and len(source.anchors):
        anchors = [_Samples.of(source.anchors, curve, column, sizes or {}) for column in columns]
    if any(not part.whole and part.n < LEAST for part in samples):
        return Extremes(why=f"needs at least {LEAST} samples of each task, or all of them")
    variants = _variants(options or Options())
    inputs = gather_inputs(curve, ends=task_ends, classes_seen=classes_seen)
    measured = _measured(inputs, variants)
    if all(part.whole for part in samples):
        return Extremes({name: Estimate(value, value, value) for name, value in measured.items()})
    variants = {name: variants[name] for name in measured}
    pieces = [
        _of_draws(tables, curve, inputs, variants, exact_ends=task_ends is not None)
        for tables in _redraws(curve, samples, anchors, replicates)
    ]
    floors = np.array([part.least_variance for part in samples])
    # Those that are forgotten, if any can be.
    earlier = floors[: max(1, len(floors) - 1)]
    estimates = {}
    for name, value in measured.items():
        metric, drawn = variants[name][0], np.concatenate([piece[name] for piece in pieces])
        if _by_task(metric):
            variance = _mean_variance(drawn, floors)
        elif task_ends is not None and "curve" not in metric.needs:
            variance = 0.0
        else:
            variance = max(float(drawn.var(ddof=1)), float(earlier.sum()) / len(earlier) ** 2)
        estimates[name] = _estimate(value, drawn, variance, metric.extreme)
    # The function of a plugin may fail on a draw.
    return Extremes({name: value for name, value in estimates.items() if not np.isnan(value.corrected)})


def mean_extremes(runs: Sequence[Extremes]) -> Extremes:
    """The extremes of several runs: the means of the corrected values and of the ends of their intervals.

    The mean of intervals is an interval for the mean, whether the runs drew the same subsets or not. If one
    run has no estimate of a metric, there is none of the mean.

    Example:
        >>> mean_extremes([Extremes({"WF10": Estimate(0.1, 0.0, 0.2)}), Extremes(why="no bits")])
        Extremes(values={}, why='no bits')
    """
    why = next((run.why for run in runs if run.why), "")
    names = [name for name in runs[0].values if all(name in run.values for run in runs)] if runs else []
    tables = {name: [run.values[name] for run in runs] for name in names}
    return Extremes({name: _mean_estimate(values) for name, values in tables.items()}, why)


def _mean_estimate(values: Sequence[Estimate]) -> Estimate:
    n = len(values)
    return Estimate(
        sum([value.corrected for value in values]) / n,
        sum([value.low for value in values]) / n,
        sum([value.high for value in values]) / n,
    )


def _unusable(trace: Trace) -> str:
    """Why there is nothing to draw from; empty if there is."""
    if trace.anchors is not None and len(trace.anchors) and (reason := _unusable(trace.anchors)):
        return reason
    if not len(trace) or not all(trace.bits):
        return NEEDS["bits"]
    totals: dict[int, int] = {}
    for task, total in zip(trace.task, trace.total, strict=True):
        if totals.setdefault(task, total) != total:
            return (
                f"task {task} was evaluated on {totals[task]} samples and on {total}: "
                "a correction needs the same samples at every evaluation"
            )
    return ""


def _variants(options: Options) -> dict[str, tuple[Metric, Keywords]]:
    """The extremes, by the names used in results, with the options of their functions."""
    return {
        name: (metric, options.variants(metric)[name])
        for name, metric in computed(options).items()
        if metric.extreme is not None
    }


def _measured(inputs: Inputs, variants: Mapping[str, tuple[Metric, Keywords]]) -> dict[str, float]:
    """The extremes that are defined."""
    values: dict[str, float] = {}
    for name, (metric, keywords) in variants.items():
        if inputs.lacks(metric):
            continue
        try:
            value = compute(metric, inputs.arguments(metric), keywords, inputs.matrix).final
        except InputError:
            if metric.is_ours:
                raise
            continue
        if not np.isnan(value):
            values[name] = value
    return values


def _of_draws(
    tables: Matrix,
    curve: Curve,
    inputs: Inputs,
    variants: Mapping[str, tuple[Metric, Keywords]],
    *,
    exact_ends: bool,
) -> dict[str, Matrix]:
    """The extremes of each of several `tables[draw, evaluation, task]`; NaN where one is undefined.

    One row per draw, and one column per task where the extreme is their mean, else a single column.

    Args:
        tables: The accuracies.
        curve: The curve of all samples at hand.
        inputs: What metrics of that curve are given.
        variants: The extremes.
        exact_ends: Whether task ends were evaluated on whole test sets, so that no draw changes them.
    """
    # All draws are columns of one curve.
    alone = {name: variant for name, variant in variants.items() if _by_task(variant[0])}
    draws, evaluations, tasks = tables.shape
    columns = np.arange(tasks * draws).reshape(tasks, draws)
    wide = Curve(
        step=curve.step,
        learning=curve.learning,
        accuracy=tables.transpose(1, 2, 0).reshape(evaluations, -1),
        phases=tuple(tuple(columns[list(phase)].ravel().tolist()) for phase in curve.phases),
    )
    values: dict[str, Matrix] = {}
    for name, (metric, keywords) in alone.items():
        history = metric(wide, **keywords)
        assert isinstance(history, History)
        values[name] = history.by_task.reshape(tasks, draws).T
    others = {name: variant for name, variant in variants.items() if name not in alone}
    needed = {need for metric, _ in others.values() for need in metric.needs}
    ends = curve.after_each_task(tables.transpose(1, 2, 0))
    one_by_one = []
    for draw, table in enumerate(tables):
        acc = inputs.matrix if exact_ends else ends[..., draw].copy()
        drawn: dict[str, object] = {"matrix": acc}
        if "curve" in needed:
            drawn["curve"] = replace(curve, accuracy=table, total=None)
        given = replace(inputs, matrix=acc, values={**inputs.values, **drawn})
        one_by_one.append(_measured(given, others))
    return values | {name: np.array([[one.get(name, np.nan)] for one in one_by_one]) for name in others}


def _by_task(metric: Metric) -> bool:
    """Whether a metric is a mean over tasks, each of whose values depends on the column of the task alone."""
    return metric.is_ours and metric.needs == ("curve",)


def _mean_variance(drawn: Matrix, floors: Vector) -> float:
    """The variance of a mean over tasks: one row per draw, one column per task, at least a floor for each."""
    defined = ~np.isnan(drawn).any(axis=0)
    by_task = np.maximum(drawn[:, defined].var(axis=0, ddof=1), floors[defined])
    return float(by_task.sum() / defined.sum() ** 2)


def _estimate(value: float, drawn: Matrix, variance: float, bounds: tuple[float, float] | None) -> Estimate:
    """The corrected value and its interval, within the range of the metric.

    Args:
        value: The value on all samples at hand.
        drawn: Its values on the draws: one row per draw, one column per task if it is their mean.
        variance: The variance of the value over subsets.
        bounds: The range of the metric.
    """
    # Differences, so that draws without any have no bias, not even of rounding.
    correction = -float((row_means(drawn) - value).mean())
    margin = Z95 * math.sqrt(variance + DOUBT * correction**2)
    least, most = bounds or (-math.inf, math.inf)
    low, middle, high = (
        min(max(value + correction + change, least), most) for change in (-margin, 0.0, margin)
    )
    return Estimate(middle, low, high)


@dataclass(frozen=True, slots=True, eq=False)
class _Samples:
    """The answers to the samples of one task.

    Attributes:
        evaluations: The evaluations at which it was evaluated.
        packed: The bits of each of these evaluations.
        n: How many samples there are.
        size: How many the whole test set has; infinite if that is unknown.
    """

    evaluations: NDArray[np.int64]
    packed: NDArray[np.uint8]
    n: int
    size: float

    @classmethod
    def of(cls, trace: Trace, curve: Curve, column: int, sizes: Mapping[int, int]) -> _Samples:
        task = int(curve.tasks[column])
        rows = np.flatnonzero(np.asarray(trace.task) == task)
        n = trace.total[rows[0]] if rows.size else 0
        size = sizes.get(task, np.inf)
        if size < n:
            raise InputError(
                f"the whole test set of task {task} must have at least the {n} samples evaluated, got {size}"
            )
        packed = np.frombuffer(b"".join(trace.bits[row] for row in rows), dtype=np.uint8)
        return cls(
            evaluations=np.searchsorted(curve.step, np.asarray(trace.step)[rows]),
            packed=packed.reshape(len(rows), -1) if rows.size else packed.reshape(0, 0),
            n=n,
            size=size,
        )

    @property
    def whole(self) -> bool:
        """Whether these are all samples of the task."""
        return self.n == self.size or not len(self.evaluations)

    @property
    def drawn(self) -> int:
        """The number of samples in a draw that adds as much noise as there is: 1/m − 1/n = 1/n − 1/N."""
        return int(self.n / (2 - self.n / self.size))

    @property
    def least_variance(self) -> float:
        """The variance of an accuracy with two errors among the samples; fewer say no more than that."""
        return 0.0 if self.whole else 2 * (1 - self.n / self.size) / self.n**2

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        """The bits, some evaluations at a time."""
        height = max(1, _BLOCK // max(self.n, 1))
        for first in range(0, len(self.packed), height):
            yield np.unpackbits(self.packed[first : first + height], axis=1, count=self.n)

    def draws(self, seeds: Sequence[int], replicates: int) -> Mask:
        """The samples of each draw: one row per sample, one column per draw.

        Samples with other answers change places with their answers, so that their order does not matter.
        """
        draw = np.random.default_rng([_SEED, *seeds])
        balanced = _balanced_draws(self.n, self.drawn, replicates, draw)
        keys: NDArray[np.uint64] = np.zeros(self.n, dtype=np.uint64)
        for bits in self.blocks():
            marks = draw.integers(0, 2**64, size=len(bits), dtype=np.uint64)
            keys += marks @ bits.astype(np.uint64)
        chosen: Mask = np.empty((self.n, replicates), dtype=np.bool_)
        chosen[np.argsort(keys, kind="stable")] = balanced
        return chosen


def _balanced_draws(n: int, size: int, replicates: int, draw: np.random.Generator) -> Mask:
    """Random draws of `size` of `n` in which all samples occur equally often, as nearly as possible.

    Means over such draws are those over all samples, so that what has no bias is hardly changed: samples are
    left out in a random order, and again in another random order when all have been left out once.

    Example:
        >>> _balanced_draws(4, 2, 100, np.random.default_rng(0)).sum(axis=1)
        array([50, 50, 50, 50])
    """
    chosen: Mask = np.ones((n, replicates), dtype=np.bool_)
    queue: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    for column in range(replicates):
        if len(queue) < n - size:
            order = draw.permutation(n)
            # Those still waiting come last, so that no draw leaves out a sample twice.
            waiting = np.isin(order, queue)
            queue = np.concatenate([queue, order[~waiting], order[waiting]])
        chosen[queue[: n - size], column] = False
        queue = queue[n - size :]
    return chosen


def _redraws(
    curve: Curve, samples: Sequence[_Samples], anchors: Sequence[_Samples] | None, replicates: int
) -> Iterator[Matrix]:
    """Accuracies on random parts of the samples: `tables[draw, evaluation, task]`, some draws at a time."""
    levels = [_Drawn.of(part, (column,), replicates) for column, part in enumerate(samples)]
    wholes: list[_Drawn | None] = [None] * len(levels)
    if anchors is not None:
        wholes = [_Drawn.of(part, (column, 1), replicates) for column, part in enumerate(anchors)]
    together = max(1, _TABLES // max(1, curve.accuracy.nbytes))
    for first in range(0, replicates, together):
        some = slice(first, min(first + together, replicates))
        tables = np.repeat(curve.accuracy[np.newaxis], some.stop - some.start, axis=0)
        for column, (level, whole) in enumerate(zip(levels, wholes, strict=True)):
            if level.mask is None:
                continue
            table = level.accuracies(some)
            if whole is not None and len(whole.samples.evaluations):
                at = level.samples.evaluations, whole.samples.evaluations
                correction = Correction.between(*(curve.step[rows] for rows in at))
                # The curve has what was asked at anchors.
                asked = curve.accuracy[at[1], column, np.newaxis]
                if whole.mask is not None:
                    asked = whole.accuracies(some)
                table = correction.apply(table, asked, level.noise(correction, some, whole.samples.n))
            tables[:, level.samples.evaluations, column] = table.T
        yield tables


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """The samples of one task, and random parts of them; without a mask, all of them every time."""

    samples: _Samples
    mask: Mask | None

    @classmethod
    def of(cls, samples: _Samples, seeds: Sequence[int], replicates: int) -> _Drawn:
        return cls(samples, None if samples.whole else samples.draws(seeds, replicates))

    def accuracies(self, some: slice) -> Matrix:
        """The accuracies on some of the draws: one row per evaluation of the task, one column per draw."""
        assert self.mask is not None
        # In 32 bits, counts are exact up to 16 million samples.
        weights = self.mask[:, some].astype(np.float32)
        right = [bits.astype(np.float32) @ weights for bits in self.samples.blocks()]
        return np.concatenate(right).astype(np.float64) / self.samples.drawn

    def noise(self, correction: Correction, some: slice, whole: int) -> Matrix:
        """The variance of deviations from the line between anchors, on some of the draws."""
        assert self.mask is not None
        samples = self.samples
        right = np.concatenate(list(samples.blocks()))
        weights = self.mask[:, some].astype(np.float32) / np.float32(samples.drawn)
        return correction.noise(right, weights) * (1 - samples.n / whole) / samples.drawn
