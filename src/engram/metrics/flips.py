"""Two models on the same samples: which answers were lost and gained, and what that shows.

A sample is *lost* (a negative flip) if the old model was right and the new one is wrong, and *gained* (a
positive flip) in the opposite case. All functions take arrays with one entry per slice of the samples, or
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engram.core.errors import InputError
from engram.metrics.arrays import Vector

Counts: TypeAlias = NDArray[np.int64]

LEVEL: Final = 0.05
POWER: Final = 0.8

# Bisection halves an interval of length 1 or 2; 60 steps reach the precision of floating-point numbers.
_HALVINGS: Final = 60


def exact_test(lost: ArrayLike, gained: ArrayLike) -> Vector:
    """The exact McNemar test of the hypothesis that losses and gains are equally likely.

    Given that a sample flipped, it was lost with probability ½ under the hypothesis. The p-value is
    two-sided: twice the binomial probability of at most min(lost, gained) of lost + gained flips, at most 1.

    Source: McNemar (1947), exact conditional version.

    Example:
        >>> exact_test([6, 5, 3, 0], [0, 0, 3, 0]).round(4).tolist()
        [0.0312, 0.0625, 1.0, 1.0]
    """
    from scipy.stats import binom

    losses, gains = _whole(lost), _whole(gained)
    p: Vector = np.minimum(1.0, 2.0 * binom.cdf(np.minimum(losses, gains), losses + gains, 0.5))
    return p


def change_interval(
    lost: ArrayLike, gained: ArrayLike, total: ArrayLike, *, level: float = LEVEL
) -> tuple[Vector, Vector]:
    """The score interval of the change of accuracy, (gained - lost) / total.

    It contains every change that a two-sided score test with this `level` does not reject. It stays within
    [-1, 1], and has a width above 0 even if nothing flipped.

    Args:
        lost: Samples that only the old model classified correctly.
        gained: Samples that only the new model classified correctly.
        total: All samples.
        level: One minus the confidence.

    Source: Tango (1998), Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design.

    Example:
        >>> low, high = change_interval([0, 4], [0, 1], [100, 100])
        >>> low.round(3).tolist(), high.round(3).tolist()
        ([-0.037, -0.09], [0.037, 0.019])
    """
    from scipy.stats import norm

    losses, gains, totals = _counts(lost, gained, total)
    bar = float(norm.ppf(1 - level / 2))
    change = (gains - losses) / totals

    def score(value: Vector) -> Vector:
        return _score(gains, losses, totals, value)

    # The score falls as the assumed change rises.
    low = _bisected(lambda value: score(value) <= bar, -np.ones_like(change), change)
    high = _bisected(lambda value: score(value) < -bar, change, np.ones_like(change))
    return low, high


def _score(gains: Vector, losses: Vector, totals: Vector, change: Vector) -> Vector:
    """Tango's statistic for an assumed change: its sign is that of the observed minus the assumed change."""
    a = 2 * totals
    b = -gains - losses + (2 * totals - gains + losses) * change
    c = -losses * change * (1 - change)
    # The most likely probability of a loss, given the change.
    loss = np.clip((np.sqrt(np.maximum(b * b - 4 * a * c, 0)) - b) / (2 * a), 0, 1)
    variance = totals * np.maximum(2 * loss + change * (1 - change), 0)
    distance = gains - losses - totals * change
    with np.errstate(divide="ignore", invalid="ignore"):
        z = distance / np.sqrt(variance)
    return np.where(distance == 0, 0.0, np.where(variance > 0, z, np.copysign(np.inf, distance)))


def share_bounds(count: ArrayLike, total: ArrayLike, *, level: float = LEVEL) -> tuple[Vector, Vector]:
    """One-sided exact bounds of a share, each with confidence 1 - `level`.

    Source: Clopper and Pearson (1934).

    Example:
        >>> low, high = share_bounds([0, 3], [100, 100])
        >>> low.round(4).tolist(), high.round(4).tolist()
        ([0.0, 0.0082], [0.0295, 0.0757])
    """
    from scipy.stats import beta

    counts, totals = np.broadcast_arrays(_whole(count), _whole(total))
    with np.errstate(invalid="ignore"):
        low = np.where(counts > 0, beta.ppf(level, counts, totals - counts + 1), 0.0)
        high = np.where(counts < totals, beta.ppf(1 - level, counts + 1, totals - counts), 1.0)
    return low, high


def smallest_drop(gained: ArrayLike, total: ArrayLike, *, level: float = LEVEL) -> Vector:
    """The smallest drop of accuracy that a test on this many samples would notice with probability `POWER`.

    The test is `exact_test` with this `level`. Gains are assumed to be as frequent as observed (at least
    half a sample), and the drop is added to the losses; the normal approximation is used, but never below
    the drop whose losses alone, without any gain, reach the level. NaN if no drop would be noticed.

    Example:
        >>> smallest_drop([0, 10, 0], [100, 1000, 3]).round(3).tolist()
        [0.086, 0.017, nan]
    """
    from scipy.stats import norm

    gains, totals = (np.asarray(value, dtype=np.float64) for value in np.broadcast_arrays(gained, total))
    rate = np.maximum(gains, 0.5) / totals
    to_reject, to_notice = float(norm.ppf(1 - level / 2)), float(norm.ppf(POWER))

    def noticed(drop: Vector) -> NDArray[np.bool_]:
        flips = np.minimum(2 * rate + drop, 1.0)
        under_null, under_drop = np.sqrt(flips / totals), np.sqrt(np.maximum(flips - drop**2, 0) / totals)
        return drop >= to_reject * under_null + to_notice * under_drop

    drop = _bisected(noticed, np.zeros_like(rate), np.ones_like(rate))
    fewest = np.ceil(1 - np.log2(level) - 1e-12) / totals
    drop = np.maximum(drop, fewest)
    return np.where((drop > 1) | ~noticed(np.ones_like(rate)), np.nan, drop)


def _bisected(reached: Callable[[Vector], NDArray[np.bool_]], low: Vector, high: Vector) -> Vector:
    """Where a condition that is false at first becomes true, between `low` and `high`."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        beyond = reached(middle)
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return high


def _whole(value: ArrayLike) -> Counts:
    return np.asarray(value, dtype=np.int64)


def _counts(lost: ArrayLike, gained: ArrayLike, total: ArrayLike) -> tuple[Vector, Vector, Vector]:
    losses, gains, totals = np.broadcast_arrays(
        *(np.asarray(v, dtype=np.float64) for v in (lost, gained, total))
    )
    if np.any(totals < 1) or np.any(losses < 0) or np.any(gains < 0) or np.any(losses + gains > totals):
        raise InputError("lost and gained samples must be at least 0 and together at most the total")
    return losses, gains, totals
