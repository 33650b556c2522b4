"""Paired tests, Holm, effect sizes, seeds to decide, rankings: by hand, by scipy, by simulation."""

import json
import math
from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from engram.core.errors import InputError
from engram.metrics.arrays import Matrix, Vector
from engram.metrics.comparison import indistinct_groups, rank
from engram.metrics.intervals import bootstrap_interval
from engram.metrics.paired import (
    Test,
    effects,
    fewest_seeds,
    flip_all_signs,
    flip_random_signs,
    holm,
    p_values,
    seeds_for,
    smallest_p,
)
from engram.metrics.registry import all_metrics, higher_is_better
from engram.metrics.spending import level_of_look

thousandths = st.integers(0, 1000).map(lambda k: k / 1000)
accuracies = st.lists(st.tuples(thousandths, thousandths), min_size=1, max_size=9)
p_strategy = st.lists(st.floats(0, 1), min_size=1, max_size=12)

SIX = np.array([0.031, 0.012, -0.004, 0.02, 0.017, 0.0])


def _p(differences: Sequence[float] | Vector, test: Test = "sign-flip", resolution: float = 0.0) -> float:
    """The p-value of a single row of differences."""
    p, exact = p_values(_row(differences), test, resolution=resolution)
    assert exact == (test == "t" or len(differences) <= 20)
    return float(p[0])


def _sizes(differences: Sequence[float] | Vector) -> tuple[float, float]:
    """d_z and g_z of a single row of differences."""
    d_z, g_z = effects(_row(differences))
    return float(d_z[0]), float(g_z[0])


def _seeds(differences: Sequence[float] | Vector, test: Test = "sign-flip", tests: int = 1) -> float:
    """The number of seeds that detects a difference like the observed one."""
    size = np.abs(effects(_row(differences))[1])
    return float(seeds_for(size, test=test, tests=tests, level=0.05)[0])


def _row(differences: Sequence[float] | Vector) -> Matrix:
    return np.asarray(differences, dtype=np.float64)[None, :]


def _scipys(differences: Vector) -> float:
    result = stats.permutation_test(
        (differences,), np.sum, permutation_type="samples", n_resamples=2**16, alternative="two-sided"
    )
    return float(result.pvalue)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 11])
def test_the_sign_flip_test_is_scipys(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.3, 1, n)
    assert _p(differences) == pytest.approx(_scipys(differences))


def test_ties_and_zeros_count_as_in_scipy() -> None:
    for values in ([0.1, 0.1, 0.2, -0.1], [0.0, 0.3, 0.0, 0.1], SIX.tolist()):
        assert _p(values) == pytest.approx(_scipys(np.array(values)))


def test_sign_flips_by_hand() -> None:
    # |±1 ±2 ±3 ±4| ≥ 8 holds for + + + +, - + + +, and their mirror images.
    assert _p([-1, 2, 3, 4]) == 4 / 16
    assert _p([0.0, 0.0]) == 1
    assert _p([]) == 1


def test_rounding_does_not_break_ties() -> None:
    # 0.1 + 0.2 is a little more than 0.3.
    assert _p([0.1, 0.2, -0.3]) == 1


def test_drawn_signs_agree_with_all_signs() -> None:
    differences = np.random.default_rng(0).normal(0.5, 1, 14)
    (exact,), (drawn,) = flip_all_signs(_row(differences)), flip_random_signs(_row(differences))
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact / 50_000))
    assert flip_random_signs(_row(differences)) == drawn
    assert flip_random_signs(_row(differences), seed=1) != drawn
    many = _row(np.random.default_rng(0).normal(0.5, 1, 21))
    assert p_values(many, "sign-flip") == (flip_random_signs(many), False)


def test_a_drawn_p_value_is_never_zero() -> None:
    assert flip_random_signs(np.ones((1, 40)), draws=999) == 1 / 1000


@pytest.mark.parametrize("n", [2, 3, 5, 20])
def test_the_t_test_is_scipys(n: int) -> None:
    first, second = np.random.default_rng(n).normal([[0.4], [0.0]], 1, (2, n))
    assert _p(first - second, "t") == pytest.approx(float(stats.ttest_rel(first, second).pvalue))


def test_t_tests_without_spread() -> None:
    assert _p([0.3], "t") == 1
    assert _p([0.0, 0.0, 0.0], "t") == 1
    # Without any spread only the signs are left: 2 of 2^3.
    assert _p([0.1 + 0.2, 0.3, 0.3], "t") == 0.25
    assert _p([0.3, 0.3], "t") == 0.5


