"""Scores of a random classifier as classes are added, used to rescale RAA and RAF (Michel et al. 2023)."""

from collections.abc import Sequence

import numpy as np

from engram.core.errors import InputError
from engram.metrics.arrays import Vector


def random_accuracy(classes_seen: Sequence[int]) -> Vector:
    """The average accuracy of a random classifier after each task: 1 / classes seen so far.

    Source: Michel et al. (2023), section 4.

    Args:
        classes_seen: How many classes were seen after each task, in total.

    Example:
        >>> random_accuracy([2, 4, 10])
        array([0.5 , 0.25, 0.1 ])
    """
    return 1.0 / _cumulative(classes_seen)


def random_forgetting(classes_seen: Sequence[int]) -> Vector:
    """The average forgetting of a random classifier after each task.

    AF_k(Rand) = (1/(k-1)) Σ_{j<k} 1/C_j - 1/C_k: it cannot forget, yet its AF is positive, because the
    problem becomes harder. Undefined (NaN) after the first task. Source: Michel et al. (2023), section 4.

    Args:
        classes_seen: How many classes were seen after each task, in total.

    Example:
        >>> random_forgetting([2, 4, 6]).round(6)
        array([     nan, 0.25    , 0.208333])
    """
    classes = _cumulative(classes_seen)
    chance = 1.0 / classes
    earlier = np.cumsum(chance)[:-1] / np.arange(1, len(chance))
    # Where no class was added the difference is exactly 0, without rounding errors.
    forgotten = np.where(classes[1:] == classes[0], 0.0, earlier - chance[1:])
    return np.concatenate([[np.nan], forgotten])


def accuracy_difficulty(classes_seen: Sequence[int]) -> Vector:
    """γ_k = C_k / C_K, by which RAA rescales AA (Michel et al. 2023, Eq. 5): 1 after the last task.

    Example:
        >>> accuracy_difficulty([2, 4, 10])
        array([0.2, 0.4, 1. ])
    """
    classes = _cumulative(classes_seen)
    return classes / float(classes[-1])


def forgetting_difficulty(classes_seen: Sequence[int]) -> Vector:
    """β_k = min_q AF_q(Rand) / AF_k(Rand), by which RAF rescales AF.

    Holds for any class counts; for equal ones it is the closed form of Eq. 6 and ends at 1. With unequal
    counts the minimum need not be at the last task. Undefined (NaN) after the first task, and everywhere if a
    random classifier forgets nothing at some k (no new classes up to there): the rescaling then divides by 0.
    Source: Michel et al. (2023), Definitions 4.1 and 4.2.

    Example:
        >>> forgetting_difficulty([2, 4, 6, 8, 10]).round(6)
        array([     nan, 0.641667, 0.77    , 0.888462, 1.      ])
    """
    by_chance = random_forgetting(classes_seen)
    if len(by_chance) == 1 or by_chance[1:].min() <= 0.0:
        return np.full(len(by_chance), np.nan)
    return float(by_chance[1:].min()) / by_chance


def _cumulative(classes_seen: Sequence[int]) -> Vector:
    classes = np.asarray(classes_seen, dtype=np.float64)
    if classes.ndim != 1 or not classes.size:
        raise InputError("class counts must have one number per task, got none")
    if not (classes >= 1).all() or (np.diff(classes) < 0).any():
        raise InputError(
            "classes seen after each task must be positive and must not decrease, "
            f"got {', '.join(map(str, classes_seen))}"
        )
    return classes
