"""Two methods on the same seeds: tests of their difference, effect size, and the number of seeds required.

All functions take one row of differences per pair of methods, one difference per seed, without NaN. With the
same seed both methods have the same initial weights and the same order of data, so that much of the noise
cancels in the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, Literal, get_args

import numpy as np

from engram.core.errors import unknown_name
from engram.metrics.arrays import Matrix, Vector

Test = Literal["sign-flip", "t"]
"""How a difference is tested: assuming symmetric differences, or assuming normal ones."""

LEVEL: Final = 0.05
POWER: Final = 0.8

# Up to 2^19 sums are counted; beyond that, 50,000 random ones are accurate enough.
EXACT_SEEDS: Final = 20
DRAWS: Final = 50_000

# Up to 2^11 sums are computed for many pairs in one matrix product.
_ENUMERATED_AT_ONCE: Final = 12

# Differences have rounding errors; sums that agree to nine digits are ties.
_ROUNDING: Final = 1e-9
_MOST_SEEDS: Final = 100_000


def least_sd(mean: Vector, resolution: float) -> Vector:
    """The least SD of differences of these sizes between accuracies of this resolution.

    If two methods differ by k of m test samples, there are at least k samples on which only one of them is
    right. If the methods are equally good, each of these could as well have been the other's: the sum of at
    least k independent signs has a variance of at least k. The difference k/m thus has a variance of at least
    k/m², which is the difference times the resolution 1/m; at least that of one sample, 1/m².

    Example:
        >>> least_sd(np.array([0.02, 0.0]), 0.001).round(6)
        array([0.004472, 0.001   ])
    """
    return np.asarray(np.sqrt(resolution * np.maximum(np.abs(mean), resolution)))


def flip_all_signs(rows: Matrix) -> Vector:
    """The p-values of the exact sign-flip test, one per row of differences."""
    n = rows.shape[1]
    if n == 0:
        return np.ones(len(rows))
    bars = _bars(rows)
    p = np.ones(len(rows))
    # A sum and its mirror image are equally far from 0, so the first sign can be fixed.
    if n <= _ENUMERATED_AT_ONCE:
        signs = _all_signs(n, first_fixed=True)
        for part in _parts(len(rows), len(signs)):
            p[part] = (np.abs(rows[part] @ signs.T) >= bars[part, None]).mean(axis=1)
        return p
    # The sums of two halves: for each of one, those of the other that reach the bar are counted by bisection.
    half = n // 2
    first, second = _all_signs(half, first_fixed=True), _all_signs(n - half)
    for number, (row, bar) in enumerate(zip(rows, bars, strict=True)):
        if bar > 0:
            one, other = np.sort(first @ row[:half]), np.sort(second @ row[half:])
            above = other.size * one.size - np.searchsorted(other, bar - one, side="left").sum()
            below = np.searchsorted(other, -bar - one, side="right").sum()
            p[number] = (above + below) / (other.size * one.size)
    return p


def flip_random_signs(rows: Matrix, *, draws: int = DRAWS, seed: int = 0) -> Vector:
    """The p-values of the sign-flip test by random signs, the same for every row of differences."""
    random = np.random.default_rng(seed)
    plus = np.array([random.random(draws) < 0.5 for _ in range(rows.shape[1])])
    bars, reached = _bars(rows), np.zeros(len(rows))
    for part in _parts(draws, len(rows)):
        sums = rows @ np.where(plus[:, part], 1.0, -1.0)
        reached += (np.abs(sums) >= bars[:, None]).sum(axis=1)
    return (1 + reached) / (1 + draws)


def t_all(rows: Matrix, resolution: float = 0.0) -> Vector:
    """The p-values of the paired t test, one per row of differences."""
    n = rows.shape[1]
    if n < 2:
        return np.ones(len(rows))

    from scipy.special import stdtr

    mean, sd = moments(rows)
    sd = np.maximum(sd, least_sd(mean, resolution))
    t = np.divide(mean, sd / math.sqrt(n), out=np.zeros_like(mean), where=sd > 0)
    p = np.where(mean == 0, 1.0, smallest_p(n))
    p[sd > 0] = 2 * stdtr(n - 1, -np.abs(t[sd > 0]))
    return p


def _bars(rows: Matrix) -> Vector:
    """How far from 0 a sum must be to count; sums that agree to nine digits are ties."""
    return np.asarray(np.abs(rows.sum(axis=1)) - _ROUNDING * np.abs(rows).sum(axis=1))


def _all_signs(n: int, *, first_fixed: bool = False) -> Matrix:
    """All assignments of n signs, one per row; with the first one fixed, half as many."""
    free = n - first_fixed
    bits = (np.arange(2**free)[:, None] >> np.arange(free)) & 1
    signs = 1.0 - 2.0 * bits
    fixed = np.ones((len(signs), int(first_fixed)))
    return np.asarray(np.hstack([fixed, signs]), dtype=np.float64)


def _parts(length: int, per_entry: int) -> Iterator[slice]:
    """Slices of a length that keep arrays of `per_entry` numbers per entry at about 30 MB."""
    size = max(1, 4_000_000 // max(1, per_entry))
    return (slice(start, start + size) for start in range(0, length, size))


def p_values(rows: Matrix, test: Test, *, resolution: float = 0.0) -> tuple[Vector, bool]:
    """The two-sided p-values of a test, one per row of differences, and whether they are exact.

    **sign-flip** tests the hypothesis that the differences are symmetric about 0. If the two methods are
    exchangeable, the difference of a seed could as well have had the other sign. The p-value is the share of
    all 2^n sign assignments whose sum is at least as far from 0 as the observed one (including the observed
    one). For symmetric differences p ≤ α has probability at most α for any number of seeds, whatever their
    distribution otherwise. Without differences, or if all are 0, p is 1.

    Symmetry is assumed, and equal means alone are not enough. If one method is slightly better on most seeds
    and collapses on few, so that both have the same mean, the test finds a difference in 11 to 53 % of cases
    with six to ten seeds, because those without a collapse all have the same sign. Such a finding is
    about the typical seed, not about the mean.

    Up to `EXACT_SEEDS` seeds all assignments are counted. With more seeds, `DRAWS` random ones are used
    and the p-value is (1 + number at least as far) / (1 + draws), which keeps the level as well.

    **t** is the paired t test of the hypothesis that the differences are normal with mean 0:
    t = mean / (s/√n) with the sample SD s (divisor n - 1) and n - 1 degrees of freedom. For fewer than two
    seeds p is 1.

    Accuracies are multiples of 1/m for m test samples, so a few differences may agree by chance, and s is
    then too small. `least_sd` has the lower bound of s that follows from the resolution 1/m. Where
    the resolution is unknown and s is 0, only the signs are left to test: p is 2 / 2^n (`smallest_p`).

    Args:
        rows: One row of differences per pair, one column per seed.
        test: The test.
        resolution: The change of the metric by one test sample, for the t test; 0 where that is unknown.

    Raises:
        InputError: There is no such test.

    Source: Fisher, The design of experiments, section 21; Phipson and Smyth (2010) for the drawn p-value.

    Example:
        >>> # Only + + + and - - - reach a sum of 0.6: 2 of 8. All reach a sum of 0.
        >>> p, exact = p_values(np.array([[0.1, 0.2, 0.3], [0.1, 0.2, -0.3]]), "sign-flip")
        >>> p.tolist(), exact
        ([0.25, 1.0], True)
        >>> p_values(np.array([[0.1, 0.2, 0.3]]), "t")[0].round(6)
        array([0.07418])
        >>> equal = np.array([[0.02, 0.02]])
        >>> p_values(equal, "t")[0], p_values(equal, "t", resolution=0.001)[0].round(6)
        (array([0.5]), array([0.099832]))
    """
    if test not in get_args(Test):
        raise unknown_name("test", test, get_args(Test))
    if test == "t":
        return t_all(rows, resolution), True
    exact = rows.shape[1] <= EXACT_SEEDS
    return (flip_all_signs if exact else flip_random_signs)(rows), exact


def holm(p_values: Sequence[float] | Vector) -> list[float]:
    """P-values corrected for multiple tests by Holm's method.

    In ascending order the smallest of m is multiplied by m, the next by m - 1, and so on; each is then raised
    to at least the previous one and capped at 1. This controls the family-wise error rate for any dependence
    between the tests.

    Source: Holm, A simple sequentially rejective multiple test procedure (1979).

    Example:
        >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]  # 0.01 · 3, 0.03 · 2, then max(0.06, 0.04 · 1)
        [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    steps = np.arange(len(values), 0, -1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * steps))
    return [float(p) for p in corrected]


