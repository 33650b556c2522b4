"""Extremes on subsets: less biased than as measured, exact where nothing is to be corrected, repeatable."""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics.extremes import (
    REDRAWN,
    Estimate,
    Extremes,
    estimate_extremes,
    mean_extremes,
)
from engram.metrics.history import Curve
from engram.metrics.registry import METRICS, computed, metric
from engram.metrics.summary import summarise

Answers = NDArray[np.bool_]
EXTREMES = {"AF", "min-ACC", "WC-ACC", "WF10", "WF100", "WFinf", "WP10", "WP100", "WPinf"}


def traced(tasks: Mapping[int, Answers], *, learned: int = 20) -> Trace:
    """The trace of `right[evaluation, sample]` for each task; each is learned for some evaluations."""
    trace = Trace()
    for step in range(len(next(iter(tasks.values())))):
        learning = min(step // learned, len(tasks) - 1)
        for task, right in tasks.items():
            if task <= learning:
                trace.add(step=step + 1, learning=learning, task=task, right=right[step])
    return trace


def noisy(samples: int, *, seed: int = 0, evaluations: int = 60) -> dict[int, Answers]:
    """Two tasks whose samples differ in difficulty, with a dip and with noise."""
    draw = np.random.default_rng(seed)
    level = 0.85 - 0.3 * np.exp(-0.5 * ((np.arange(evaluations) - 30) / 6) ** 2)
    return {
        task: draw.random(samples) + 0.15 * draw.normal(size=(evaluations, samples)) < level[:, np.newaxis]
        for task in range(2)
    }


def test_every_extreme_is_estimated_and_nothing_else() -> None:
    extremes = estimate_extremes(traced(noisy(50)))
    assert extremes.values.keys() == EXTREMES and not extremes.why and not extremes.exact
    with_classes = estimate_extremes(traced(noisy(50)), classes_seen=[2, 4])
    assert with_classes.values.keys() == EXTREMES | {"RAF"}
    assert {name for name, metric in computed().items() if metric.extreme} == EXTREMES | {"RAF"}


@pytest.mark.parametrize("right", [0.0, 0.35, 1.0])
def test_constant_answers_need_no_correction(right: float) -> None:
    answers = np.tile(np.arange(100) < 100 * right, (60, 1))
    trace = traced({0: answers, 1: answers})
    measured, extremes = summarise(trace).final, estimate_extremes(trace).values
    for name in EXTREMES:
        assert extremes[name].corrected == pytest.approx(measured[name], abs=1e-12)
    for name in ("WF10", "WF100", "WP10"):
        assert extremes[name].corrected == extremes[name].low == 0


@pytest.mark.parametrize("samples", [100, 300])
def test_a_minimum_of_zero_stays_exactly_zero(samples: int) -> None:
    answers = noisy(samples)
    answers[0][40:] = False
    lowest = estimate_extremes(traced(answers)).values["min-ACC"]
    # As many samples without a right answer do not exclude that a few others have one: about 3 / n.
    assert lowest.corrected == lowest.low == 0 and 2.5 / samples < lowest.high < 3 / samples


def test_without_an_error_in_sight_the_interval_has_a_width_in_every_metric() -> None:
    """As many samples without a change do not exclude that others change, however many tasks there are."""
    right = np.ones((60, 50), dtype=np.bool_)
    one_task, two_tasks = Trace(), traced({0: right, 1: right})
    for step in range(1, 61):
        one_task.add(step=step, learning=0, task=0, right=right[step - 1])
    for trace in (one_task, two_tasks):
        extremes = estimate_extremes(trace, classes_seen=[2, 4][: 1 + max(trace.learning)])
        assert extremes.values and not extremes.exact
        assert all(value.high - value.low > 0.01 for value in extremes.values.values())


def test_whole_test_sets_are_exact() -> None:
    trace = traced(noisy(50))
    extremes = estimate_extremes(trace, sizes={0: 50, 1: 50})
    measured = summarise(trace).final
    assert extremes.exact
    assert all(value == Estimate(*[measured[name]] * 3) for name, value in extremes.values.items())


def test_the_interval_shrinks_as_the_subset_becomes_the_whole_set() -> None:
    trace = traced(noisy(100))
    widths = []
    for size in (101, 150, None):
        one = estimate_extremes(trace, sizes=None if size is None else {0: size, 1: size}).values["WF10"]
        widths.append(one.high - one.low)
    # The square root of 1 − n/N: 0.1, 0.58 and 1.
    assert 0 < widths[0] < 0.4 * widths[1] < 0.4 * widths[2]


def test_one_whole_task_leaves_only_the_noise_of_the_other() -> None:
    trace = traced(noisy(100))
    of_both, of_one = (estimate_extremes(trace, sizes=sizes).values["WF10"] for sizes in (None, {0: 100}))
    assert of_one.high - of_one.low == pytest.approx((of_both.high - of_both.low) / np.sqrt(2), rel=0.3)


def test_the_order_of_samples_does_not_matter() -> None:
    answers = noisy(101)
    mixed = {task: right[:, np.random.default_rng(1).permutation(101)] for task, right in answers.items()}
    sizes = {0: 300, 1: 150}
    one, other = (estimate_extremes(traced(one), sizes=sizes) for one in (answers, mixed))
    assert one == other == estimate_extremes(traced(answers), sizes=sizes)


def test_pieces_do_not_change_the_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced(noisy(100))
    whole = estimate_extremes(trace)
    monkeypatch.setattr("engram.metrics.extremes._TABLES", 1)
    monkeypatch.setattr("engram.metrics.extremes._BLOCK", 700)
    assert estimate_extremes(trace) == whole


def test_less_biased_and_covering_over_many_subsets() -> None:
    """A small version of `python -m benchmarks extremes`, on simulated answers."""
    everything = noisy(1000, evaluations=80)
    sizes = {0: 1000, 1: 1000}
    truth = summarise(traced(everything)).final
    errors: dict[str, list[tuple[float, float, bool]]] = {"min-ACC": [], "WF10": []}
    for seed in range(30):
        draw = np.random.default_rng(seed)
        trace = traced({task: right[:, draw.permutation(1000)[:60]] for task, right in everything.items()})
        measured, extremes = summarise(trace, only=errors).final, estimate_extremes(trace, sizes=sizes).values
        for name, rows in errors.items():
            one = extremes[name]
            error = measured[name] - truth[name], one.corrected - truth[name]
            rows.append((*error, one.low <= truth[name] <= one.high))
    for rows in errors.values():
        as_measured, corrected, covered = np.mean(rows, axis=0)
        assert abs(corrected) < 0.5 * abs(as_measured)
        assert covered >= 0.8


def test_ends_on_whole_test_sets_are_exact_for_metrics_of_task_ends() -> None:
    trace = traced(noisy(50))
    ends = Curve(
        step=np.array([20, 60]), learning=np.array([0, 1]), accuracy=np.array([[0.9, np.nan], [0.6, 0.8]])
    )
    extremes = estimate_extremes(trace, ends=ends).values
    assert extremes["AF"].low == extremes["AF"].high == pytest.approx(0.3)
    assert extremes["min-ACC"].low < extremes["min-ACC"].high


@pytest.mark.parametrize(
    ("changed", "reason"),
    [("no bits", "needs a trace with bits"), ("sizes", "the same samples"), ("few", "at least 10 samples")],
)
def test_what_cannot_be_corrected_says_why(changed: str, reason: str) -> None:
    trace = traced(noisy(5 if changed == "few" else 50))
    if changed == "no bits":
        trace.bits = [b""] * len(trace)
    elif changed == "sizes":
        trace.add(step=61, learning=1, task=0, right=np.ones(40, dtype=np.bool_))
    extremes = estimate_extremes(trace)
    assert not extremes.values and reason in extremes.why
    assert Extremes.of_json(extremes.as_json()) == extremes


def test_redrawn_subsets_curves_and_matrices_are_not_corrected() -> None:
    trace = traced(noisy(50))
    assert estimate_extremes(trace, redrawn=True) == Extremes(why=REDRAWN)
    assert "bits" in estimate_extremes(Curve.of_trace(trace)).why
    assert "bits" in estimate_extremes(np.eye(2)).why


def test_a_test_set_has_at_least_the_samples_evaluated() -> None:
    with pytest.raises(InputError, match="task 1 must have at least the 50 samples evaluated, got 49"):
        estimate_extremes(traced(noisy(50)), sizes={1: 49})


def test_estimates_stay_within_the_range_of_the_metric() -> None:
    draw = np.random.default_rng(0)
    trace = traced({task: draw.random((60, 20)) < 0.02 for task in range(2)})
    for name, value in estimate_extremes(trace).values.items():
        least, most = computed()[name].extreme or (0, 0)
        assert least <= value.low <= value.corrected <= value.high <= most


def test_several_runs_are_averaged() -> None:
    one, other = Extremes({"WF10": Estimate(0.1, 0.0, 0.2)}), Extremes({"WF10": Estimate(0.3, 0.2, 0.6)})
    assert mean_extremes([one, other]).values["WF10"] == Estimate(0.2, 0.1, 0.4)
    assert mean_extremes([]) == Extremes()


def test_a_plugin_declares_its_extreme_once() -> None:
    try:

        @metric("deepest", higher_is_better=True, needs="curve", extreme=(0.0, 1.0))
        def deepest(curve: Curve) -> float:
            """The lowest accuracy of all."""
            return float(np.nanmin(curve.accuracy))

        @metric("broken", higher_is_better=True, needs="curve", extreme=(0.0, 1.0))
        def broken(curve: Curve) -> float:
            """Fails."""
            raise ValueError

        trace = traced(noisy(50))
        extremes = estimate_extremes(trace).values
        assert extremes["deepest"].corrected > summarise(trace, only=["deepest"]).final["deepest"]
        assert "broken" not in extremes
    finally:
        for name in ("deepest", "broken"):
            METRICS.remove(name)


@pytest.mark.parametrize(
    ("needs", "extreme", "message"),
    [("bits", (0.0, 1.0), "must need no more than"), ("curve", (1.0, 0.0), "lowest and the highest")],
)
def test_an_extreme_that_cannot_be_drawn_is_refused(
    needs: str, extreme: tuple[float, float], message: str
) -> None:
    with pytest.raises(InputError, match=message):

        @metric("refused", higher_is_better=True, needs=needs, extreme=extreme)
        def refused(curve: Curve) -> float:
            return 0.0
