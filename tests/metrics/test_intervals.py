"""Intervals over seeds: against scipy, by simulation, and where they have nothing to say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from engram.core.errors import InputError
from engram.metrics.intervals import bootstrap_interval, over_seeds

SKEWED = np.array([0.91, 0.95, 0.97, 0.98, 0.985, 0.99, 0.99, 1.0, 1.0, 1.0])


def test_the_t_interval_is_scipys() -> None:
    low, high = stats.t.interval(0.95, 9, SKEWED.mean(), stats.sem(SKEWED))
    assert over_seeds(SKEWED).ci95 == pytest.approx((low, high))


def test_the_bootstrap_is_scipys_at_the_widened_level() -> None:
    n = len(SKEWED)
    reach = np.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1)
    theirs = stats.bootstrap(
        (SKEWED,),
        np.mean,
        confidence_level=2 * stats.norm.cdf(reach) - 1,
        method="BCa",
        n_resamples=20_000,
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert bootstrap_interval(SKEWED, draws=20_000) == pytest.approx(tuple(theirs), abs=0.002)


def test_a_bounded_metric_stays_within_its_bounds_where_the_t_interval_does_not() -> None:
    values = [0.7, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert over_seeds(values).ci95[1] > 1
    low, high = bootstrap_interval(values)
    assert 0.7 <= low < np.mean(values) < high <= 1


def test_the_same_values_give_the_same_interval_whatever_else_is_drawn() -> None:
    first = bootstrap_interval(SKEWED)
    np.random.default_rng().random()
    assert bootstrap_interval(SKEWED) == first
    assert bootstrap_interval(SKEWED, seed=1) != first
    assert bootstrap_interval([*SKEWED, np.nan]) == first


def test_too_little_to_say() -> None:
    assert np.isnan([*bootstrap_interval([]), *bootstrap_interval([0.5])]).all()
    assert bootstrap_interval([0.3, 0.3, 0.3]) == (0.3, 0.3)


@pytest.mark.parametrize("options", [{"level": 0.0}, {"level": 95.0}, {"draws": 10}])
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match=rf"^{next(iter(options))} must be .*, got"):
        bootstrap_interval(SKEWED, **options)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 1000).map(lambda k: k / 1000), min_size=2, max_size=12))
def test_the_bootstrap_lies_within_the_values_around_their_mean(values: list[float]) -> None:
    low, high = bootstrap_interval(values, draws=200)
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12


@pytest.mark.parametrize(("n", "least"), [(5, 0.88), (10, 0.91), (20, 0.925)])
def test_intervals_cover_the_mean_of_normal_values(n: int, least: float) -> None:
    random = np.random.default_rng(n)
    samples = random.normal(0.6, 0.1, (1000, n))
    bootstrap = [bootstrap_interval(row, draws=400) for row in samples]
    student = [over_seeds(row).ci95 for row in samples]
    # The standard error of a share near 95 % of 1,000 is 0.7 %.
    assert np.mean([low <= 0.6 <= high for low, high in student]) == pytest.approx(0.95, abs=0.02)
    assert least <= np.mean([low <= 0.6 <= high for low, high in bootstrap]) <= 0.97


def test_the_bootstrap_covers_a_skewed_mean_at_least_as_often_as_the_t_interval() -> None:
    samples = np.random.default_rng(3).beta(8, 1, (1000, 10))
    bootstrap = np.mean(
        [low <= 8 / 9 <= high for low, high in (bootstrap_interval(x, draws=400) for x in samples)]
    )
    student = np.mean([low <= 8 / 9 <= high for low, high in (over_seeds(x).ci95 for x in samples)])
    assert bootstrap >= student - 0.005
    assert bootstrap >= 0.9
