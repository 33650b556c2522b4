"""Two methods on the same seeds: tests of their difference, its size, and how many seeds would decide.

Everything here looks at one difference a seed. The same seed gives both methods the same initial weights and
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
"""How a difference is tested: without assuming any shape, or assuming that differences are normal."""

LEVEL: Final = 0.05
POWER: Final = 0.8

# 2^19 sums are the most that are counted out; beyond, 50,000 drawn ones are as good as all.
EXACT_SEEDS: Final = 20
DRAWS: Final = 50_000

# Differences are rounded where they are computed; what agrees to nine digits is a tie.
_ROUNDING: Final = 1e-9
_MOST_SEEDS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a test of paired differences says.

    Attributes:
        p: The two-sided p-value.
        exact: Whether it was computed rather than drawn at random.
    """

    p: float
    exact: bool


@dataclass(frozen=True, slots=True)
class EffectSize:
    """How large a paired difference is, in units of its own spread.

    Attributes:
        d_z: The mean of the differences divided by their sample SD (divisor n - 1): Cohen's d_z.
        g_z: The same with Hedges' correction, because d_z is too large on average for few seeds.
    """

    d_z: float
    g_z: float


def sign_flip_test(
    differences: Sequence[float] | Vector,
    *,
    exact_up_to: int = EXACT_SEEDS,
    draws: int = DRAWS,
    seed: int = 0,
) -> Outcome:
    """How often differences at least as large come about where the two methods are exchangeable.

    If the methods are equally good, each seed's difference could as well have had the other sign. The p-value
    is the share of all 2^n ways to set the signs whose sum is at least as far from 0 as the observed one
    (two-sided, the observed one included). No shape is assumed, and under equal methods p ≤ α has at most the
    probability α for any number of seeds.

    Up to `exact_up_to` seeds all ways are counted. Beyond, `draws` random ones are, and the p-value is
    (1 + as far) / (1 + draws), which keeps the level too. No differences, or only zeros, have p = 1.

    Args:
        differences: One difference a seed, without NaN.
        exact_up_to: The most seeds for which all signs are tried.
        draws: How many random signs are tried beyond.
        seed: Draws them, from a generator of its own.

    Source: Fisher, The design of experiments, section 21; Phipson and Smyth (2010) for the drawn p-value.

    Example:
        >>> sign_flip_test([0.1, 0.2, 0.3])  # only + + + and - - - reach 0.6: 2 of 8
        Outcome(p=0.25, exact=True)
        >>> sign_flip_test([0.1, 0.2, -0.3])  # a sum of 0: all reach it
        Outcome(p=1.0, exact=True)
    """
    values = _checked(differences)
    bar = abs(values.sum()) - _ROUNDING * np.abs(values).sum()
    if len(values) <= exact_up_to:
        # A sum and its mirror image are equally far from 0: the first sign can stay.
        sums = values[:1] if len(values) else np.zeros(1)
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return Outcome(float((np.abs(sums) >= bar).mean()), exact=True)
    random, sums = np.random.default_rng(seed), np.zeros(draws)
    for value in values:
        sums += np.where(random.random(draws) < 0.5, value, -value)
    return Outcome(float((1 + (np.abs(sums) >= bar).sum()) / (1 + draws)), exact=False)


def t_test(differences: Sequence[float] | Vector) -> Outcome:
    """How often differences at least as large come about where they are normal with mean 0.

    The paired t test: t = mean / (s/√n) with the sample SD s (divisor n - 1), two-sided with n - 1 degrees of
    freedom. Fewer than two seeds cannot be tested: p = 1. Differences that are all the same have no spread:
    p is 0, or 1 where they are all 0.

    Example:
        >>> round(t_test([0.1, 0.2, 0.3]).p, 6)
        0.07418
    """
    values = _checked(differences)
    if len(values) < 2:
        return Outcome(1.0, exact=True)
    mean, sd = _moments(values)
    if sd == 0:
        return Outcome(1.0 if mean == 0 else 0.0, exact=True)

    from scipy.special import stdtr

    t = mean / (sd / math.sqrt(len(values)))
    return Outcome(float(2 * stdtr(len(values) - 1, -abs(t))), exact=True)


