"""Metrics of an accuracy matrix: the accuracy on each task after learning each task.

A matrix is always `acc[learned, evaluated]`: row k is measured after learning task k, column j on the test
set of task j, in the order in which tasks are learned. NaN means "not evaluated"; a row of NaN belongs to a
task that was never learned on its own. Means ignore NaN; undefined values are NaN, never 0.

Most functions return one value after each task; `final` selects the one after the last task learned.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from engram.core.errors import InputError
from engram.metrics.arrays import Mask, Matrix, Vector, mean_of_known, row_means
from engram.metrics.chance import accuracy_difficulty as accuracy_difficulty
from engram.metrics.chance import forgetting_difficulty as forgetting_difficulty
from engram.metrics.chance import random_accuracy as random_accuracy
from engram.metrics.chance import random_forgetting as random_forgetting
from engram.metrics.registry import metric
from engram.metrics.sources import FORWARD, GEM, NEW_METRICS, STABILITY_GAP


def accuracy_matrix(rows: Sequence[Sequence[float]] | ArrayLike) -> Matrix:
    """A square accuracy matrix from its rows, which may be ragged.

    Short rows are padded with NaN, and rows of tasks that were never learned are added as NaN.

    Raises:
        InputError: The matrix is empty, has more rows than columns, or a value is not between 0 and 1.

    Example:
        >>> accuracy_matrix([[0.9], [0.6, 0.8]])
        array([[0.9, nan],
               [0.6, 0.8]])
    """
    lines = [np.asarray(row, dtype=np.float64).reshape(-1) for row in rows]  # type: ignore[union-attr]
    width = max((len(line) for line in lines), default=0)
    if not width:
        raise InputError("the accuracy matrix is empty: it must have one row per task learned")
    if len(lines) > width:
        raise InputError(
            "the accuracy matrix must have one row per task learned and one column per task evaluated, "
            f"got {len(lines)} rows but {width} columns"
        )
    matrix = np.full((width, width), np.nan)
    for k, line in enumerate(lines):
        matrix[k, : len(line)] = line
    return check_matrix(matrix)


def check_matrix(acc: Matrix) -> Matrix:
    """Return the matrix if it is a valid accuracy matrix.

    Raises:
        InputError: It is not square, or has values other than NaN and fractions from 0 to 1.
    """
    acc = np.asarray(acc, dtype=np.float64)
    if acc.ndim != 2 or acc.shape[0] != acc.shape[1] or not acc.size:
        raise InputError(f"an accuracy matrix must be square, acc[learned, evaluated], got shape {acc.shape}")
    check_fractions(acc, "the accuracy matrix")
    return acc


def check_fractions(values: Vector | Matrix, what: str) -> None:
    """Refuse values other than NaN and numbers from 0 to 1.

    Raises:
        InputError: There is another value; for percentages, the message says what to do.
    """
    wrong = (values < 0) | (values > 1)
    if wrong.any():
        value = values[wrong][0]
        hint = " (are these percentages? divide by 100)" if 1 < value <= 100 else ""
        raise InputError(f"{what} must have values from 0 to 1, got {value:g}{hint}")


def last_learned(acc: Matrix) -> int:
    """The index of the last row that is not all NaN; -1 if there is none.

    Example:
        >>> last_learned(np.array([[0.9, 0.1], [np.nan, np.nan]]))
        0
    """
    rows = np.flatnonzero(~np.isnan(acc).all(axis=1))
    return int(rows[-1]) if rows.size else -1


def final(values: Vector, acc: Matrix) -> float:
    """The value after the last task learned, from one value after each task.

    Example:
        >>> acc = np.array([[0.9, np.nan], [0.6, 0.8]])
        >>> round(final(average_accuracy(acc), acc), 6)
        0.7
    """
    row = last_learned(acc)
    return float(values[row]) if row >= 0 else np.nan


@metric(
    "AA",
    title="average accuracy",
    higher_is_better=True,
    bounds=(0, 1),
    source=f"{NEW_METRICS}, Definition 3.1, Eq. 1",
    meaning="The mean accuracy of the tasks learned so far, after each task; the same number as ACC.",
    formula="AA_k = (1/k) Σ_{j≤k} a_{k,j}",
    family="average accuracy",
)
@metric(
    "ACC",
    title="average accuracy",
    higher_is_better=True,
    bounds=(0, 1),
    source=f"{STABILITY_GAP}, section 3.2.3",
    family="average accuracy",
    aliases=["accuracy"],
)
def average_accuracy(acc: Matrix) -> Vector:
    """The mean accuracy of the tasks learned so far, measured after each task.

    Formula: ACC_k = (1/k) Σ_{j≤k} acc[k, j]
    Divisor: k, the tasks learned so far; every task counts the same
    NaN: undefined: nothing was evaluated after a task was learned
    Worked: (.75 + .60 + .85 + .90 + .93) / 5

    Every task counts the same, however many samples it has; tasks not yet learned do not count, even where
    they were evaluated. De Lange et al. (2023) pool class-incremental streams over samples: see ACC-pooled.

    Example:
        >>> average_accuracy(np.array([[0.9, 0.1], [0.6, 0.8]])).round(6)
        array([0.9, 0.7])
    """
    acc = check_matrix(acc)
    return row_means(np.where(_learned(acc), acc, np.nan))


@metric(
    "FORG",
    title="forgetting",
    higher_is_better=False,
    bounds=(-1, 1),
    source=f"{STABILITY_GAP}, section 3.2.1",
    family="forgetting",
)
def forgetting(acc: Matrix) -> Vector:
    """The mean accuracy that earlier tasks have lost since each was learned.

    Formula: FORG_k = (1/(k−1)) Σ_{j<k} (acc[j, j] − acc[k, j])
    Divisor: k − 1, the earlier tasks
    Direction: Positive is forgetting, negative is backward transfer.
    NaN: undefined until a second task is learned and the first is evaluated again
    Worked: ((.98 − .75) + (.90 − .60) + (.95 − .85) + (.96 − .90)) / 4
    Elsewhere: Avalanche's StreamForgetting is this number, but 0 after the first task.

    FORG = −BWT after the last task, and −Fgt after each.

    Example:
        >>> forgetting(np.array([[0.9, 0.1], [0.6, 0.8]])).round(6)
        array([nan, 0.3])
    """
    acc = check_matrix(acc)
    return row_means(np.where(_earlier(acc), np.diag(acc) - acc, np.nan))


@metric(
    "AF",
    title="average forgetting",
    higher_is_better=False,
    bounds=(-1, 1),
    source=f"{NEW_METRICS}, Definition 3.2, Eq. 2",
    family="forgetting",
    extreme=(-1.0, 1.0),
)
def average_forgetting(acc: Matrix, *, clamp: bool = False) -> Vector:
    """How far, on average, earlier tasks have fallen below the best they ever were.

    Formula: AF_k = (1/(k−1)) Σ_{j<k} (max_{j≤l<k} a_{l,j} − a_{k,j})
    Divisor: k − 1, the earlier tasks
    Direction: Negative if tasks are better than ever before.
    NaN: undefined until a second task is learned and the first is evaluated again
    Worked: ((.98 − .75) + (.94 − .60) + (.95 − .85) + (.96 − .90)) / 4
    Elsewhere: Mammoth and PyCIL include the last row in the maximum: the clamped number.

    AF ≥ FORG, because the best is at least what was just learned.

    With `clamp=True` a task that is better than ever before counts 0, as in common code, instead of negative,
    as printed.

    Example:
        >>> acc = np.array([[0.5, np.nan, np.nan], [0.7, 0.8, np.nan], [0.6, 0.9, 0.8]])
        >>> average_forgetting(acc).round(6), average_forgetting(acc, clamp=True).round(6)
        (array([ nan, -0.2,  0. ]), array([ nan, 0.  , 0.05]))
    """
    acc = check_matrix(acc)
    best = np.fmax.accumulate(np.where(_learned(acc), acc, np.nan), axis=0)
    best_before = np.vstack([np.full((1, len(acc)), np.nan), best[:-1]])
    fallen = best_before - acc
    if clamp:
        fallen = np.maximum(fallen, 0.0)
    return row_means(np.where(_earlier(acc), fallen, np.nan))


def unlearned_tasks(acc: Matrix) -> tuple[int, ...]:
    """The tasks that were evaluated after some task was learned, but never learned themselves.

    Example:
        >>> unlearned_tasks(np.array([[0.9, 0.1], [np.nan, np.nan]]))
        (1,)
    """
    first = 1 + last_learned(acc)
    return tuple(column for column in range(first, len(acc)) if not np.isnan(acc[:, column]).all())


@metric(
    "FORG-unlearned",
    title="forgetting of tasks that were never learned",
    higher_is_better=False,
    bounds=(-1, 1),
    source=f"AF of {NEW_METRICS}, for tasks that are not learned",
    needs="unlearned",
    family="forgetting",
)
def unlearned_forgetting(acc: Matrix, unlearned: Sequence[int]) -> Vector:
    """How far tasks that are evaluated but never learned have fallen below the best they ever were.

    Formula: (1/|U|) Σ_{j∈U} (max_{l<k} acc[l, j] − acc[k, j]), with U the tasks that are never learned
    Divisor: the tasks that are never learned and were evaluated before
    Direction: Positive is forgetting, as in AF.
    NaN: undefined until such a task is evaluated again
    Worked: ((.96 − .01) + (.85 − .85)) / 2

    ACC, FORG, AF, BWT and min-ACC count tasks that were learned, so they do not see what happens to others:
    slices of a test set that two versions of a network are compared on, or what a pretrained network knew.
    The values by task are those after each task learned.

    Args:
        acc: The accuracy matrix.
        unlearned: The columns of the tasks that are never learned.

    Example:
        >>> unlearned_forgetting(np.array([[0.9, 0.5, 0.96], [0.8, 0.6, 0.01], [np.nan] * 3]), [2]).round(6)
        array([ nan, 0.95,  nan])
    """
    others = check_matrix(acc)[:, list(unlearned)]
    best = np.fmax.accumulate(others, axis=0)
    fallen = np.full(others.shape, np.nan)
    fallen[1:] = best[:-1] - others[1:]
    return row_means(fallen)


@metric(
    "ACC-pooled",
    title="accuracy over samples",
    higher_is_better=True,
    bounds=(0, 1),
    source=f"{STABILITY_GAP}, its code (stream accuracy of class-incremental streams)",
    needs=("correct", "samples"),
    family="average accuracy",
)
def pooled_accuracy(correct: Matrix, total: Matrix) -> Vector:
    """The share of right answers among all samples of the tasks learned so far.

    Formula: Σ_{j≤k} correct[k, j] / Σ_{j≤k} total[k, j]
    Divisor: the samples of the tasks learned so far
    NaN: undefined: nothing was evaluated after a task was learned
    Worked: (75 + 120 + 255 + 360 + 465) / (100 + 200 + 300 + 400 + 500)

    Equals ACC where all tasks have equally many samples. De Lange et al. (2023) published this number for
    class-incremental streams.

    Example:
        >>> correct, total = np.array([[9.0, np.nan], [5.0, 80.0]]), np.array([[10.0, np.nan], [10.0, 100.0]])
        >>> pooled_accuracy(correct, total).round(6)
        array([0.9     , 0.772727])
    """
    evaluated = _learned(total) & ~np.isnan(total) & ~np.isnan(correct)
    right = np.where(evaluated, correct, 0.0).sum(axis=1)
    count = np.where(evaluated, total, 0.0).sum(axis=1)
    pooled: Vector = np.full(len(count), np.nan)
    np.divide(right, count, out=pooled, where=count > 0)
    return pooled


@metric(
    "RAA",
    title="rescaled average accuracy",
    higher_is_better=True,
    bounds=(0, 1),
    source=f"{NEW_METRICS}, Eq. 5",
    needs="classes",
)
def rescaled_average_accuracy(acc: Matrix, classes_seen: Sequence[int]) -> Vector:
    """Average accuracy relative to chance, so that values after few and many classes are comparable.

    Formula: RAA_k = (C_k / C_K) · AA_k, with C_k the classes seen after task k
    Divisor: as AA
    Direction: After the last task it equals AA.
    NaN: undefined: nothing was evaluated after a task was learned
    Worked: 6 / 10 · (.85 + .92 + .95) / 3

    Needs the number of classes of each task.

    Args:
        acc: The accuracy matrix.
        classes_seen: The total number of classes seen after each task.

    Example:
        >>> rescaled_average_accuracy(np.array([[0.9, 0.1], [0.6, 0.8]]), [2, 4]).round(6)
        array([0.45, 0.7 ])
    """
    return _matching(acc, classes_seen, accuracy_difficulty(classes_seen)) * average_accuracy(acc)


@metric(
    "RAF",
    title="rescaled average forgetting",
    higher_is_better=False,
    bounds=(-1, 1),
    source=f"{NEW_METRICS}, Definitions 4.1 and 4.2; Eq. 6 for equal class counts",
    needs="classes",
    extreme=(-1.0, 1.0),
)
def rescaled_average_forgetting(acc: Matrix, classes_seen: Sequence[int], *, clamp: bool = False) -> Vector:
    """Average forgetting relative to that of a random classifier, which cannot forget.

    Formula: RAF_k = min_q AF_q(Rand) / AF_k(Rand) · AF_k, AF_k(Rand) = (1/(k−1)) Σ_{j<k} 1/C_j − 1/C_k
    Divisor: as AF
    Direction: With equal class counts it equals AF after the last task.
    NaN: undefined: needs two tasks learned in turn and evaluated, the second with new classes
    Worked: .160417 / .208333 · ((.98 − .85) + (.90 − .92)) / 2

    Needs the number of classes of each task. With unequal counts the smallest AF(Rand) need not be the last;
    the final RAF is then not AF.

    Args:
        acc: The accuracy matrix.
        classes_seen: The total number of classes seen after each task.
        clamp: As for `average_forgetting`.

    Example:
        >>> acc = np.array([[0.98, np.nan, np.nan], [0.91, 0.9, np.nan], [0.85, 0.92, 0.95]])
        >>> rescaled_average_forgetting(acc, [2, 4, 6]).round(6)
        array([     nan, 0.058333, 0.055   ])
    """
    beta = _matching(acc, classes_seen, forgetting_difficulty(classes_seen))
    return beta * average_forgetting(acc, clamp=clamp)


def signed_forgetting(acc: Matrix) -> Vector:
    """Fgt: the mean change of earlier tasks since each was learned; negative is forgetting.

    Fgt_i = (1/(i-1)) Σ_{j<i} (acc[i, j] - acc[j, j]) = -FORG_i. Undefined (NaN) after the first task. Source:
    Chen et al. (2023), Eq. 1.

    Example:
        >>> signed_forgetting(np.array([[0.9, 0.1], [0.6, 0.8]])).round(6)
        array([ nan, -0.3])
    """
    return -forgetting(acc)


@metric(
    "AvgFgt",
    title="average forgetting over the stream",
    higher_is_better=True,
    bounds=(-1, 1),
    source=f"{FORWARD}, Eq. 1",
    by_task=signed_forgetting,
    family="forgetting",
    aliases=["Fgt"],
)
def average_signed_forgetting(acc: Matrix) -> float:
    """The mean change of earlier tasks since each was learned, averaged over all task ends.

    Formula: AvgFgt = (1/(N−1)) Σ_{i≥2} Fgt_i,  Fgt_i = (1/(i−1)) Σ_{j<i} (acc[i, j] − acc[j, j])
    Divisor: N − 1, all tasks but the first; within each, i − 1
    Direction: Negative is forgetting, the opposite of FORG and AF.
    NaN: undefined until a second task is learned and the first is evaluated again
    Worked: (−.07 + −.055 + −.13 + −.1725) / 4

    The values by task are Fgt after each task, which is −FORG. All task ends count, not only the last.

    Example:
        >>> round(average_signed_forgetting(np.array([[0.9, 0.1], [0.6, 0.8]])), 6)
        -0.3
    """
    return mean_of_known(signed_forgetting(acc))


def latest_accuracy(acc: Matrix) -> Vector:
    """The accuracy of each task learned so far, after the last of them.

    Example:
        >>> latest_accuracy(np.array([[0.9, 0.1], [0.6, 0.8]]))
        array([0.6, 0.8])
    """
    row = last_learned(acc)
    return np.where(np.arange(len(acc)) <= row, acc[row], np.nan)


@metric(
    "AvgAcc",
    title="average accuracy at the end",
    higher_is_better=True,
    bounds=(0, 1),
    source=f"{FORWARD}, appendix B.2",
    by_task=latest_accuracy,
    family="average accuracy",
)
def final_average_accuracy(acc: Matrix) -> float:
    """The mean accuracy of all tasks after the last one; the final value of ACC.

    Formula: AvgAcc = (1/N) Σ_j acc[N, j]
    Divisor: N, all tasks
    NaN: undefined: nothing was evaluated after a task was learned
    Worked: (.75 + .60 + .85 + .90 + .93) / 5

    Example:
        >>> round(final_average_accuracy(np.array([[0.9, 0.1], [0.6, 0.8]])), 6)
        0.7
    """
    return final(average_accuracy(acc), acc)


def learning_accuracy(acc: Matrix) -> Vector:
    """Current-task accuracy: each task just after it was learned, acc[j, j].

    Example:
        >>> learning_accuracy(np.array([[0.9, 0.1], [0.6, 0.8]]))
        array([0.9, 0.8])
    """
    return np.diag(check_matrix(acc)).copy()


@metric(
    "AvgLAcc",
    title="average learning accuracy",
    higher_is_better=True,
    bounds=(0, 1),
    source=f"{FORWARD}, appendix B.2",
    by_task=learning_accuracy,
    aliases=["learning accuracy", "plasticity"],
)
def average_learning_accuracy(acc: Matrix) -> float:
    """The mean accuracy of each task just after it was learned (plasticity).

    Formula: AvgLAcc = (1/N) Σ_j acc[j, j]
    Divisor: N, all tasks
    NaN: undefined: no task was evaluated just after it was learned
    Worked: (.98 + .90 + .95 + .96 + .93) / 5

    Example:
        >>> round(average_learning_accuracy(np.array([[0.9, 0.1], [0.6, 0.8]])), 6)
        0.85
    """
    return mean_of_known(learning_accuracy(acc))


def transfer_by_task(acc: Matrix) -> Vector:
    """For each earlier task, its accuracy after the whole stream minus that just after learning it.

    Example:
        >>> transfer_by_task(np.array([[0.9, 0.1], [0.6, 0.8]])).round(6)
        array([-0.3,  nan])
    """
    acc = check_matrix(acc)
    row = last_learned(acc)
    change = acc[row] - np.diag(acc)
    return np.where(np.arange(len(acc)) < row, change, np.nan)


@metric(
    "BWT",
    title="backward transfer",
    higher_is_better=True,
    bounds=(-1, 1),
    source=f"{GEM}, Eq. 3",
    by_task=transfer_by_task,
    family="backward transfer",
    aliases=["forgetting"],
)
def backward_transfer(acc: Matrix) -> float:
    """How much later learning changed the earlier tasks, on average, after the whole stream.

    Formula: BWT = (1/(T−1)) Σ_{j<T} (acc[T, j] − acc[j, j])
    Divisor: T − 1, all tasks but the last, as in the paper
    Direction: Negative is forgetting.
    NaN: undefined until a second task is learned and the first is evaluated again
    Worked: ((.75 − .98) + (.60 − .90) + (.85 − .95) + (.90 − .96)) / 4
    Elsewhere: GEM's published code divides by T.
    Elsewhere: Díaz-Rodríguez et al. average over all pairs of a task and a later one.

    Example:
        >>> round(backward_transfer(np.array([[0.9, 0.1], [0.6, 0.8]])), 6)
        -0.3
    """
    return mean_of_known(transfer_by_task(acc))


@metric(
    "FWT",
    title="forward transfer",
    higher_is_better=True,
    bounds=(-1, 1),
    source=f"{GEM}, Eq. 4",
    needs="initial",
    aliases=["forward transfer"],
)
def forward_transfer(acc: Matrix, initial: Vector) -> float:
    """How much earlier learning helps a task before it is learned, against a random network.

    Formula: FWT = (1/(T−1)) Σ_{i≥2} (acc[i−1, i] − initial[i])
    Divisor: T − 1, all tasks but the first
    NaN: undefined: needs accuracies at initialisation and of each task before it is learned
    Worked: (.30 − .10) / 1
    Elsewhere: Where each task has its own output units, the next task's are still random: FWT is noise.
    Elsewhere: Chen et al. (2023) define it differently: a new head trained on k examples per class.

    It needs accuracies above the diagonal, and `initial`, the accuracies of the network at its random
    initialisation.

    Example:
        >>> round(forward_transfer(np.array([[0.9, 0.3], [0.6, 0.8]]), np.array([0.1, 0.1])), 6)
        0.2
    """
    acc = check_matrix(acc)
    initial = np.asarray(initial, dtype=np.float64)
    if initial.shape != (len(acc),):
        raise InputError(f"initial must have one accuracy per task, got {initial.size} for {len(acc)} tasks")
    return mean_of_known(np.diag(acc, 1) - initial[1:])


def _learned(acc: Matrix) -> Mask:
    return np.tril(np.ones(acc.shape, dtype=np.bool_))


def _earlier(acc: Matrix) -> Mask:
    return np.tril(np.ones(acc.shape, dtype=np.bool_), -1)


def _matching(acc: Matrix, classes_seen: Sequence[int], difficulty: Vector) -> Vector:
    if len(difficulty) != len(acc):
        raise InputError(f"{len(acc)} tasks need {len(acc)} class counts, got {len(classes_seen)}")
    return difficulty
