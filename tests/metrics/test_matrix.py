"""Edges of the matrix metrics: one task, missing rows and cells, impossible input."""

from collections.abc import Callable

import numpy as np
import pytest

from engram.core.errors import InputError
from engram.metrics import joint, matrix
from engram.metrics.arrays import Matrix

NAN = np.nan
JOINT = np.array([[NAN, NAN, NAN], [NAN, NAN, NAN], [0.6, 0.7, 0.8]])


def test_one_task_has_accuracy_but_no_forgetting() -> None:
    acc = np.array([[0.9]])
    assert matrix.average_accuracy(acc).tolist() == [0.9]
    assert matrix.rescaled_average_accuracy(acc, [2]).tolist() == [0.9]
    assert np.isnan(matrix.forgetting(acc)).all()
    assert np.isnan(matrix.average_forgetting(acc)).all()
    assert np.isnan(matrix.rescaled_average_forgetting(acc, [2])).all()
    assert np.isnan(matrix.average_signed_forgetting(acc))
    assert np.isnan(matrix.backward_transfer(acc))
    assert np.isnan(matrix.forward_transfer(acc, np.array([0.1])))


def test_joint_training_has_only_a_last_row() -> None:
    assert matrix.final_average_accuracy(JOINT) == pytest.approx(0.7)
    assert np.isnan(matrix.average_accuracy(JOINT)[:2]).all()
    assert np.isnan(matrix.final(matrix.forgetting(JOINT), JOINT))
    assert np.isnan(matrix.final(matrix.average_forgetting(JOINT), JOINT))
    assert np.isnan(matrix.backward_transfer(JOINT))


def test_nothing_known_is_undefined_everywhere() -> None:
    acc = np.full((2, 2), NAN)
    assert matrix.last_learned(acc) == -1
    assert np.isnan(matrix.final_average_accuracy(acc))
    assert np.isnan(matrix.average_learning_accuracy(acc))
    assert np.isnan(matrix.backward_transfer(acc))


def test_accuracy_on_future_tasks_does_not_count() -> None:
    acc = np.array([[0.9, 0.1], [0.6, 0.8]])
    alone = np.array([[0.9, NAN], [0.6, 0.8]])
    for metric in (matrix.average_accuracy, matrix.forgetting, matrix.average_forgetting):
        np.testing.assert_array_equal(metric(acc), metric(alone))


def test_missing_cells_are_skipped() -> None:
    acc = np.array([[0.9, NAN, NAN], [NAN, 0.8, NAN], [0.5, NAN, 0.7]])
    np.testing.assert_allclose(matrix.average_accuracy(acc), [0.9, 0.8, 0.6])
    np.testing.assert_allclose(matrix.forgetting(acc), [NAN, NAN, 0.4])
    np.testing.assert_allclose(matrix.average_forgetting(acc), [NAN, NAN, 0.4])


def test_pooled_accuracy_weighs_samples() -> None:
    total = np.array([[100.0, NAN], [100.0, 900.0]])
    correct = np.array([[100.0, NAN], [0.0, 900.0]])
    np.testing.assert_allclose(matrix.pooled_accuracy(correct, total), [1.0, 0.9])


def test_class_counts_that_never_grow_leave_rescaled_forgetting_undefined() -> None:
    acc = np.array([[0.9, NAN, NAN], [0.8, 0.8, NAN], [0.7, 0.7, 0.7]])
    assert matrix.random_forgetting([10, 10, 10])[1:].tolist() == [0.0, 0.0]
    assert np.isnan(matrix.rescaled_average_forgetting(acc, [10, 10, 10])).all()
    np.testing.assert_allclose(matrix.rescaled_average_accuracy(acc, [10] * 3), matrix.average_accuracy(acc))


def test_omega_is_undefined_without_an_ideal() -> None:
    assert np.isnan(joint.omega_all(0.5, 0.0))
    assert np.isnan(joint.omega_all(0.5, NAN))
    assert joint.omega_all([0.4, 0.2], 0.5) == pytest.approx(0.6)
    assert joint.omega_all(0.6, 0.5) > 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "empty"),
        ([[]], "empty"),
        ([[0.5], [0.5]], "2 rows but 1 columns"),
        ([[98.0]], "percentages"),
        ([[-0.1]], "values from 0 to 1, got -0.1"),
        ([[np.inf]], "values from 0 to 1"),
    ],
)
def test_impossible_matrices_are_refused(rows: list[list[float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        matrix.accuracy_matrix(rows)


def test_fewer_rows_than_columns_are_tasks_never_learned() -> None:
    acc = matrix.accuracy_matrix([[0.9, 0.1, 0.2]])
    assert acc.shape == (3, 3)
    assert matrix.final_average_accuracy(acc) == 0.9


@pytest.mark.parametrize(
    "call",
    [
        lambda acc: matrix.average_accuracy(acc[:1]),
        lambda acc: matrix.average_accuracy(acc * 100),
        lambda acc: matrix.forward_transfer(acc, np.zeros(3)),
        lambda acc: matrix.rescaled_average_accuracy(acc, [2, 4, 6]),
        lambda acc: matrix.rescaled_average_accuracy(acc, [4, 2]),
        lambda acc: matrix.rescaled_average_forgetting(acc, [0, 2]),
        lambda acc: matrix.rescaled_average_forgetting(acc, []),
    ],
)
def test_bad_arguments_are_one_clear_line(call: Callable[[Matrix], object]) -> None:
    with pytest.raises(InputError) as caught:
        call(np.array([[0.9, NAN], [0.6, 0.8]]))
    assert "\n" not in str(caught.value)
