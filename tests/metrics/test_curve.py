"""Curves: from tables and traces, the order of tasks, tasks learned together; and speed."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from engram.core.errors import InputError
from engram.core.jsons import JsonObject
from engram.core.trace import Trace
from engram.metrics import curve as pure
from engram.metrics import matrix
from engram.metrics.curve import Curve, History
from engram.metrics.registry import all_metrics

NAN = np.nan


def joint_trace() -> Trace:
    trace = Trace()
    for step in (1, 2):
        for task in range(3):
            trace.add(step=step, learning=0, task=task, right=np.arange(10) < 5 + step + task)
    return trace


def test_tasks_are_ordered_by_when_they_are_first_learned() -> None:
    curve = Curve.of_table(
        step=[3, 1, 2, 2, 3, 3],
        learning=[2, 7, 2, 2, 2, 2],
        task=[7, 7, 7, 2, 2, 5],
        accuracy=[0.3, 0.9, 0.5, 0.6, 0.8, 0.1],
    )
    assert curve.tasks == (7, 2, 5)
    np.testing.assert_array_equal(curve.accuracy, [[0.9, NAN, NAN], [0.5, 0.6, NAN], [0.3, 0.8, 0.1]])
    np.testing.assert_array_equal(curve.matrix(), [[0.9, NAN, NAN], [0.3, 0.8, 0.1], [NAN, NAN, NAN]])
    assert matrix.final_average_accuracy(curve.matrix()) == pytest.approx(0.55)


def test_a_task_that_is_learned_but_never_evaluated_keeps_its_place() -> None:
    curve = Curve.of_table(step=[1, 2, 3], learning=[0, 1, 2], task=[0, 0, 2], accuracy=[0.9, 0.5, 0.7])
    assert curve.tasks == (0, 1, 2)
    np.testing.assert_array_equal(curve.matrix()[:, 0], [0.9, 0.5, NAN])


def test_joint_training_fills_the_last_row() -> None:
    curve = Curve.of_trace(joint_trace(), phases=[(0, 1, 2)])
    expected = np.full((3, 3), NAN)
    expected[2] = [0.7, 0.8, 0.9]
    np.testing.assert_array_equal(curve.matrix(), expected)
    totals = curve.totals()
    assert totals is not None
    assert totals[2].tolist() == [10, 10, 10]
    assert np.isnan(pure.min_accuracy(curve).final)
    assert pure.worst_case_accuracy(curve).final == pytest.approx(0.8)


def test_tasks_never_learned_are_skipped_by_min_accuracy() -> None:
    trace = joint_trace()
    trace.add(step=3, learning=1, task=0, right=np.arange(10) < 2)
    trace.add(step=3, learning=1, task=1, right=np.arange(10) < 3)
    trace.add(step=3, learning=1, task=2, right=np.arange(10) < 1)
    history = pure.min_accuracy(Curve.of_trace(trace))
    np.testing.assert_array_equal(history.by_task, [0.2, NAN, NAN])


def test_phases_that_bring_one_more_task_each() -> None:
    curve = Curve(
        step=np.arange(1, 3),
        learning=np.array([0, 1]),
        accuracy=np.array([[0.9, NAN], [0.7, 0.5]]),
        phases=((0,), (0, 1)),
    )
    np.testing.assert_array_equal(curve.matrix(), [[0.9, NAN], [0.7, 0.5]])
    assert pure.worst_case_accuracy(curve).final == pytest.approx(0.6)


def test_the_last_row_is_the_end_of_the_run_where_a_task_is_learned_again() -> None:
    accuracy = np.array(
        [[0.9, 0.1, NAN], [0.4, 0.8, NAN], [0.95, 0.85, NAN], [0.7, 0.6, 0.5], [0.2, 0.3, 0.9]]
    )
    curve = Curve(step=np.arange(1, 6), learning=np.array([0, 1, 0, 2, 1]), accuracy=accuracy)
    np.testing.assert_array_equal(curve.matrix(), accuracy[[0, 2, 4]])
    assert curve.followed_by_earlier() == (1, 2)
    once = Curve(step=curve.step, learning=np.array([0, 1, 1, 2, 2]), accuracy=accuracy)
    assert once.followed_by_earlier() == ()


def test_seen_leaves_out_what_was_not_yet_learned() -> None:
    accuracy = np.array([[0.5, 0.0], [0.5, 0.6], [0.4, 0.7]])
    curve = Curve(step=np.arange(3), learning=np.array([0, 1, 1]), accuracy=accuracy)
    assert pure.windowed_plasticity(curve).by_task[1] == pytest.approx(0.7)
    assert pure.windowed_plasticity(curve.seen()).by_task[1] == pytest.approx(0.1)


def test_worst_case_is_undefined_without_the_current_task() -> None:
    accuracy = np.array([[0.9, NAN], [0.5, 0.6], [0.4, NAN]])
    curve = Curve(step=np.arange(3), learning=np.array([0, 1, 1]), accuracy=accuracy)
    np.testing.assert_allclose(pure.worst_case_accuracy(curve).curve, [0.9, 0.55, NAN])


def test_gaps_do_not_use_up_the_window() -> None:
    accuracy = np.array([[0.9], [NAN], [NAN], [0.2]])
    curve = Curve(step=np.arange(4), learning=np.zeros(4, dtype=np.int64), accuracy=accuracy)
    np.testing.assert_allclose(pure.windowed_forgetting(curve, window=2).curve, [0, 0, 0, 0.7])


def test_an_empty_history_has_no_values() -> None:
    curve = Curve(step=np.arange(0), learning=np.arange(0), accuracy=np.empty((0, 2)))
    followed = [metric for metric in all_metrics() if metric.stream_class() is not None]
    assert len(followed) >= 6
    for metric in followed:
        history = metric(curve)
        assert isinstance(history, History)
        assert np.isnan(history.final), metric.name
        assert len(history.curve) == 0


GOOD: JsonObject = {"step": [1, 2], "learning": [0, 1], "task": [0, 1], "accuracy": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({name: [] for name in GOOD}, "the table has no rows"),
        ({"step": [1, 1]}, "at step 1 two tasks are being learned"),
        ({"step": [1, 1], "learning": [0, 0], "task": [0, 0]}, "task 0 is evaluated twice at step 1"),
        ({"accuracy": [50, 50]}, "values from 0 to 1"),
        ({"phases": [(0,)]}, "phase 1 is being learned, but only 1 phases"),
    ],
)
def test_impossible_tables_are_refused(change: JsonObject, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Curve.of_table(**(GOOD | change))


@pytest.mark.parametrize(
    ("step", "task", "message"),
    [
        (-1, 0, "steps must be at least 0, got -1"),
        (1.5, 0, "steps must be whole numbers below 2\\^63, got 1.5"),
        (2**63, 0, "steps must be whole numbers below 2\\^63, got 9223372036854775808"),
        (2.0**54, 0, "steps must be whole numbers below 2\\^63"),
        (True, 0, "steps must be whole numbers below 2\\^63"),
        (1, -1, "task must be at least 0, got -1"),
    ],
)
def test_impossible_steps_and_tasks_are_refused(step: float, task: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Curve.of_table(step=[step], learning=[0], task=[task], accuracy=[0.5])


@pytest.mark.parametrize(
    ("correct", "total", "message"),
    [
        (3, 2, "between 0 and total"),
        (-1, 2, "between 0 and total"),
        (0, 0, "total must be at least 1, got 0"),
        (1, -5, "total must be at least 1, got -5"),
        (1.5, 4, "correct must be whole numbers below 2\\^63, got 1.5"),
        (1, NAN, "total must be whole numbers below 2\\^63, got nan"),
    ],
)
def test_impossible_counts_are_refused(correct: float, total: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Curve.of_counts(step=[1], learning=[0], task=[0], correct=[correct], total=[total])


@pytest.mark.parametrize(
    ("learning", "phases"), [([1, 0], ()), ([0, 3], ()), ([0, 1], ((1,), (0,))), ([0, 0], ((0, 2), (1,)))]
)
def test_columns_out_of_order_are_refused(learning: list[int], phases: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(InputError, match="order in which tasks are learned"):
        Curve(step=np.arange(2), learning=np.array(learning), accuracy=np.zeros((2, 3)), phases=phases)


def test_a_curve_needs_matching_lengths() -> None:
    with pytest.raises(InputError, match="one row of accuracies per evaluation"):
        Curve(step=np.arange(2), learning=np.zeros(3, dtype=np.int64), accuracy=np.zeros((2, 1)))


@pytest.mark.parametrize(
    "call",
    [
        lambda curve: pure.windowed_forgetting(curve, window=0),
        lambda curve: pure.windowed_plasticity(curve, mode="fast"),  # type: ignore[arg-type]
        lambda curve: pure.min_accuracy(curve, span="all"),  # type: ignore[arg-type]
        lambda curve: pure.learning_curve_area(curve, beta=0),
    ],
)
def test_unknown_options_are_refused(call: Callable[[Curve], object]) -> None:
    with pytest.raises(InputError):
        call(Curve(step=np.arange(1), learning=np.arange(1), accuracy=np.zeros((1, 1))))


def test_a_hundred_thousand_evaluations_take_a_moment() -> None:
    n, tasks = 100_000, 5
    rng = np.random.default_rng(0)
    curve = Curve(step=np.arange(n), learning=np.arange(n) * tasks // n, accuracy=rng.random((n, tasks)))
    fastest = np.inf
    for _ in range(3):
        started = time.perf_counter()
        pure.windowed_forgetting(curve, window=100)
        pure.worst_case_accuracy(curve)
        fastest = min(fastest, time.perf_counter() - started)
    assert fastest < 1
