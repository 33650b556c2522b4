"""Ranking of several methods that were run on the same seeds, with tests of every pair."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

import numpy as np

from engram.core.errors import InputError, unknown_name
from engram.core.folder import finite
from engram.core.jsons import JsonObject
from engram.metrics.arrays import Matrix, Vector
from engram.metrics.intervals import RESAMPLES, Bounds, Summary, bootstrap_interval, over_seeds
from engram.metrics.paired import (
    DRAWS,
    EXACT_SEEDS,
    LEVEL,
    POWER,
    Test,
    effects,
    fewest_seeds,
    holm,
    least_sd,
    moments,
    p_values,
    seeds_for,
    smallest_p,
)

Role = Literal["primary", "exploratory", "corrected"]
"""What the p-values of a metric are for: `primary` ones decide; `exploratory` ones only suggest what to test
on new seeds, because several metrics find more by chance; `corrected` ones are corrected for all metrics."""

_ROUNDING: Final = 1e-12
"""Differences are rounding errors up to this share of the range of a metric."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One method in a ranking.

    Attributes:
        name: The method.
        over: Mean, SD (divisor n - 1) and 95 % interval over the seeds.
        bootstrap95: The 95 % BCa bootstrap interval of the mean; None where it was not requested.
        groups: The indices of the groups that it belongs to.
    """

    name: str
    over: Summary
    bootstrap95: tuple[float, float] | None
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two methods, paired by seed; `first` ranks above `second`, or `second` is the baseline.

    Attributes:
        first: The method with the better mean, or the one that is compared with the baseline.
        second: The other one.
        difference: The mean of first - second, in the metric's own units and sign.
        sd: The sample SD of the differences (divisor n - 1).
        ci95: The 95 % t interval of the mean difference, within what is possible, not corrected for the
            number of pairs. Its SD is at least `least_sd`.
        bootstrap95: Its 95 % BCa bootstrap interval, not corrected either; None where it was not requested.
        d_z: The mean difference divided by `sd` (Cohen's d_z).
        g_z: The same with Hedges' correction for few seeds.
        wins: The number of seeds on which `first` was better.
        p: The two-sided p-value of the test.
        exact: Whether `p` is exact rather than estimated from random draws.
        p_holm: The p-value after Holm's correction for all tests that are corrected together.
        told_apart: Whether `p_holm` is at most the level.
        more_seeds: How many more seeds would tell them apart, as estimated by `seeds_for`: 0 if they are
            told apart already, infinite if no feasible number would, NaN for fewer than three seeds.
    """

    first: str
    second: str
    difference: float
    sd: float
    ci95: tuple[float, float]
    bootstrap95: tuple[float, float] | None
    d_z: float
    g_z: float
    wins: int
    p: float
    exact: bool
    p_holm: float
    told_apart: bool
    more_seeds: float

    def as_json(self) -> JsonObject:
        """The pair as JSON, with null for undefined and infinite numbers."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        # There are many pairs, and nearly always all of their numbers are finite.
        numbers = (self.sd, *self.ci95, self.d_z, self.g_z, self.more_seeds, *(self.bootstrap95 or ()))
        plain: JsonObject = fields if all(map(math.isfinite, numbers)) else finite(fields)
        return plain


@dataclass(frozen=True, slots=True)
class Ranking:
    """Methods from best to worst, and which of them cannot be told apart.

    Attributes:
        higher_is_better: The direction of the metric.
        n: The number of seeds of each method.
        test: The test of each pair.
        level: The significance level of the corrected p-values.
        standings: The methods, the best mean first.
        pairs: All pairs, in the order of the ranking; with a baseline, those with the baseline.
        groups: The largest sets of methods of which no two are told apart, by name. Empty with a baseline,
            and with too few seeds, where nothing could be told apart.
        too_few: A sentence saying why no difference, however large, could be significant; empty if there are
            enough seeds.
        baseline: The method that all others are compared with; empty if all pairs are.
        role: Whether the p-values decide or are exploratory.
        tests: The number of tests that are corrected together.
        resolution: The change of the metric by one test sample; 0 where that is unknown.
    """

    higher_is_better: bool
    n: int
    test: Test
    level: float
    standings: tuple[Standing, ...]
    pairs: tuple[Pair, ...]
    groups: tuple[tuple[str, ...], ...]
    too_few: str
    baseline: str = ""
    role: Role = "primary"
    tests: int = 1
    resolution: float = 0.0

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
                "role": self.role,
                "baseline": self.baseline or None,
                "correction": "holm",
                "tests": self.tests,
                "resolution": self.resolution or None,
                "power": POWER,
                "sign_flips": {"exact_up_to": EXACT_SEEDS, "draws": DRAWS, "seed": 0},
                "bootstrap": {"method": "BCa", "resamples": RESAMPLES, "seed": 0},
                "ranking": ranking,
                "groups": self.groups,
                "too_few_seeds": self.too_few or None,
            }
        )
        return plain | {"pairs": [pair.as_json() for pair in self.pairs]}


def rank(
    values: Mapping[str, Sequence[float] | Vector],
    *,
    higher_is_better: bool = True,
    test: Test = "sign-flip",
    level: float = LEVEL,
    baseline: str = "",
    bounds: Bounds | None = None,
    resolution: float = 0.0,
    bootstrap: bool = False,
    role: Role = "primary",
    other_p: Sequence[float] = (),
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
        test: `sign-flip` assumes symmetric differences and needs six seeds; `t` assumes normal ones.
        level: The family-wise error rate.
        baseline: Compare all others with this method only, and correct for that number of tests.
        bounds: The lowest and the highest possible value, within which intervals stay.
        resolution: The change of a value by one test sample; 0 where that is unknown.
        bootstrap: Whether to compute BCa bootstrap intervals, which need ten seeds.
        role: Whether the p-values decide or are exploratory.
        other_p: P-values of other metrics that are corrected together with these.

    Raises:
        InputError: There are fewer than two methods, or they have no values or different numbers of values;
            the baseline is not one of them; or there are too few seeds for a bootstrap.

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
    if baseline and baseline not in table:
        raise unknown_name("baseline", baseline, table)

    rows = np.array([table[name] for name in names])
    index_pairs = _index_pairs(names, baseline)
    tests = len(index_pairs) + len(other_p)
    scale = _Scale(test, level, tests, bounds, resolution, bootstrap)
    pairs = _pairs(names, rows, index_pairs, sign=sign, scale=scale, other_p=other_p)
    too_few = _too_few(n, test=test, tests=tests, level=level)
    apart = [indices for indices, pair in zip(index_pairs, pairs, strict=True) if pair.told_apart]
    groups = [] if too_few or baseline else indistinct_groups(len(names), apart)
    standings = tuple(
        Standing(
            name,
            over_seeds(row, bounds=bounds, resolution=resolution),
            bootstrap_interval(row) if bootstrap else None,
            tuple(number for number, group in enumerate(groups) if place in group),
        )
        for place, (name, row) in enumerate(zip(names, rows, strict=True))
    )
    return Ranking(
        higher_is_better=higher_is_better,
        n=n,
        test=test,
        level=level,
        standings=standings,
        pairs=tuple(pairs),
        groups=tuple(tuple(names[place] for place in group) for group in groups),
        too_few=too_few,
        baseline=baseline,
        role=role,
        tests=tests,
        resolution=resolution,
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """By what pairs are judged."""

    test: Test
    level: float
    tests: int
    bounds: Bounds | None
    resolution: float
    bootstrap: bool


def _index_pairs(names: Sequence[str], baseline: str) -> list[tuple[int, int]]:
    """The places of the methods of each pair: all pairs, or each method and the baseline."""
    if not baseline:
        return list(combinations(range(len(names)), 2))
    place = names.index(baseline)
    return [(other, place) for other in range(len(names)) if other != place]


def _pairs(
    names: Sequence[str],
    rows: Matrix,
    index_pairs: Sequence[tuple[int, int]],
    *,
    sign: int,
    scale: _Scale,
    other_p: Sequence[float],
) -> list[Pair]:
    """Every pair of methods, tested on its differences by seed and corrected together."""
    first, second = np.array(index_pairs).T
    differences = rows[first] - rows[second]
    # Less than one sample of any test set: means over tasks may be rounded in different ways.
    largest = np.abs(rows).max() if scale.bounds is None else scale.bounds[1] - scale.bounds[0]
    differences[np.abs(differences) <= _ROUNDING * largest] = 0.0
    p, exact = p_values(differences, scale.test, resolution=scale.resolution)
    corrected = holm([*p, *other_p])[: len(p)]
    n = differences.shape[1]
    d_z, g_z = effects(differences)
    # What the t test takes for the spread decides how many seeds it needs.
    effect = effects(differences, scale.resolution)[1] if scale.test == "t" else g_z
    needed = seeds_for(np.abs(effect), test=scale.test, tests=scale.tests, level=scale.level)
    sd = differences.std(axis=1, ddof=1) if n > 1 else np.full(len(p), np.nan)
    edges = _t_intervals(differences, scale.bounds, scale.resolution)
    wins = (sign * differences > 0).sum(axis=1)
    columns = zip(index_pairs, differences.mean(axis=1).tolist(), sd.tolist(), edges.tolist(), strict=True)
    pairs = []
    for number, ((one, other), mean, spread, (low, high)) in enumerate(columns):
        told_apart, total = corrected[number] <= scale.level, float(needed[number])
        # The estimate may be below the number of seeds, though the test did not tell them apart.
        more = 0 if told_apart else total if math.isnan(total) else max(1, total - n)
        pairs.append(
            Pair(
                names[one],
                names[other],
                difference=mean,
                sd=spread,
                ci95=(low, high),
                bootstrap95=bootstrap_interval(differences[number]) if scale.bootstrap else None,
                d_z=float(d_z[number]),
                g_z=float(g_z[number]),
                wins=int(wins[number]),
                p=float(p[number]),
                exact=exact,
                p_holm=corrected[number],
                told_apart=told_apart,
                more_seeds=int(more) if math.isfinite(more) else more,
            )
        )
    return pairs


def _t_intervals(differences: Matrix, bounds: Bounds | None, resolution: float) -> Matrix:
    """The 95 % t interval of the mean of each row, within what is possible.

    NaN where differences are all the same and not 0, and nothing is known of how finely they are measured.
    """
    n = differences.shape[1]
    if n < 2:
        return np.full((len(differences), 2), np.nan)

    from scipy.special import stdtrit

    mean = differences.mean(axis=1)
    sd = np.maximum(differences.std(axis=1, ddof=1), least_sd(moments(differences)[0], resolution))
    reach = float(stdtrit(n - 1, 0.975)) * sd / math.sqrt(n)
    edges = np.column_stack([mean - reach, mean + reach])
    edges[(moments(differences)[1] == 0) & (mean != 0) & (resolution == 0)] = np.nan
    return edges if bounds is None else np.clip(edges, bounds[0] - bounds[1], bounds[1] - bounds[0])


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
    # Each group is the set bits of an integer.
    groups = [(1 << n) - 1]
    for one, other in told_apart:
        both = (1 << one) | (1 << other)
        torn = [group for group in groups if group & both == both]
        if not torn:
            continue
        kept = [group for group in groups if group & both != both]
        # Groups that were kept are contained in no other; only the new ones can be.
        halves = {group & ~(1 << place) for group in torn for place in (one, other)}
        for half in halves:
            if not any(half | group == group for group in (*kept, *(halves - {half}))):
                kept.append(half)
        groups = kept
    return sorted(tuple(place for place in range(n) if group >> place & 1) for group in groups)


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
    if not all(np.isfinite(row).all() for row in table.values()):
        raise InputError("values must be one finite number per seed; leave out seeds without a value")
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
        f"however large, can reach {level:.3g}; at least {needed} seeds are needed"
    )