def test_equal_differences_of_two_seeds_are_no_proof() -> None:
    # One, two and twenty of 1,000 test samples, on both seeds.
    for k in (1, 2, 20):
        assert _p([k / 1000, k / 1000], "t", resolution=1 / 1000) > 0.05
    # The SD is that of k signs: t = k / (√k / √2), one degree of freedom.
    expected = 2 * float(stats.t.sf(8 / (math.sqrt(8) / math.sqrt(2)), 1))
    assert _p([0.008, 0.008], "t", resolution=0.001) == pytest.approx(expected)
    # A spread above the least one is used as it is.
    wide = [0.01, 0.05, 0.03]
    assert _p(wide, "t", resolution=1e-4) == _p(wide, "t")


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_t_test_of_single_test_samples_holds_its_level(n: int) -> None:
    random = np.random.default_rng(n)
    for rows in (
        np.where(random.random((2000, n)) < 0.5, 0.001, -0.001),
        np.round(random.normal(0, 1, (2000, n))) * 0.001,
    ):
        p, exact = p_values(rows, "t", resolution=0.001)
        assert exact
        assert (p <= 0.05).mean() <= 0.05
        plain, _ = p_values(rows, "t", resolution=1e-12)
        assert (plain <= 0.05).mean() > (p <= 0.05).mean()


@pytest.mark.parametrize("n", [1, 4, 12, 13, 20, 23])
@pytest.mark.parametrize("test", ["sign-flip", "t"])
def test_many_pairs_at_once_are_tested_like_one(n: int, test: Test) -> None:
    rows = np.round(np.random.default_rng(n).normal(0.3, 1, (5, n)), 2)
    p, exact = p_values(rows, test)
    assert p.tolist() == [_p(row, test) for row in rows]
    assert exact == (test == "t" or n <= 20)


@pytest.mark.parametrize("n", [13, 16, 17])
def test_counting_by_halves_is_counting_all_signs(n: int) -> None:
    # Multiples of 1/8 are exact, so that there are many ties.
    rows = np.round(np.random.default_rng(n).normal(0.4, 1, (20, n)) * 8) / 8
    for row in rows:
        sums = row[:1]
        for value in row[1:]:
            sums = np.concatenate([sums + value, sums - value])
        assert _p(row) == (np.abs(sums) >= abs(row.sum())).mean()


def test_collapses_break_the_symmetry_that_the_sign_flip_test_assumes() -> None:
    """A method that is a little better, and collapses on one seed of ten: equal means, many findings."""
    random = np.random.default_rng(0)
    rows = np.where(random.random((1000, 8)) < 0.1, -0.18, 0.02) + random.normal(0, 0.005, (1000, 8))
    assert (p_values(rows, "sign-flip")[0] <= 0.05).mean() > 0.2
    assert "symmetric" in (p_values.__doc__ or "")


def test_tests_have_names() -> None:
    assert _p(SIX, "t") != _p(SIX) == flip_all_signs(_row(SIX))
    with pytest.raises(InputError, match="unknown test 'tt'"):
        rank({"a": SIX, "b": -SIX}, test="tt")  # type: ignore[arg-type]


@given(accuracies)
def test_swapping_methods_changes_nothing_but_the_sign(pairs: list[tuple[float, float]]) -> None:
    difference = np.array([a - b for a, b in pairs])
    for test in get_args(Test):
        assert _p(difference, test) == pytest.approx(_p(-difference, test))
    (d_z, g_z), back = _sizes(difference), _sizes(-difference)
    assert (-d_z, -g_z) == pytest.approx(back, nan_ok=True)


@given(accuracies, st.sampled_from([0.25, -0.5, 1.0]))
def test_shifting_both_methods_changes_nothing(pairs: list[tuple[float, float]], shift: float) -> None:
    first, second = np.array(pairs).T
    plain, shifted = first - second, (first + shift) - (second + shift)
    assert _p(shifted) == _p(plain)
    assert _p(shifted, "t") == pytest.approx(_p(plain, "t"), abs=1e-6)


@given(accuracies)
def test_a_sign_flip_p_value_is_a_count_of_at_least_two(pairs: list[tuple[float, float]]) -> None:
    p = _p([a - b for a, b in pairs])
    assert smallest_p(len(pairs)) <= p <= 1
    assert (p * 2 ** len(pairs)).is_integer()


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.04]) == [0.04]
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.02, 0.02, 0.02]) == pytest.approx([0.06, 0.06, 0.06])
    assert holm([]) == []


