"""Tests of paired changes between two models: known values, coverage and limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from engram.core.errors import InputError
from engram.metrics.flips import change_interval, exact_test, share_bounds, smallest_drop


def test_exact_test_is_the_binomial_test() -> None:
    lost, gained = np.meshgrid(np.arange(12), np.arange(12))
    p = exact_test(lost.ravel(), gained.ravel())
    for value, losses, gains in zip(p, lost.ravel(), gained.ravel(), strict=True):
        flips = int(losses + gains)
        expected = stats.binomtest(int(losses), flips, 0.5).pvalue if flips else 1.0
        assert value == pytest.approx(expected)


@pytest.mark.parametrize("counts", [(12, 2, 50), (0, 0, 30), (5, 0, 40), (0, 7, 40), (3, 3, 10)])
def test_interval_ends_are_where_the_score_test_rejects(counts: tuple[int, int, int]) -> None:
    """Against a score test whose restricted likelihood is maximised numerically."""
    lost, gained, total = counts
    low, high = (float(edge) for edge in change_interval(lost, gained, total))

    def statistic(change: float) -> float:
        def unlikeliness(loss: float) -> float:
            gain = loss + change
            rest = 1 - loss - gain
            terms = ((lost, loss), (gained, gain), (total - lost - gained, rest))
            return -float(sum(n * np.log(max(p, 1e-300)) for n, p in terms if n))

        smallest, largest = max(0.0, -change), (1 - change) / 2
        best = optimize.minimize_scalar(
            unlikeliness, bounds=(smallest, largest), method="bounded", options={"xatol": 1e-12}
        ).x
        variance = (2 * best + change - change**2) / total
        return float(((gained - lost) / total - change) / np.sqrt(variance))

    z = stats.norm.ppf(0.975)
    assert statistic(low) == pytest.approx(z, abs=2e-3)
    assert statistic(high) == pytest.approx(-z, abs=2e-3)


@pytest.mark.parametrize("loss", [0.002, 0.02, 0.1])
@pytest.mark.parametrize("total", [100, 500])
def test_interval_covers(loss: float, total: int) -> None:
    random = np.random.default_rng(0)
    gain = loss / 2
    lost, gained, _ = random.multinomial(total, [loss, gain, 1 - loss - gain], size=4000).T
    low, high = change_interval(lost, gained, total)
    covered = ((low <= gain - loss) & (gain - loss <= high)).mean()
    assert covered > 0.935


def test_interval_stays_within_bounds_and_is_never_a_point() -> None:
    low, high = change_interval([0, 3, 0], [0, 0, 3], [3, 3, 3])
    assert np.all(low >= -1)
    assert np.all(high <= 1)
    assert np.all(high - low > 0.1)


def test_bounds_of_a_share_are_exact() -> None:
    low, high = share_bounds([0, 1, 5, 10], 10, level=0.05)
    assert low[0] == 0
    assert high[-1] == 1
    assert stats.binom.sf(4, 10, low[2]) == pytest.approx(0.05)
    assert stats.binom.cdf(5, 10, high[2]) == pytest.approx(0.05)


@pytest.mark.parametrize("total", [200, 2000])
def test_smallest_drop_is_noticed_with_the_stated_power(total: int) -> None:
    gained = total // 100
    drop = float(smallest_drop(gained, total))
    random = np.random.default_rng(1)
    gain = gained / total
    lost, gains, _ = random.multinomial(total, [gain + drop, gain, 1 - 2 * gain - drop], size=4000).T
    noticed = (exact_test(lost, gains) < 0.05).mean()
    assert 0.68 < noticed < 0.88


def test_smallest_drop_needs_enough_samples() -> None:
    assert np.isnan(smallest_drop(0, 5))
    assert float(smallest_drop(0, 1000)) >= 6 / 1000


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(InputError, match="at most the total"):
        change_interval(5, 6, 10)
