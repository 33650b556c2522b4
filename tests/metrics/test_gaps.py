"""Stability gaps against the plainest implementation."""

import numpy as np
import pytest
from hypothesis import given, settings
from tests.laws.histories import curves

from engram.core.errors import InputError
from engram.metrics.gaps import TOLERANCE, gap_area, gap_depth, gap_duration, mean_recovery, stability_gaps
from engram.metrics.history import Curve


@settings(deadline=None, max_examples=80)
@given(curve=curves())
def test_gaps_are_those_of_the_plain_implementation(curve: Curve) -> None:
    expected = []
    learning = [set(curve.phases[phase]) for phase in curve.learning]
    starts = [n for n in range(1, len(curve)) if curve.learning[n] != curve.learning[n - 1]]
    for start, stop in zip(starts, [*starts[1:], len(curve)], strict=False):
        for task in range(curve.accuracy.shape[1]):
            learned = any(task in learning[n] for n in range(start))
            series = [(curve.step[n], curve.accuracy[n, task]) for n in range(stop)]
            before = [(s, a) for s, a in series[:start] if not np.isnan(a)]
            inside = [(s, a) for s, a in series[start:] if not np.isnan(a)]
            if not learned or task in learning[start] or not before or not inside:
                continue
            step, reference = before[-1]
            lowest = min(a for _, a in inside)
            when = next(s for s, a in inside if a == lowest)
            area, previous = 0.0, step
            for s, a in inside:
                area, previous = area + max(0.0, reference - a) * (s - previous), s
            back = [s for s, a in inside if s >= when and a >= reference - TOLERANCE]
            recovered = 0 if lowest >= reference - TOLERANCE else back[0] - step if back else None
            expected.append((task, max(0.0, reference - lowest), when - step, area, recovered))
    found = [
        (gap.task, gap.depth, gap.updates_to_lowest, gap.area, gap.updates_to_recovery)
        for gap in stability_gaps(curve)
    ]
    assert found == [pytest.approx(row) for row in expected]
    depths = gap_depth(curve).by_task
    for task in range(curve.accuracy.shape[1]):
        own = [row[1] for row in expected if row[0] == task]
        np.testing.assert_allclose(depths[task], np.mean(own) if own else np.nan, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(curve=curves())
def test_the_area_is_at_most_the_depth(curve: Curve) -> None:
    depth, area, duration = (function(curve).values for function in (gap_depth, gap_area, gap_duration))
    known = ~np.isnan(depth)
    assert (known == ~np.isnan(area)).all()
    assert (area[known] <= depth[known] + 1e-12).all()
    assert ((duration[known] >= 0) & (duration[known] <= 1)).all()


def test_a_gap_of_hand_counted_numbers() -> None:
    accuracy = np.array([[0.9, np.nan], [0.5, 0.1], [0.3, 0.5], [0.895, 0.9], [0.8, 0.9]])
    curve = Curve(np.array([10, 12, 14, 20, 30]), np.array([0, 1, 1, 1, 1]), accuracy)
    (gap,) = stability_gaps(curve)
    assert (gap.lowest_step, gap.updates_to_lowest, gap.updates_to_recovery) == (14, 4, 10)
    assert gap.area == pytest.approx(0.4 * 2 + 0.6 * 2 + 0.005 * 6 + 0.1 * 10)
    assert gap.transient == pytest.approx(0.5)
    assert mean_recovery([gap]) == 10
    (strict,) = stability_gaps(curve, tolerance=0)
    assert strict.updates_to_recovery is None
    with pytest.raises(InputError, match="tolerance must be at least 0, got -1"):
        stability_gaps(curve, tolerance=-1)


@pytest.mark.parametrize("samples", [100, 1000])
def test_a_task_one_point_below_is_back_whatever_the_rounding(samples: int) -> None:
    lost = samples // 100
    for before in range(2 * lost, samples + 1):
        first = np.array([before, before - 2 * lost, before - lost]) / samples
        accuracy = np.column_stack([first, [np.nan, 0.5, 0.5]])
        curve = Curve(np.arange(3), np.array([0, 1, 1]), accuracy)
        (gap,) = stability_gaps(curve)
        assert gap.recovered_step == 2
        assert gap_duration(curve).final == 1.0
        curve.accuracy[2, 0] -= 1 / samples
        (gap,) = stability_gaps(curve)
        assert gap.recovered_step is None