@given(p_strategy)
def test_holm_is_monotone_and_never_below_the_raw_value(values: list[float]) -> None:
    corrected = holm(values)
    assert all(raw <= p <= 1 for raw, p in zip(values, corrected, strict=True))
    assert [p for _, p in sorted(zip(values, corrected, strict=True))] == sorted(corrected)
    assert all(p <= min(1, len(values) * raw) + 1e-12 for raw, p in zip(values, corrected, strict=True))


# A level of 1 is left out: corrected values are capped there, so it would reject all of them.
@given(p_strategy, st.floats(0.01, 0.99))
def test_holm_rejects_what_its_step_down_procedure_rejects(values: list[float], level: float) -> None:
    rejected = 0
    for step, p in enumerate(sorted(values)):
        if p * (len(values) - step) > level:
            break
        rejected += 1
    assert sum(p <= level for p in holm(values)) == rejected


@given(p_strategy, st.randoms(use_true_random=False))
def test_holm_does_not_depend_on_the_order(values: list[float], random: Random) -> None:
    order = list(range(len(values)))
    random.shuffle(order)
    assert holm([values[i] for i in order]) == [holm(values)[i] for i in order]


def test_effect_sizes_by_hand() -> None:
    # Mean 2, sample SD 1; the correction for two degrees of freedom is Γ(1) / Γ(1/2) = 1/√π.
    assert _sizes([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2 / math.sqrt(math.pi)))
    # For many seeds the correction is 1 - 3 / (4 (n - 1) - 1).
    d_z, g_z = _sizes(np.random.default_rng(0).normal(1, 1, 50))
    assert g_z / d_z == pytest.approx(1 - 3 / (4 * 49 - 1), abs=1e-4)
    assert _sizes([0.3, 0.3, 0.3]) == (math.inf, math.inf)
    assert _sizes([-0.3, -0.3, -0.3]) == (-math.inf, -math.inf)
    assert _sizes([0.0, 0.0, 0.0]) == (0, 0)
    assert np.isnan(_sizes([0.3])).all()
    assert math.isnan(_sizes([0.3, 0.5])[1])


def test_hedges_correction_removes_the_bias() -> None:
    samples = np.random.default_rng(0).normal(1.0, 1.0, (4000, 6))
    d_z, g_z = effects(samples)
    assert g_z.mean() == pytest.approx(1.0, abs=0.04)
    assert d_z.mean() > 1.1


def test_fewest_seeds_is_where_the_smallest_p_value_reaches_the_level() -> None:
    assert [smallest_p(n) for n in (0, 1, 2, 5)] == [1, 1, 0.5, 0.0625]
    for tests, level in ((1, 0.05), (3, 0.05), (325, 0.05), (1, 0.001)):
        n = fewest_seeds(tests=tests, level=level)
        assert tests * smallest_p(n) <= level < tests * smallest_p(n - 1)


