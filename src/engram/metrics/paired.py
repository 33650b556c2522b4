"""Two methods on the same seeds: tests of their difference, effect size, and the number of seeds required.

All functions take one difference per seed. With the same seed both methods have the same initial weights and
the same order of data, so that much of the noise cancels in the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from engram.core.errors import InputError, unknown_name
from engram.metrics.arrays import Vector

Test = Literal["sign-flip", "t"]
"""How a difference is tested: without a distributional assumption, or assuming normal differences."""

LEVEL: Final = 0.05
POWER: Final = 0.8

# Up to 2^19 sums are enumerated; beyond that, 50,000 random ones are accurate enough.
EXACT_SEEDS: Final = 20
DRAWS: Final = 50_000

# Differences have rounding errors; sums that agree to nine digits are ties.
_ROUNDING: Final = 1e-9
_MOST_SEEDS: Final = 100_000


@dataclass(frozen=True, slots=True)
class PairedOutcome:
    """The result of a test of paired differences.

    Attributes:
        p: The two-sided p-value.
        exact: Whether it is exact rather than estimated from random draws.
    """

    p: float
    exact: bool


@dataclass(frozen=True, slots=True)
class EffectSize:
    """The size of a paired difference, in units of its standard deviation.

    Attributes:
        d_z: The mean of the differences divided by their sample SD (divisor n - 1): Cohen's d_z.
        g_z: The same with Hedges' correction, because d_z is biased upwards for few seeds.
    """

    d_z: float
    g_z: float


def sign_flip_test(
    differences: Sequence[float] | Vector,
    *,
    exact_up_to: int = EXACT_SEEDS,
    draws: int = DRAWS,
    seed: int = 0,
) -> PairedOutcome:
    """The sign-flip test of the hypothesis that the two methods are exchangeable.

    If the methods are equally good, the difference of each seed could as well have had the other sign. The
    p-value is the share of all 2^n sign assignments whose sum is at least as far from 0 as the observed one
    (two-sided, including the observed one). No distribution is assumed; for exchangeable methods p ≤ α has
    probability at most α for any number of seeds.

    Up to `exact_up_to` seeds all assignments are enumerated. With more seeds, `draws` random ones are used
    and the p-value is (1 + number at least as far) / (1 + draws), which keeps the level as well. Without
    differences, or if all are 0, p is 1.

    Args:
        differences: One difference per seed, without NaN.
        exact_up_to: The largest number of seeds for which all sign assignments are enumerated.
        draws: The number of random sign assignments for more seeds.
        seed: The seed of these draws.

    Source: Fisher, The design of experiments, section 21; Phipson and Smyth (2010) for the drawn p-value.

    Example:
        >>> sign_flip_test([0.1, 0.2, 0.3])  # only + + + and - - - reach 0.6: 2 of 8
        PairedOutcome(p=0.25, exact=True)
        >>> sign_flip_test([0.1, 0.2, -0.3])  # a sum of 0: all reach it
        PairedOutcome(p=1.0, exact=True)
    """
    values = _checked(differences)
    bar = abs(values.sum()) - _ROUNDING * np.abs(values).sum()
    if len(values) <= exact_up_to:
        # A sum and its mirror image are equally far from 0, so the first sign can be fixed.
        sums = values[:1] if len(values) else np.zeros(1)
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return PairedOutcome(float((np.abs(sums) >= bar).mean()), exact=True)
    random, sums = np.random.default_rng(seed), np.zeros(draws)
    for value in values:
        sums += np.where(random.random(draws) < 0.5, value, -value)
    return PairedOutcome(float((1 + (np.abs(sums) >= bar).sum()) / (1 + draws)), exact=False)


def t_test(differences: Sequence[float] | Vector) -> PairedOutcome:
    """The paired t test of the hypothesis that the differences are normal with mean 0.

    t = mean / (s/√n) with the sample SD s (divisor n - 1), two-sided with n - 1 degrees of freedom. For fewer
    than two seeds p is 1. If all differences are equal, p is 0, or 1 if they are all 0.

    Example:
        >>> round(t_test([0.1, 0.2, 0.3]).p, 6)
        0.07418
    """
    values = _checked(differences)
    if len(values) < 2:
        return PairedOutcome(1.0, exact=True)
    mean, sd = _moments(values)
    if sd == 0:
        return PairedOutcome(1.0 if mean == 0 else 0.0, exact=True)

    from scipy.special import stdtr

    t = mean / (sd / math.sqrt(len(values)))
    return PairedOutcome(float(2 * stdtr(len(values) - 1, -abs(t))), exact=True)


def paired_test(differences: Sequence[float] | Vector, test: Test = "sign-flip") -> PairedOutcome:
    """A test by its name.

    Example:
        >>> paired_test([0.1, 0.2, 0.3], "sign-flip").p
        0.25
    """
    if test not in get_args(Test):
        raise unknown_name("test", test, get_args(Test))
    return sign_flip_test(differences) if test == "sign-flip" else t_test(differences)


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


def effect_size(differences: Sequence[float] | Vector) -> EffectSize:
    """The size of a difference relative to its standard deviation over seeds.

    d_z = mean / s with the sample SD s (divisor n - 1). g_z = d_z · J with Hedges' exact correction
    J = Γ(k/2) / (√(k/2) · Γ((k - 1)/2)), k = n - 1. d_z needs two seeds and g_z three; otherwise NaN.
    If all differences are equal, both are infinite, or 0 if all differences are 0.

    Source: Lakens (2013) for d_z; Hedges (1981) for the correction.

    Example:
        >>> size = effect_size([0.1, 0.2, 0.3])
        >>> round(size.d_z, 6), round(size.g_z, 6)
        (2.0, 1.128379)
    """
    values = _checked(differences)
    n = len(values)
    if n < 2:
        return EffectSize(math.nan, math.nan)
    mean, sd = _moments(values)
    d_z = mean / sd if sd else math.copysign(math.inf, mean) if mean else 0.0
    if n < 3:
        return EffectSize(d_z, math.nan)
    k = n - 1
    shrink = math.exp(math.lgamma(k / 2) - math.lgamma((k - 1) / 2)) / math.sqrt(k / 2)
    return EffectSize(d_z, d_z * shrink)


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


def seeds_to_decide(
    differences: Sequence[float] | Vector,
    *,
    test: Test = "sign-flip",
    tests: int = 1,
    level: float = LEVEL,
    power: float = POWER,
) -> float:
    """The total number of seeds needed to detect a difference like the observed one.

    The smallest n for which a paired t test detects it with probability `power`, if the true effect is the
    observed g_z and differences are normal. With several tests it must be detected at level / tests, which is
    sufficient for Holm's correction whatever the other tests yield. The power is that of the noncentral t
    distribution in Johnson and Welch's normal approximation,
    Φ((g_z √n - t (1 - 1/4k)) / √(1 + t²/2k)) with k = n - 1 and t the two-sided critical value.

    The sign-flip test is about as powerful, but needs at least `fewest_seeds`; with exactly that many it
    detects a difference only if all signs agree, which has probability Φ(g_z)^n.

    An effect estimated from few seeds is uncertain: the result is an order of magnitude.

    Args:
        differences: One difference per seed so far.
        test: The test to be used.
        tests: The number of tests that are corrected together.
        level: The significance level of the corrected p-value.
        power: The probability of detecting the difference.

    Returns:
        The number of seeds; infinite if there is no difference or more than 100,000 seeds would be needed,
        and NaN for fewer than three seeds, from which the spread cannot be estimated.

    Example:
        >>> seeds_to_decide([0.03, 0.01, -0.01, 0.02, 0.0])
        33
        >>> seeds_to_decide([0.03, 0.01, -0.01, 0.02, 0.0], tests=10)
        57
    """
    effect = abs(effect_size(differences).g_z)
    fewest = fewest_seeds(tests=tests, level=level) if test == "sign-flip" else 2
    if math.isnan(effect):
        return math.nan
    if math.isinf(effect):
        return fewest

    from scipy.special import ndtr, ndtri, stdtrit

    tail = 1 - level / tests / 2
    # The number needed if the spread were known; with an estimated spread it is never smaller.
    at_least = ((ndtri(tail) + ndtri(power)) / effect) ** 2 if effect else math.inf
    if at_least > _MOST_SEEDS:
        return math.inf
    n = max(fewest, math.ceil(at_least), 2)
    while True:
        k = n - 1
        critical = float(stdtrit(k, tail))
        reach = effect * math.sqrt(n) - critical * (1 - 1 / (4 * k))
        achieved = ndtr(reach / math.sqrt(1 + critical**2 / (2 * k)))
        if test == "sign-flip" and n == fewest:
            achieved = min(achieved, ndtr(effect) ** n)
        if achieved >= power:
            return n
        n += 1


def _checked(differences: Sequence[float] | Vector) -> Vector:
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise InputError("differences must be one finite number per seed; leave out seeds without a value")
    return values


def _moments(values: Vector) -> tuple[float, float]:
    """Mean and sample SD; values within rounding error of 0 are exactly 0."""
    mean, sd, scale = float(values.mean()), float(values.std(ddof=1)), float(np.abs(values).max())
    return (mean if abs(mean) > _ROUNDING * scale else 0.0), (sd if sd > _ROUNDING * scale else 0.0)