def effects(rows: Matrix, resolution: float = 0.0) -> tuple[Vector, Vector]:
    """The sizes d_z and g_z of each row of differences relative to their standard deviation over seeds.

    d_z = mean / s with the sample SD s (divisor n - 1): Cohen's d_z. It is biased upwards for few seeds, so
    g_z = d_z · J with Hedges' exact correction J = Γ(k/2) / (√(k/2) · Γ((k - 1)/2)), k = n - 1. d_z needs two
    seeds and g_z three; otherwise NaN. If all differences are equal, both are infinite, or 0 if all
    differences are 0. With a resolution, no SD is below `least_sd`.

    Source: Lakens (2013) for d_z; Hedges (1981) for the correction.

    Example:
        >>> d_z, g_z = effects(np.array([[0.1, 0.2, 0.3]]))
        >>> d_z.round(6), g_z.round(6)
        (array([2.]), array([1.128379]))
    """
    n = rows.shape[1]
    if n < 2:
        return np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    mean, sd = moments(rows)
    sd = np.maximum(sd, least_sd(mean, resolution))
    endless = np.where(mean == 0, 0.0, np.copysign(np.inf, mean))
    d_z = np.divide(mean, sd, out=endless, where=sd > 0)
    if n < 3:
        return d_z, np.full(len(rows), np.nan)
    k = n - 1
    shrink = math.exp(math.lgamma(k / 2) - math.lgamma((k - 1) / 2)) / math.sqrt(k / 2)
    return d_z, d_z * shrink