@pytest.mark.parametrize(("effect", "n"), [(0.3, 90), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_numbers_of_seeds_are_those_of_power_tables(effect: float, n: int) -> None:
    """The textbook numbers for a paired t test at 5 % with 80 % power."""
    differences = _with_effect(effect, n=12)
    assert _seeds(differences, "t") == n
    critical = stats.t.ppf(0.975, n - 1)
    assert stats.nct.sf(critical, n - 1, effect * math.sqrt(n)) >= 0.795
    assert stats.nct.sf(stats.t.ppf(0.975, n - 2), n - 2, effect * math.sqrt(n - 1)) < 0.8


@pytest.mark.parametrize(("effect", "tests"), [(0.9, 1), (1.5, 1), (2.0, 1), (2.0, 3), (3.0, 10)])
def test_with_so_many_seeds_the_sign_flip_test_decides_four_times_in_five(effect: float, tests: int) -> None:
    n = _seeds(_with_effect(effect, n=12), tests=tests)
    samples = np.random.default_rng(5).normal(effect, 1, (400, int(n)))
    power = np.mean([_p(row) <= 0.05 / tests for row in samples])
    # The approximation may be off by a few percent; the share itself has a standard error of 2 %.
    assert power >= 0.74


def test_numbers_of_seeds_where_little_is_known() -> None:
    assert _seeds([0.2, 0.2, 0.2]) == fewest_seeds()
    assert _seeds([0.2, 0.2, 0.2], tests=10) == fewest_seeds(tests=10)
    assert _seeds([0.1, -0.1, 0.0]) == math.inf
    assert _seeds([1.0, -1.0, 1e-4, 0.0]) == math.inf
    assert math.isnan(_seeds([0.1, 0.2]))
    assert _seeds(SIX, tests=10) > _seeds(SIX)


@pytest.mark.parametrize("n", [6, 9, 25])
def test_equal_methods_are_told_apart_no_oftener_than_promised(n: int) -> None:
    """Heavy tails and unequal spreads, as long as both methods are exchangeable within each seed."""
    random = np.random.default_rng(n)
    first, second = random.standard_t(2, (2, 1000, n)) * random.uniform(0.1, 5, n)
    rows = first - second
    p = flip_all_signs(rows) if n <= 20 else flip_random_signs(rows, draws=999)
    for level in (0.05, 0.2):
        assert (p <= level).mean() <= level + 3 * math.sqrt(level * (1 - level) / 1000)
    assert (p <= 0.2).mean() >= 0.13


def test_any_false_finding_among_equal_methods_stays_at_the_level() -> None:
    """Four equal methods make six pairs; uncorrected, one in five tables would have a finding."""
    random = np.random.default_rng(7)
    corrected, raw = [], []
    for _ in range(500):
        seeds = random.normal(0, 2, 9)
        runs = seeds + random.normal(0, 1, (4, 9))
        p = [_p(runs[i] - runs[j]) for i, j in combinations(range(4), 2)]
        raw.append(min(p) <= 0.05)
        corrected.append(min(holm(p)) <= 0.05)
    assert np.mean(corrected) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 500)
    assert np.mean(raw) > 0.12


def test_groups_by_hand() -> None:
    assert indistinct_groups(4, []) == [(0, 1, 2, 3)]
    assert indistinct_groups(4, list(combinations(range(4), 2))) == [(0,), (1,), (2,), (3,)]
    assert indistinct_groups(4, [(0, 2), (0, 3), (1, 3)]) == [(0, 1), (1, 2), (2, 3)]
    # The middle one is told apart from both, which are not from each other.
    assert indistinct_groups(3, [(0, 1), (1, 2)]) == [(0, 2), (1,)]


@given(
    st.integers(2, 7).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.sampled_from(list(combinations(range(n), 2)))))
    )
)
def test_two_share_a_group_exactly_if_they_are_not_told_apart(
    drawn: tuple[int, set[tuple[int, int]]],
) -> None:
    n, apart = drawn
    groups = [set(group) for group in indistinct_groups(n, apart)]
    for pair in combinations(range(n), 2):
        assert any(group.issuperset(pair) for group in groups) == (pair not in apart)
    assert not any(one < other for one in groups for other in groups)
    assert set.union(*groups) == set(range(n))


def test_a_ranking() -> None:
    random = np.random.default_rng(0)
    seeds = random.normal(0, 0.05, 8)
    values = {
        name: level + seeds + random.normal(0, 0.01, 8)
        for name, level in (("b", 0.5), ("a", 0.8), ("c", 0.5))
    }
    ranking = rank(values)
    assert ranking.standings[0].name == "a"
    assert sorted(map(sorted, ranking.groups)) == [["a"], ["b", "c"]]
    assert not ranking.too_few
    best = ranking.pairs[0]
    assert (best.first, best.wins, best.told_apart, best.more_seeds) == ("a", 8, True, 0)
    assert best.p == smallest_p(8)
    assert best.p_holm == 3 * smallest_p(8)
    difference = values["a"] - values[best.second]
    assert best.difference == pytest.approx(difference.mean())
    assert best.sd == pytest.approx(difference.std(ddof=1))
    assert best.ci95 == pytest.approx(tuple(stats.ttest_1samp(difference, 0).confidence_interval(0.95)))
    last = ranking.pairs[-1]
    assert (last.told_apart, last.more_seeds >= 1) == (False, True)


def test_lower_is_better_turns_the_ranking_and_nothing_else() -> None:
    values = {"a": SIX, "b": SIX[::-1] + 0.1, "c": SIX**2}
    up, down = rank(values), rank(values, higher_is_better=False)
    assert [s.name for s in up.standings] == [s.name for s in down.standings][::-1]
    assert {frozenset((p.first, p.second)): p.p for p in up.pairs} == {
        frozenset((p.first, p.second)): p.p for p in down.pairs
    }
    assert all(pair.difference <= 0 for pair in down.pairs)
    assert down.pairs[-1].wins == 6


