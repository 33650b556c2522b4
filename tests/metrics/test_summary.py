"""All metrics at once: names, shapes, reasons, and where they come from."""

import json

import numpy as np
import pytest

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics import matrix
from engram.metrics.curve import Curve
from engram.metrics.examples import worked_curve, worked_matrix
from engram.metrics.intervals import over_seeds
from engram.metrics.summary import summarise

MATRIX_NAMES = {"ACC", "AA", "FORG", "AF", "AvgFgt", "AvgAcc", "AvgLAcc", "BWT"}
CURVE_NAMES = {
    *("min-ACC", "WC-ACC", "WF10", "WF100", "WFinf", "WP10", "WP100", "WPinf", "LCA10", "current-ACC"),
    *("gap-depth", "gap-area", "gap-duration"),
}
SAMPLE_NAMES = {"SF", "SBT", "SF-chance", "SBT-chance", "unforgettable", "never-known", "always-known"}


def trace_of(table: list[tuple[int, int, int, int]], total: int = 10) -> Trace:
    trace = Trace()
    for step, learning, task, correct in table:
        trace.add(step=step, learning=learning, task=task, right=np.arange(total) < correct)
    return trace


def test_a_matrix_allows_what_looks_at_task_ends() -> None:
    result = summarise(worked_matrix())
    assert set(result.final) == MATRIX_NAMES
    assert result.curve == {}
    assert set(result.why) == CURVE_NAMES | SAMPLE_NAMES | {
        *("RAA", "RAF", "ACC-pooled", "FWT", "FORG-unlearned"),
    }
    assert all(len(values) == 5 for values in result.by_task.values())


def test_a_history_allows_everything_but_what_needs_counts() -> None:
    result = summarise(worked_curve(), classes_seen=[2, 4, 6])
    assert set(result.final) == MATRIX_NAMES | CURVE_NAMES | {"RAA", "RAF"}
    assert set(result.curve) == CURVE_NAMES
    assert all(len(values) == 13 for values in result.curve.values())
    assert all(len(values) == 3 for values in result.by_task.values())
    assert result.final["ACC"] == pytest.approx(0.883333, abs=1e-6)
    assert result.final["WC-ACC"] == result.curve["WC-ACC"][-1] == pytest.approx(0.59)
    assert result.by_task["WF10"] == pytest.approx([0.65, 0.42, 0.15])


@pytest.mark.parametrize("name", ["AvgAcc", "AvgLAcc", "AvgFgt", "BWT", "min-ACC", "WC-ACC", "WF10", "WPinf"])
def test_values_of_each_task_average_to_the_final_value(name: str) -> None:
    result = summarise(worked_curve())
    assert np.nanmean(result.by_task[name]) == pytest.approx(result.final[name])


@pytest.mark.parametrize("name", ["ACC", "AA", "FORG", "AF", "RAA", "RAF"])
def test_values_after_each_task_end_with_the_final_value(name: str) -> None:
    result = summarise(worked_matrix(), classes_seen=[2, 4, 6, 8, 10])
    assert result.by_task[name][-1] == result.final[name]


def test_one_task_has_reasons_for_what_is_undefined() -> None:
    result = summarise(trace_of([(1, 0, 0, 5), (2, 0, 0, 9)]))
    assert result.final["ACC"] == result.final["ACC-pooled"] == 0.9
    for name in ("FORG", "AF", "BWT", "AvgFgt", "min-ACC", "LCA10"):
        assert np.isnan(result.final[name])
        assert result.why[name].startswith("undefined")
    text = json.dumps(result.as_json(), allow_nan=False)
    assert json.loads(text)["final"]["FORG"] is None


def test_task_ends_on_the_full_sets_give_the_matrix_metrics() -> None:
    watched = trace_of([(1, 0, 0, 9), (2, 1, 0, 5), (2, 1, 1, 8)])
    ends = trace_of([(1, 0, 0, 95), (2, 1, 0, 55), (2, 1, 1, 85)], total=100)
    result = summarise(watched, ends=ends)
    assert result.final["ACC"] == pytest.approx(0.7)
    assert result.final["FORG"] == pytest.approx(0.4)
    assert result.final["WC-ACC"] == pytest.approx(0.65)
    assert summarise(watched, ends=Curve.of_trace(ends).matrix()).final["ACC"] == result.final["ACC"]


def test_pooled_accuracy_differs_where_tasks_differ_in_size() -> None:
    trace = trace_of([(1, 0, 0, 10), (2, 1, 0, 0)])
    trace.add(step=2, learning=1, task=1, right=np.ones(90, dtype=np.bool_))
    result = summarise(trace)
    assert result.final["ACC"] == 0.5
    assert result.final["ACC-pooled"] == pytest.approx(0.9)


def test_forward_transfer_where_unseen_tasks_are_watched_from_the_start() -> None:
    table = [(0, 0, 0, 1), (0, 0, 1, 2), (1, 0, 0, 9), (1, 0, 1, 5), (2, 1, 0, 6), (2, 1, 1, 8)]
    assert summarise(trace_of(table)).final["FWT"] == pytest.approx(0.3)
    assert "FWT" not in summarise(trace_of(table[2:])).final
    with_initial = summarise(trace_of(table[2:]), initial=np.array([0.0, 0.1]))
    assert with_initial.final["FWT"] == pytest.approx(0.4)


def test_joint_training_counts_classes_by_phase() -> None:
    trace = trace_of([(1, 0, task, 6 + task) for task in range(3)])
    result = summarise(trace, phases=[(0, 1, 2)], classes_seen=[6])
    assert result.final["ACC"] == result.final["RAA"] == pytest.approx(0.7)
    assert np.isnan(result.final["RAF"])
    assert "RAF" in result.why