def smallest_p(n: int) -> float:
    """The smallest two-sided p-value that a sign-flip test of n seeds can have: 2 / 2^n.

    Two of the 2^n sign assignments always count: the observed one and its mirror image.

    Example:
        >>> smallest_p(5), smallest_p(6)
        (0.0625, 0.03125)
    """
    return min(1.0, 2.0 ** (1 - n))


def fewest_seeds(*, tests: int = 1, level: float = LEVEL) -> int:
    """The fewest seeds with which a sign-flip test can reach the level after Holm's correction.

    The smallest n with tests · 2 / 2^n ≤ level; with fewer seeds no difference can be significant.

    Example:
        >>> fewest_seeds(), fewest_seeds(tests=3), fewest_seeds(tests=10)
        (6, 7, 9)
    """
    return next(n for n in range(1, _MOST_SEEDS) if tests * smallest_p(n) <= level)


def seeds_for(effect: Vector, *, test: Test, tests: int, level: float) -> Vector:
    """The total numbers of seeds needed to detect effects of these sizes.

    The smallest n for which a paired t test detects an effect with a probability of `POWER`, if that is the
    true one and differences are normal. With several tests it must be detected at level / tests, which is
    sufficient for Holm's correction whatever the other tests yield. The power is that of the noncentral t
    distribution in Johnson and Welch's normal approximation,
    Φ((g_z √n - t (1 - 1/4k)) / √(1 + t²/2k)) with k = n - 1 and t the two-sided critical value.

    The sign-flip test is about as powerful, but needs at least `fewest_seeds`; with exactly that many it
    detects a difference only if all signs agree, which has probability Φ(g_z)^n.

    An effect estimated from few seeds is uncertain: the result is an order of magnitude.

    Args:
        effect: The sizes of the effects, |g_z|.
        test: The test to be used.
        tests: The number of tests that are corrected together.
        level: The significance level of the corrected p-value.

    Returns:
        The numbers of seeds; infinite if there is no effect or more than 100,000 seeds would be needed, and
        NaN where the effect is, as for fewer than three seeds, from which the spread cannot be estimated.

    Example:
        >>> seeds_for(np.array([0.5, 0.0, np.inf]), test="t", tests=1, level=0.05)
        array([34., inf,  6.])
        >>> g_z = effects(np.array([[0.03, 0.01, -0.01, 0.02, 0.0]]))[1]
        >>> seeds_for(g_z, test="sign-flip", tests=1, level=0.05)
        array([33.])
        >>> seeds_for(g_z, test="sign-flip", tests=10, level=0.05)
        array([57.])
    """
    from scipy.special import ndtr, ndtri, stdtrit

    # Where all differences are the same, the t test counts signs, too.
    signs = fewest_seeds(tests=tests, level=level)
    fewest = signs if test == "sign-flip" else 2
    tail = 1 - level / tests / 2
    # The number needed if the spread were known; with an estimated spread it is never smaller.
    sure = ndtri(tail) + ndtri(POWER)
    at_least = np.divide(sure, effect, out=np.full_like(effect, np.inf), where=effect > 0) ** 2
    needed = np.where(np.isnan(effect), np.nan, np.where(at_least > _MOST_SEEDS, np.inf, signs))
    undecided = np.flatnonzero(np.isfinite(effect) & (at_least <= _MOST_SEEDS))
    n = np.maximum(np.ceil(at_least[undecided]), max(fewest, 2))
    while undecided.size:
        k = n - 1
        critical = stdtrit(k, tail)
        reach = effect[undecided] * np.sqrt(n) - critical * (1 - 1 / (4 * k))
        achieved = ndtr(reach / np.sqrt(1 + critical**2 / (2 * k)))
        if test == "sign-flip":
            all_agree = ndtr(effect[undecided]) ** n
            achieved = np.where(n == fewest, np.minimum(achieved, all_agree), achieved)
        enough = achieved >= POWER
        needed[undecided[enough]] = n[enough]
        undecided, n = undecided[~enough], n[~enough] + 1
    return needed


def moments(rows: Matrix) -> tuple[Vector, Vector]:
    """Mean and sample SD of each row; values within rounding error of 0 are exactly 0."""
    mean, sd, scale = rows.mean(axis=1), rows.std(axis=1, ddof=1), np.abs(rows).max(axis=1)
    small = _ROUNDING * scale
    return np.where(np.abs(mean) > small, mean, 0.0), np.where(sd > small, sd, 0.0)
