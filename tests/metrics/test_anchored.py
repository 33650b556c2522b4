"""Curves of two levels of samples: exact at anchors, and estimated between them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics.anchored import Correction, corrected, levels_of
from engram.metrics.curve import Curve
from engram.metrics.extremes import estimate_extremes
from engram.metrics.registry import Options
from engram.metrics.summary import summarise

Bits = NDArray[np.bool_]


def course(evaluations: int, samples: int, seed: int) -> Bits:
    """Samples that are forgotten and learned again, each in its own way: `right[evaluation, sample]`."""
    draw = np.random.default_rng(seed)
    level = 0.85 - 0.5 * np.exp(-((np.arange(evaluations) - evaluations / 2) ** 2) / 40)
    ease = draw.random(samples)
    flips = draw.random((evaluations, samples)) < 0.02
    right: Bits = (ease < level[:, np.newaxis]) ^ flips
    return right


def levelled(right: Bits, small: Bits, anchors: list[int]) -> Trace:
    trace = Trace(anchors=Trace())
    assert trace.anchors is not None
    for step, row in enumerate(right):
        learning = int(step >= len(right) // 3)
        trace.add(step=step, learning=learning, task=0, right=row[small])
        if step in anchors:
            trace.anchors.add(step=step, learning=learning, task=0, right=row)
    return trace


def test_anchors_everywhere_are_the_curve_of_all_samples() -> None:
    right = course(40, 300, 0)
    small = np.arange(300) < 30
    curve = Curve.of_trace(levelled(right, small, list(range(40))))
    assert curve.accuracy[:, 0].tolist() == right.mean(axis=1).tolist()
    assert curve.total is not None and (curve.total[:, 0] == 300).all()


def test_anchors_are_exact_and_others_closer_than_the_small_part() -> None:
    right = course(120, 2000, 1)
    small = np.random.default_rng(2).permutation(2000) < 100
    anchors = [*range(0, 120, 10), 119]
    curve = Curve.of_trace(levelled(right, small, anchors))
    truth = right.mean(axis=1)
    assert curve.accuracy[anchors, 0].tolist() == truth[anchors].tolist()
    estimated = np.sqrt(np.mean((curve.accuracy[:, 0] - truth) ** 2))
    alone = np.sqrt(np.mean((right[:, small].mean(axis=1) - truth) ** 2))
    assert estimated < 0.6 * alone


def test_without_bits_deviations_count_fully() -> None:
    right = course(30, 400, 3)
    trace = levelled(right, np.arange(400) < 50, [0, 29])
    trace.bits = [b""] * len(trace)
    accuracy, _ = corrected(trace)
    small, truth = right[:, :50].mean(axis=1), right.mean(axis=1)
    difference = truth - small
    line = np.interp(np.arange(30), [0, 29], difference[[0, 29]])
    assert accuracy == pytest.approx(np.clip(small + line, 0, 1))


def test_a_deviation_counts_as_far_as_it_is_more_than_noise() -> None:
    correction = Correction.between([0, 1, 2], [0, 2])
    small, whole = np.array([[0.5], [0.3], [0.5]]), np.array([[0.6], [0.6]])
    for noise, expected in ((0.0, 0.4), (0.01, 0.45), (0.04, 0.6), (1.0, 0.6)):
        estimated = correction.apply(small, whole, np.full((3, 1), noise))
        assert estimated[:, 0] == pytest.approx([0.6, expected, 0.6])


def test_the_noise_is_the_variance_of_deviations_over_samples() -> None:
    right = course(25, 60, 4)
    correction = Correction.between(list(range(25)), [0, 7, 24])
    weights = np.full((60, 1), 1 / 60, dtype=np.float32)
    answers = right.astype(np.float64)
    line = (1 - correction.weight) * answers[correction.anchors[correction.before]]
    line += correction.weight * answers[correction.anchors[correction.after]]
    expected = (answers - line).var(axis=1)
    assert correction.noise(right.astype(np.uint8), weights)[:, 0] == pytest.approx(expected, abs=1e-6)


def test_estimates_stay_between_0_and_1() -> None:
    small, whole = np.array([[0.2], [0.0], [0.2]]), np.array([[0.1], [0.1]])
    assert Correction.between([0, 1, 2], [0, 2]).apply(small, whole)[1, 0] == 0.0


def test_an_anchor_without_an_evaluation_is_refused() -> None:
    trace = levelled(course(5, 40, 0), np.arange(40) < 20, [0, 4])
    trace.step = [0, 1, 2, 3, 5]
    with pytest.raises(InputError, match="step 4"):
        Curve.of_trace(trace)


def test_metrics_of_single_samples_say_what_they_count() -> None:
    trace = levelled(course(60, 400, 5), np.arange(400) < 40, [0, 30, 59])
    measured = summarise(trace)
    assert (
        measured.why["always-known"] == "counts the 40 of 400 samples of each task that every evaluation asks"
    )
    assert "min-ACC" not in measured.why
    levels = levels_of(trace)
    assert levels is not None and levels.share == pytest.approx((60 * 40 + 3 * 360) / (60 * 400))


def test_intervals_cover_the_value_of_all_samples() -> None:
    """At least 90 % of 30 intervals of 95 %; they are narrower than those of the small part alone."""
    options, inside, ratios = Options(windows=(10,)), [], []
    for seed in range(30):
        right = course(90, 1000, 100 + seed)
        small = np.random.default_rng(seed).permutation(1000) < 60
        trace = levelled(right, small, [*range(0, 90, 15), 89])
        estimate = estimate_extremes(trace, sizes={0: 1000}, options=options).values["WF10"]
        truth = summarise(levelled(right, small, list(range(90))), windows=(10,)).final["WF10"]
        inside.append(estimate.low <= truth <= estimate.high)
        trace.anchors = None
        alone = estimate_extremes(trace, sizes={0: 1000}, options=options).values["WF10"]
        ratios.append((estimate.high - estimate.low) / (alone.high - alone.low))
    assert np.mean(inside) >= 0.9
    assert np.mean(ratios) < 0.95


def test_with_all_samples_at_every_anchor_and_evaluation_the_interval_has_no_width() -> None:
    right = course(40, 100, 6)
    trace = levelled(right, np.ones(100, dtype=np.bool_), [0, 39])
    assert estimate_extremes(trace, sizes={0: 100}).exact