def test_tasks_that_are_watched_but_not_learned_need_no_class_counts() -> None:
    table = [(1, 0, 0, 9), (1, 0, 1, 5), (1, 0, 2, 1), (2, 1, 0, 6), (2, 1, 1, 8), (2, 1, 2, 0)]
    watched = summarise(trace_of(table), classes_seen=[2, 4])
    learned = summarise(trace_of([row for row in table if row[2] <= row[1]]), classes_seen=[2, 4])
    for name in ("RAA", "RAF"):
        assert watched.final[name] == learned.final[name] == pytest.approx({"RAA": 0.7, "RAF": 0.3}[name])
        assert np.isnan(watched.by_task[name][2])


def test_input_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="5 tasks need 5 class counts, got 2"):
        summarise(worked_matrix(), classes_seen=[2, 4])
    with pytest.raises(InputError, match="expected a trace, a curve or an accuracy matrix, got list"):
        summarise([[0.5]])  # type: ignore[arg-type]


def test_windows_may_be_any() -> None:
    result = summarise(worked_curve(), windows=[2], beta=2, span="printed", mode="refcode")
    assert result.final["WF2"] == pytest.approx(0.34)
    assert result.final["min-ACC"] == pytest.approx(0.25)
    assert "WF10" not in result.final


def test_intervals_over_seeds() -> None:
    five = over_seeds([0.1, 0.2, 0.3, 0.4, 0.5])
    # 2.776445 is Student's t for four degrees of freedom.
    assert five.ci95[1] - five.mean == pytest.approx(2.776445 * five.sd / 5**0.5, abs=1e-6)
    assert over_seeds([0.1, 0.3], ddof=0).sd == pytest.approx(0.1)
    assert over_seeds([0.1, 0.3], ddof=0).ci95 == over_seeds([0.1, 0.3]).ci95
    assert over_seeds([0.1, np.nan, 0.3]).n == 2


def test_intervals_of_one_or_no_seed() -> None:
    one, none = over_seeds([0.5]), over_seeds([np.nan])
    assert (one.mean, one.n) == (0.5, 1)
    assert over_seeds([0.5], ddof=0).sd == 0.0
    assert np.isnan([one.sd, *one.ci95, none.mean, none.sd, *none.ci95]).all()
    with pytest.raises(InputError, match="ddof"):
        over_seeds([0.5], ddof=2)


def test_tasks_that_are_never_learned_are_counted() -> None:
    """Two versions of a network on five slices: a slice falls from .96 to .008, and a metric says so."""
    before, after = [0.9, 0.5, 0.96, 0.9, 0.8], [0.9, 0.9, 0.008, 0.9, 0.8]
    result = summarise(matrix.accuracy_matrix([before, after]))
    assert result.final["FORG"] == 0.0
    assert result.final["FORG-unlearned"] == pytest.approx((0.96 - 0.008) / 3)
    reservation = (
        "does not count the 3 tasks that were evaluated but never learned "
        "(task 2 fell from 96.0 % to 0.8 %); see FORG-unlearned"
    )
    for name in ("ACC", "FORG", "AF", "BWT", "AvgFgt", "AvgAcc"):
        assert result.why[name] == reservation


def test_a_task_that_is_never_learned_and_evaluated_once_has_not_fallen() -> None:
    result = summarise(matrix.accuracy_matrix([[0.9, np.nan, 0.5], [0.8, 0.7, np.nan]]))
    assert "FORG-unlearned" not in result.final
    assert "does not count the task" in result.why["ACC"]


def test_a_task_that_is_learned_again_is_not_forgotten() -> None:
    trace = Trace()
    for step, (learning, first, second) in enumerate([(0, 90, 10), (1, 40, 80), (0, 95, 87)], 1):
        for task, right in enumerate((first, second)):
            trace.add(step=step, learning=learning, task=task, right=np.arange(100) < right)
    result = summarise(trace)
    assert result.final["ACC"] == pytest.approx(0.91)
    assert result.final["FORG"] == pytest.approx(-0.05)
    # Of task 1: task 0 ends where the run does.
    assert result.final["SF"] - result.final["SBT"] == pytest.approx(-0.07)
    assert result.final["WC-ACC"] <= result.final["ACC"]
    lost = "does not count what task 1 lost while earlier tasks were learned again"
    assert {name for name, reason in result.why.items() if reason == lost} == {"FORG", "AF", "AvgFgt", "BWT"}


@pytest.mark.parametrize(
    ("phases", "lost"),
    [
        ((0, 1, 0, 2), "task 1"),
        ((0, 1, 2, 0), "task 2"),
        ((0, 1, 0, 2, 1), "tasks 1, 2"),
        ((0, 1, 0, 1, 2), "task 1"),
    ],
)
def test_whose_loss_is_not_counted_where_tasks_are_learned_again(phases: tuple[int, ...], lost: str) -> None:
    steps = np.arange(len(phases))
    curve = Curve(step=steps, learning=np.array(phases), accuracy=np.full((len(steps), 3), 0.5))
    why = summarise(curve).why
    assert why["FORG"] == f"does not count what {lost} lost while earlier tasks were learned again"
    assert why["AvgLAcc"] == f"counts {lost} as evaluated after earlier tasks were learned again"


def test_tasks_that_are_learned_leave_no_reservation() -> None:
    why = summarise(worked_matrix()).why
    assert not {"ACC", "FORG", "AF", "BWT"} & set(why)