@pytest.mark.parametrize("test", ["sign-flip", "t"])
@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
def test_rounding_errors_tell_no_methods_apart(test: Test, bounds: tuple[float, float] | None) -> None:
    values = {"a": [0.1 + 0.2 + 0.3] * 7, "b": [0.3 + 0.2 + 0.1] * 7}
    assert values["a"] != values["b"]
    [pair] = rank(values, test=test, bounds=bounds).pairs
    assert (pair.difference, pair.p, pair.told_apart, pair.wins) == (0.0, 1.0, False, 0)
    assert pair.ci95 == (0.0, 0.0)


def test_equal_differences_of_unknown_resolution_say_nothing_about_the_spread() -> None:
    """The t test counts signs then; an interval without a width would contradict it."""
    values = {"a": [0.5, 0.625, 0.75], "b": [0.25, 0.375, 0.5]}
    pair = rank(values, test="t").pairs[0]
    assert pair.p == 0.25 and not pair.told_apart
    assert all(math.isnan(edge) for edge in pair.ci95)
    assert pair.more_seeds == 3
    finer = rank(values, test="t", resolution=0.01).pairs[0]
    assert finer.ci95[0] < finer.difference < finer.ci95[1]


def test_too_few_seeds_are_said_plainly() -> None:
    five = {"a": [0.9, 0.8, 0.9, 0.8, 0.9], "b": [0.1, 0.2, 0.1, 0.1, 0.2]}
    ranking = rank(five)
    assert ranking.groups == ()
    assert not any(standing.groups for standing in ranking.standings)
    assert ranking.too_few.startswith("with 5 seeds the smallest possible p of a sign-flip test is 0.0625: ")
    assert ranking.too_few.endswith("at least 6 seeds are needed")
    assert ranking.pairs[0].more_seeds == 1
    three = rank({**five, "c": [0.5, 0.4, 0.5, 0.5, 0.4]})
    assert "and 0.188 after Holm's correction for 3 pairs" in three.too_few
    assert rank(five, test="t").groups == (("a",), ("b",))
    assert not rank(five, test="t").too_few
    one = rank({"a": [0.9], "b": [0.1]}, test="t")
    assert one.too_few == "1 seed cannot be tested: a t test needs at least 2"
    assert math.isnan(one.pairs[0].more_seeds)


