"""Ranking of several methods that were run on the same seeds, with tests of every pair."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np

from engram.core.errors import InputError
from engram.core.folder import finite
from engram.core.jsons import JsonObject
from engram.metrics.arrays import Vector
from engram.metrics.intervals import RESAMPLES, Summary, bootstrap_interval, over_seeds
from engram.metrics.paired import (
    DRAWS,
    EXACT_SEEDS,
    LEVEL,
    POWER,
    Test,
    effect_size,
    fewest_seeds,
    holm,
    paired_test,
    seeds_to_decide,
    smallest_p,
)


@dataclass(frozen=True, slots=True)
class Standing:
    """One method in a ranking.

    Attributes:
        name: The method.
        over: Mean, SD (divisor n - 1) and 95 % t interval over the seeds.
        bootstrap95: The 95 % BCa bootstrap interval of the mean.
        groups: The indices of the groups that it belongs to.
    """

    name: str
    over: Summary
    bootstrap95: tuple[float, float]
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two methods, paired by seed; `first` ranks above `second`.

    Attributes:
        first: The method with the better mean.
        second: The other one.
        difference: The mean of first - second, in the metric's own units and sign.
        sd: The sample SD of the differences (divisor n - 1).
        ci95: The 95 % t interval of the mean difference, not corrected for the number of pairs.
        bootstrap95: Its 95 % BCa bootstrap interval, not corrected either.
        d_z: The mean difference divided by `sd` (Cohen's d_z).
        g_z: The same with Hedges' correction for few seeds.
        wins: The number of seeds on which `first` was better.
        p: The two-sided p-value of the test.
        exact: Whether `p` is exact rather than estimated from random draws.
        p_holm: The p-value after Holm's correction for all pairs of the ranking.
        told_apart: Whether `p_holm` is at most the level.
        more_seeds: How many more seeds would tell them apart, as estimated by `seeds_to_decide`: 0 if they
            are told apart already, infinite if no feasible number would, NaN for fewer than three seeds.
    """

    first: str
    second: str
    difference: float
    sd: float
    ci95: tuple[float, float]
    bootstrap95: tuple[float, float]
    d_z: float
    g_z: float
    wins: int
    p: float
    exact: bool
    p_holm: float
    told_apart: bool
    more_seeds: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """Methods from best to worst, and which of them cannot be told apart.

    Attributes:
        higher_is_better: The direction of the metric.
        n: The number of seeds of each method.
        test: The test of each pair.
        level: The significance level of the corrected p-values.
        standings: The methods, the best mean first.
        pairs: All pairs, in the order of the ranking.
        groups: The largest sets of methods of which no two are told apart, by name.
        too_few: A sentence saying why no difference, however large, could be significant; empty if there are
            enough seeds.
    """

    higher_is_better: bool
    n: int
    test: Test
    level: float
    standings: tuple[Standing, ...]
    pairs: tuple[Pair, ...]
    groups: tuple[tuple[str, ...], ...]
    too_few: str

    def as_json(self) -> JsonObject:
        """The ranking as JSON, with null for undefined and infinite numbers."""
        ranking = [
            {
                "method": standing.name,
                **standing.over.as_json(),
                "bootstrap95": standing.bootstrap95,
                "groups": standing.groups,
            }
            for standing in self.standings
        ]
        plain: JsonObject = finite(
            {
                "higher_is_better": self.higher_is_better,
                "n": self.n,
                "test": self.test,
                "level": self.level,
                "correction": "holm",
                "power": POWER,
                "sign_flips": {"exact_up_to": EXACT_SEEDS, "draws": DRAWS, "seed": 0},
                "bootstrap": {"method": "BCa", "resamples": RESAMPLES, "seed": 0},
                "ranking": ranking,
                "pairs": [asdict(pair) for pair in self.pairs],
                "groups": self.groups,
                "too_few_seeds": self.too_few or None,
            }
        )
        return plain


