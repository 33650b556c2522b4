"""Intervals over seeds: against scipy, by simulation, and where they have nothing to say."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from engram.core.errors import InputError
from engram.metrics.intervals import bootstrap_interval, over_seeds
from engram.metrics.registry import all_metrics, bounds_of, metric

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
    summary = over_seeds(values, bounds=(0, 1))
    low, high = summary.ci95
    assert 0 < low < np.mean(values) < high < 1
    assert summary.interval == "logit"
    # Forgetting is between -1 and 1: the same interval, moved and stretched.
    stretched = over_seeds([2 * value - 1 for value in values], bounds=(-1, 1)).ci95
    assert stretched == pytest.approx((2 * low - 1, 2 * high - 1))


def test_the_logit_interval_by_hand() -> None:
    values = np.array([0.90, 0.94, 0.98])
    reach = stats.t.ppf(0.975, 2) * values.std(ddof=1) / np.sqrt(3)
    on_scale = stats.logistic.ppf(0.94) + np.array([-1, 1]) * reach / (0.94 * 0.06)
    assert over_seeds(values, bounds=(0, 1)).ci95 == pytest.approx(stats.logistic.cdf(on_scale))


@given(
    st.lists(st.integers(0, 1000).map(lambda k: k / 1000), min_size=2, max_size=12),
    st.sampled_from([0.0, 0.001]),
)
def test_no_interval_of_an_accuracy_leaves_its_range(values: list[float], resolution: float) -> None:
    summary = over_seeds(values, bounds=(0, 1), resolution=resolution)
    low, high = summary.ci95
    assert 0 <= low <= summary.mean + 1e-12
    assert summary.mean - 1e-12 <= high <= 1
    # With one test sample as the least change, no interval is without width.
    assert not resolution or low < high


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize(("a", "b"), [(30, 1), (95, 5), (1, 20)])
def test_intervals_near_the_bounds_cover(n: int, a: float, b: float) -> None:
    samples, mean = np.random.default_rng(n).beta(a, b, (1500, n)), a / (a + b)
    logit = np.array([over_seeds(row, bounds=(0, 1)).ci95 for row in samples])
    student = np.array([over_seeds(row).ci95 for row in samples])

    def covered(edges: npt.NDArray[np.float64]) -> float:
        return float(((edges[:, 0] <= mean) & (mean <= edges[:, 1])).mean())

    assert 0.91 <= covered(logit) <= 0.97
    assert covered(logit) > covered(student)
    if n == 3:
        assert ((student[:, 0] < 0) | (student[:, 1] > 1)).mean() > 0.3


def test_perfect_seeds_have_an_interval_as_wide_as_the_test_set_allows() -> None:
    few, many = (over_seeds([1.0, 1.0, 1.0], bounds=(0, 1), resolution=1 / m).ci95 for m in (100, 10_000))
    assert few[1] == many[1] == 1
    assert few[0] < many[0] < 1
    assert over_seeds([1.0, 1.0, 1.0], bounds=(0, 1)).ci95 == (1.0, 1.0)
    low, high = over_seeds([0.0] * 5, bounds=(0, 1), resolution=1 / 1000).ci95
    assert low == 0 < high < 0.01
    middle = over_seeds([0.85] * 5, bounds=(0, 1), resolution=1 / 1000).ci95
    assert middle[0] < 0.85 < middle[1]
    # Half a wrong answer per run: three seeds are often perfect, and the mean is below 1 all the same.
    samples = np.random.default_rng(0).binomial(500, 0.999, (1000, 3)) / 500
    edges = np.array([over_seeds(row, bounds=(0, 1), resolution=1 / 500).ci95 for row in samples])
    assert ((edges[:, 0] <= 0.999) & (edges[:, 1] >= 0.999)).mean() >= 0.93


def test_values_beyond_the_bounds_fall_back_to_t() -> None:
    summary = over_seeds([0.9, 1.2, 1.1], bounds=(0, 1))
    assert summary == over_seeds([0.9, 1.2, 1.1])
    assert np.isnan(over_seeds([0.5], bounds=(0, 1)).ci95).all()


def test_percentages_keep_their_t_interval() -> None:
    values = [97.1, 98.0, 96.5]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert over_seeds(values, ddof=0).ci95 == pytest.approx((low, high))


def test_every_metric_of_accuracies_says_its_bounds() -> None:
    without = {metric.name for metric in all_metrics() if metric.is_ours and metric.bounds is None}
    assert without == {"FDiv", "Ω_all"}
    assert bounds_of("WF100") == (0, 1) and bounds_of("BWT") == (-1, 1) and bounds_of("nobody's") is None
    with pytest.raises(InputError, match=r"bounds=\(1, 0\): the lowest value must be below the highest"):
        metric("turned", higher_is_better=True, bounds=(1, 0))(lambda acc: 0.5)


def test_the_same_values_give_the_same_interval_whatever_else_is_drawn() -> None:
    first = bootstrap_interval(SKEWED)
    np.random.default_rng().random()
    assert bootstrap_interval(SKEWED) == first
    assert bootstrap_interval(SKEWED, seed=1) != first
    assert bootstrap_interval([*SKEWED, np.nan]) == first


def test_too_little_to_say() -> None:
    for n in (0, 1, 5, 9):
        with pytest.raises(InputError, match=f"needs at least 10 seeds, got {n}: "):
            bootstrap_interval([0.5] * n)
    assert bootstrap_interval([0.3] * 10) == (0.3, 0.3)


@pytest.mark.parametrize("options", [{"level": 0.0}, {"level": 95.0}, {"draws": 10}])
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match=rf"^{next(iter(options))} must be .*, got"):
        bootstrap_interval(SKEWED, **options)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 1000).map(lambda k: k / 1000), min_size=10, max_size=15))
def test_the_bootstrap_lies_within_the_values_around_their_mean(values: list[float]) -> None:
    low, high = bootstrap_interval(values, draws=200)
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12


@pytest.mark.parametrize(("n", "least"), [(10, 0.91), (20, 0.925)])
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
