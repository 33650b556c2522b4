"""What a model answers to the same samples at two moments, and what it takes classes for."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engram.core.errors import InputError

Classes: TypeAlias = NDArray[np.int64] | NDArray[np.str_]
"""One class per sample: class numbers, or names."""


def prediction_churn(before: ArrayLike, after: ArrayLike) -> float:
    """The share of samples that are answered differently at two moments, whether right or wrong.

    Divided by the number of samples. Two models that are both wrong, but not in the same way, count as
    different; flips of right and wrong alone are at most this many.

    Source: Milani Fard et al. (2016), "Launch and Iterate: Reducing Prediction Churn", Equation 1.

    Args:
        before: The class that was answered for each sample.
        after: The same at another moment, in the same order of samples.

    Raises:
        InputError: They are not answers to the same number of samples, or there are none.

    Example:
        >>> prediction_churn([0, 1, 2, 2], [0, 2, 1, 2])
        0.5
    """
    first, second = _classes(before, "answers before"), _classes(after, "answers after")
    if len(first) != len(second):
        raise InputError(f"churn needs answers to the same samples, got {len(first)} and {len(second)}")
    if not len(first):
        raise InputError("churn needs at least one sample")
    return float(np.mean(first != second))


def confusion_matrix(labels: ArrayLike, answers: ArrayLike) -> tuple[Classes, NDArray[np.int64]]:
    """How often each class was answered for the samples of each class.

    Row i and column j count the samples of class i that were answered as class j, so that the diagonal is
    what was right, and rows sum to the samples of a class. Classes are those that occur as a label or as an
    answer, in ascending order.

    Source: Kohavi & Provost (1998), "Glossary of Terms", Machine Learning 30.

    Args:
        labels: The class of each sample.
        answers: The class that was answered for it.

    Returns:
        The classes, and the counts.

    Raises:
        InputError: There is not one answer per label, or no answer is a known class.

    Example:
        >>> classes, counts = confusion_matrix(["cat", "cat", "dog"], ["cat", "dog", "dog"])
        >>> classes.tolist(), counts.tolist()
        (['cat', 'dog'], [[1, 1], [0, 1]])
    """
    true, answered = _classes(labels, "labels"), _classes(answers, "answers")
    if len(true) != len(answered):
        raise InputError(f"confusion needs one answer per label, got {len(answered)} for {len(true)}")
    if true.dtype.kind != answered.dtype.kind:
        kinds = {"i": "class numbers", "U": "names"}
        raise InputError(
            f"labels and answers have different vocabularies: labels are {kinds[true.dtype.kind]}, "
            f"answers are {kinds[answered.dtype.kind]}"
        )
    classes, codes = np.unique(np.concatenate([true, answered]), return_inverse=True)
    size = len(classes)
    cells = codes[: len(true)] * size + codes[len(true) :]
    return classes, np.bincount(cells, minlength=size * size).reshape(size, size).astype(np.int64)


def _classes(values: ArrayLike, what: str) -> Classes:
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{what} must have one class per sample, got shape {list(array.shape)}")
    if array.dtype.kind in "iu" or not array.size:
        return array.astype(np.int64)
    if array.dtype.kind == "U":
        return array
    raise InputError(f"{what} must be class numbers or names, got {array.dtype}")