def rank(
    values: Mapping[str, Sequence[float] | Vector],
    *,
    higher_is_better: bool = True,
    test: Test = "sign-flip",
    level: float = LEVEL,
) -> Ranking:
    """Rank methods that were run on the same seeds, and test every pair.

    Methods are ordered by their means. Each pair is tested on its differences by seed, and the p-values of
    all pairs are corrected together (Holm). Two methods are told apart if the corrected p-value is at most
    `level`; the groups are the largest sets of methods of which no two are told apart. Two methods thus share
    a group exactly if they are not told apart, and a method can belong to several groups: a may be like b
    and b like c though a and c differ. Methods that are not told apart are not necessarily equal.

    Args:
        values: One value per seed for each method, in the same order of seeds, without NaN.
        higher_is_better: Whether larger values are better.
        test: `sign-flip` assumes no distribution but needs six seeds; `t` assumes normal differences.
        level: The family-wise error rate.

    Raises:
        InputError: There are fewer than two methods, or they have no values or different numbers of values.

    Example:
        >>> seeds = np.arange(7) / 100
        >>> ranking = rank({"a": 0.5 + seeds, "b": 0.8 + seeds**2, "c": 0.5 + seeds[::-1]})
        >>> [standing.name for standing in ranking.standings], ranking.groups
        (['b', 'a', 'c'], (('b',), ('a', 'c')))
        >>> ranking.pairs[0].p, ranking.pairs[0].p_holm
        (0.015625, 0.046875)
    """
    table = _checked(values)
    n = len(next(iter(table.values())))
    sign = 1 if higher_is_better else -1
    names = sorted(table, key=lambda name: -sign * float(table[name].mean()))

    index_pairs = list(combinations(range(len(names)), 2))
    pairs = _pairs([(names[i], names[j]) for i, j in index_pairs], table, sign=sign, test=test, level=level)
    apart = [indices for indices, pair in zip(index_pairs, pairs, strict=True) if pair.told_apart]
    groups = indistinct_groups(len(names), apart)
    standings = tuple(
        Standing(
            name,
            over_seeds(table[name]),
            bootstrap_interval(table[name]),
            tuple(number for number, group in enumerate(groups) if place in group),
        )
        for place, name in enumerate(names)
    )
    return Ranking(
        higher_is_better,
        n,
        test,
        level,
        standings,
        tuple(pairs),
        tuple(tuple(names[place] for place in group) for group in groups),
        _too_few(n, test=test, tests=len(pairs), level=level),
    )


def _pairs(
    names: Sequence[tuple[str, str]], table: Mapping[str, Vector], *, sign: int, test: Test, level: float
) -> list[Pair]:
    """Every pair of methods, tested on its differences by seed and corrected together."""
    differences = [table[first] - table[second] for first, second in names]
    results = [paired_test(row, test) for row in differences]
    corrected = holm([result.p for result in results])
    pairs = []
    for (first, second), row, result, p_holm in zip(names, differences, results, corrected, strict=True):
        over, effect, told_apart = over_seeds(row), effect_size(row), p_holm <= level
        needed = seeds_to_decide(row, test=test, tests=len(names), level=level)
        pairs.append(
            Pair(
                first,
                second,
                difference=over.mean,
                sd=over.sd,
                ci95=over.ci95,
                bootstrap95=bootstrap_interval(row),
                d_z=effect.d_z,
                g_z=effect.g_z,
                wins=int((sign * row > 0).sum()),
                p=result.p,
                exact=result.exact,
                p_holm=p_holm,
                told_apart=told_apart,
                # The estimate may be below the number of seeds, though the test did not tell them apart.
                more_seeds=0 if told_apart else needed if math.isnan(needed) else max(1, needed - len(row)),
            )
        )
    return pairs


def indistinct_groups(n: int, told_apart: Collection[tuple[int, int]]) -> list[tuple[int, ...]]:
    """The largest sets of 0 … n - 1 that contain no pair that is told apart, in ascending order.

    Starting with one group, every pair that is told apart splits the groups that contain both, and groups
    contained in others are dropped. Two members share a group exactly if they are not told apart.

    Source: the insert-and-absorb algorithm of Piepho (2004) for letter displays.

    Example:
        >>> indistinct_groups(3, [(0, 2)])
        [(0, 1), (1, 2)]
        >>> indistinct_groups(3, [(0, 1), (0, 2)])
        [(0,), (1, 2)]
    """
    groups = {frozenset(range(n))}
    for pair in told_apart:
        split = {group - {one} for group in groups if group.issuperset(pair) for one in pair}
        groups = split | {group for group in groups if not group.issuperset(pair)}
        groups = {group for group in groups if not any(group < other for other in groups)}
    return sorted(tuple(sorted(group)) for group in groups)


def _checked(values: Mapping[str, Sequence[float] | Vector]) -> dict[str, Vector]:
    if len(values) < 2:
        raise InputError(f"nothing to compare: at least two methods are required, got {len(values)}")
    table = {name: np.asarray(row, dtype=np.float64) for name, row in values.items()}
    sizes = {name: row.size for name, row in table.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise InputError(
            f"methods must have one value for each of the same seeds, got different numbers ({listed})"
        )
    if not all(sizes.values()):
        raise InputError("nothing to compare: no seed has a value for every method")
    return table


def _too_few(n: int, *, test: Test, tests: int, level: float) -> str:
    """A sentence saying why no test can reach the level; empty if one can."""
    seeds, pairs = f"{n} seed{'s' * (n != 1)}", f"{tests} pair{'s' * (tests != 1)}"
    if test == "t":
        return "" if n > 1 else f"{seeds} cannot be tested: a t test needs at least 2"
    smallest = smallest_p(n)
    if tests * smallest <= level:
        return ""
    after = f", and {min(1.0, tests * smallest):.3g} after Holm's correction for {pairs}" if tests > 1 else ""
    needed = fewest_seeds(tests=tests, level=level)
    return (
        f"with {seeds} the smallest possible p of a sign-flip test is {smallest:.3g}{after}: no difference, "
        f"however large, can reach {level:g}; at least {needed} seeds are needed"
    )