def paired_test(differences: Sequence[float] | Vector, test: Test = "sign-flip") -> Outcome:
    """A test by its name.

    Example:
        >>> paired_test([0.1, 0.2, 0.3], "sign-flip").p
        0.25
    """
    if test not in get_args(Test):
        raise unknown_name("test", test, get_args(Test))
    return sign_flip_test(differences) if test == "sign-flip" else t_test(differences)


def holm(p_values: Sequence[float] | Vector) -> list[float]:
    """P-values corrected for their number, after Holm: what is below the level may be believed all together.

    In ascending order the smallest of m is multiplied by m, the next by m - 1, and so on; each is then at
    least the one before it, and at most 1. The chance of even one false finding among all stays below the
    level, whatever the dependence between the tests.

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
    """How large a difference is against its own spread over seeds.

    d_z = mean / s with the sample SD s (divisor n - 1). g_z = d_z · J with Hedges' exact correction
    J = Γ(k/2) / (√(k/2) · Γ((k - 1)/2)), k = n - 1. d_z needs two seeds and g_z three, else they are NaN.
    Differences that are all the same have no spread: both are infinite, or 0 where all differences are 0.

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

    Two of the 2^n ways to set the signs always count: the observed one and its mirror image.

    Example:
        >>> smallest_p(5), smallest_p(6)
        (0.0625, 0.03125)
    """
    return min(1.0, 2.0 ** (1 - n))


def fewest_seeds(*, tests: int = 1, level: float = LEVEL) -> int:
    """The fewest seeds with which a sign-flip test can reach the level after Holm's correction.

    The smallest n with tests · 2 / 2^n ≤ level: below it no difference, however large, can be shown.

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
    """How many seeds, in all, would show a difference like this one.

    The smallest n for which a paired t test finds it with probability `power`, if the true effect is the
    observed g_z and differences are normal. With several tests it must be found at level / tests, which is
    enough for Holm's correction whatever the other tests say. The power is that of the noncentral t
    distribution in Johnson and Welch's normal approximation,
    Φ((g_z √n - t (1 - 1/4k)) / √(1 + t²/2k)) with k = n - 1 and t the two-sided critical value.

    The sign-flip test is about as powerful, but needs `fewest_seeds`; with just so many it finds a difference
    only if all signs agree, which has the probability Φ(g_z)^n.

    What few seeds say of the effect is itself uncertain: read the number as an order of magnitude.

    Args:
        differences: One difference a seed, so far.
        test: The test that shall find it.
        tests: How many tests are corrected together.
        level: The level that their smallest corrected p-value must reach.
        power: How likely the difference shall be found.

    Returns:
        The number of seeds; infinite where there is no difference or it would take more than 100,000, and NaN
        for fewer than three seeds, which do not tell the spread.

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
    # With the spread known it takes this many; with the spread estimated never fewer, and seldom many more.
    at_least = ((ndtri(tail) + ndtri(power)) / effect) ** 2 if effect else math.inf
    if at_least > _MOST_SEEDS:
        return math.inf
    n = max(fewest, math.ceil(at_least), 2)
    while True:
        k = n - 1
        critical = float(stdtrit(k, tail))
        reach = effect * math.sqrt(n) - critical * (1 - 1 / (4 * k))
        found = ndtr(reach / math.sqrt(1 + critical**2 / (2 * k)))
        if test == "sign-flip" and n == fewest:
            found = min(found, ndtr(effect) ** n)
        if found >= power:
            return n
        n += 1


def _checked(differences: Sequence[float] | Vector) -> Vector:
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise InputError("differences must be one finite number per seed: leave out seeds without a value")
    return values


def _moments(values: Vector) -> tuple[float, float]:
    """Mean and sample SD, with exact zeros where only rounding is left."""
    mean, sd, scale = float(values.mean()), float(values.std(ddof=1)), float(np.abs(values).max())
    return (mean if abs(mean) > _ROUNDING * scale else 0.0), (sd if sd > _ROUNDING * scale else 0.0)