def test_a_ranking_as_json_has_no_undefined_numbers() -> None:
    ranking = json.loads(json.dumps(rank({"a": [0.9], "b": [0.1]}).as_json(), allow_nan=False))
    assert ranking["ranking"][0] == {
        "method": "a",
        "mean": 0.9,
        "sd": None,
        "ddof": 1,
        "ci95": [None, None],
        "interval": "t",
        "bootstrap95": None,
        "n": 1,
        "groups": [],
    }
    assert ranking["pairs"][0]["more_seeds"] is None
    assert ranking["groups"] == []
    assert ranking["too_few_seeds"].startswith("with 1 seed the smallest possible p")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": [0.1]}, "at least two methods are required, got 1"),
        ({"a": [0.1, 0.2], "b": [0.1]}, r"got different numbers \(a 2, b 1\)"),
        ({"a": [], "b": []}, "no seed has a value"),
        ({"a": [0.1, np.nan], "b": [0.1, 0.2]}, "finite"),
    ],
)
def test_what_cannot_be_ranked(values: dict[str, list[float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rank(values)


def test_a_baseline_is_compared_with_all_others_and_nothing_else() -> None:
    random = np.random.default_rng(1)
    values = {
        name: 0.5 + random.normal(0, 0.01, 8) + level for name, level in zip("abcdef", range(6), strict=True)
    }
    ranking = rank(values, baseline="c")
    assert [(pair.first, pair.second) for pair in ranking.pairs] == [(name, "c") for name in "fedba"]
    assert [pair.difference > 0 for pair in ranking.pairs] == [True, True, True, False, False]
    assert (ranking.tests, ranking.groups, ranking.baseline) == (5, (), "c")
    assert ranking.pairs[0].p_holm == 5 * smallest_p(8)
    # All 15 pairs would need more seeds for the same level.
    assert not ranking.too_few and rank({name: row[:7] for name, row in values.items()}).too_few
    with pytest.raises(InputError, match="unknown baseline 'g'"):
        rank(values, baseline="g")


def test_other_metrics_can_be_corrected_together() -> None:
    values = {"a": 0.5 + SIX, "b": 0.5 - SIX / 3}
    alone, together = rank(values), rank(values, other_p=[0.2, 0.3, 0.4], role="corrected")
    assert together.pairs[0].p == alone.pairs[0].p
    assert together.pairs[0].p_holm == pytest.approx(4 * alone.pairs[0].p)
    assert (together.tests, together.as_json()["role"]) == (4, "corrected")


def test_four_metrics_find_too_much_unless_they_are_corrected() -> None:
    random = np.random.default_rng(0)
    rows = math.sqrt(0.3) * random.normal(size=(1000, 1, 8)) + math.sqrt(0.7) * random.normal(
        size=(1000, 4, 8)
    )
    p = p_values(rows.reshape(-1, 8), "sign-flip")[0].reshape(1000, 4)
    assert (p.min(axis=1) <= 0.05).mean() > 0.12
    assert (p[:, 0] <= 0.05).mean() <= 0.07
    assert np.mean([min(holm(row)) <= 0.05 for row in p]) <= 0.07


def test_intervals_of_a_ranking_stay_within_what_is_possible() -> None:
    values = {"a": [0.99, 1.0, 0.96], "b": [0.0, 0.02, 0.0]}
    assert rank(values).standings[0].over.ci95[1] > 1
    ranking = rank(values, bounds=(0, 1))
    edges = [edge for standing in ranking.standings for edge in standing.over.ci95]
    assert all(0 <= edge <= 1 for edge in edges)
    assert -1 <= ranking.pairs[0].ci95[0] <= ranking.pairs[0].ci95[1] <= 1
    # Two equal differences: the interval is as wide as the test takes the spread to be.
    same = rank({"a": [0.52, 0.62], "b": [0.5, 0.6]}, test="t", bounds=(0, 1), resolution=0.001).pairs[0]
    assert same.p > 0.05 and same.ci95[0] < 0 < same.ci95[1]


def test_the_bootstrap_is_computed_on_request_and_needs_ten_seeds() -> None:
    values = {name: np.random.default_rng(number).uniform(0.5, 0.9, 10) for number, name in enumerate("ab")}
    assert rank(values).standings[0].bootstrap95 is None
    ranking = rank(values, bootstrap=True)
    assert ranking.standings[0].bootstrap95 == bootstrap_interval(values[ranking.standings[0].name])
    assert ranking.pairs[0].bootstrap95 is not None
    with pytest.raises(InputError, match="at least 10 seeds, got 9"):
        rank({name: row[:9] for name, row in values.items()}, bootstrap=True)


@pytest.mark.parametrize("test", ["sign-flip", "t"])
def test_planned_looks_hold_the_level_that_unplanned_ones_break(test: Test) -> None:
    rows = np.random.default_rng(5).normal(size=(4000, 12))
    p = {seeds: p_values(rows[:, :seeds], test)[0] for seeds in (6, 12)}
    naive = np.mean((p[6] <= 0.05) | (p[12] <= 0.05))
    planned = np.mean((p[6] <= level_of_look([6, 12], 6)) | (p[12] <= level_of_look([6, 12], 12)))
    assert naive > 0.065
    assert planned <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 4000)


def test_levels_of_looks() -> None:
    for looks in ([6, 12], [3, 7, 20], [6, 7, 8, 9, 10]):
        levels = [level_of_look(looks, seeds) for seeds in looks]
        assert sum(levels) == pytest.approx(0.05)
        assert all(level > 0 for level in levels)
    with pytest.raises(InputError, match=r"look with 6 and 12 seeds, got 8 shared"):
        level_of_look([6, 12], 8)
    for looks in ([], [6], [12, 6], [0, 6]):
        with pytest.raises(InputError, match="at least two ascending numbers of seeds"):
            level_of_look(looks, 6)


def test_every_metric_has_a_direction() -> None:
    lower = {metric.name for metric in all_metrics() if not higher_is_better(metric.name)}
    assert lower == {"FORG", "AF", "RAF", "WF", "FORG-unlearned"} | {
        "gap-depth",
        "gap-area",
        "gap-duration",
        "SF",
        "SF-chance",
        "never-known",
    }
    with pytest.raises(InputError, match="ACCC"):
        higher_is_better("ACCC")


def _with_effect(effect: float, *, n: int) -> Vector:
    """Differences whose Hedges-corrected effect is exactly this."""
    plain = np.random.default_rng(n).normal(0, 1, n)
    spread = (plain - plain.mean()) / plain.std(ddof=1)
    d_z, g_z = _sizes(spread + 1.0)
    return np.asarray(spread + effect * d_z / g_z)
