"""Labels of any kind as numbers of classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.datasets.formats import Labels, Pixels


@dataclass(frozen=True, slots=True)
class Labelled:
    """Labels as numbers of classes from 0, and what the classes are called.

    Attributes:
        parts: The labels of each part of a data set.
        names: The names of the classes.
    """

    parts: tuple[Labels, ...]
    names: tuple[str, ...]


def number_classes(parts: dict[str, Pixels], *, names: tuple[str, ...] = ()) -> Labelled:
    """Labels of any kind (numbers, text, truth values) as numbers of classes, in the order of their values.

    Whole numbers from 0 without a gap keep their values, and may have names.

    Args:
        parts: For each part of a data set, what messages call its labels, and the labels.
        names: The names of the classes, if the data have them.

    Raises:
        InputError: A label is missing, or is a number with a fraction.

    Example:
        >>> number_classes({"y": np.array(["dog", "cat", "dog"])})
        Labelled(parts=(array([1, 0, 1]),), names=('cat', 'dog'))
        >>> number_classes({"y": np.array([1.0, np.nan])})
        Traceback (most recent call last):
        engram.core.errors.InputError: y has no label for 1 sample, the first of them sample 1: ...
    """
    values = [label_values(labels, what) for what, labels in parts.items()]
    kinds = {np.issubdtype(part.dtype, np.number) for part in values}
    if len(kinds) > 1:
        raise InputError(f"{' and '.join(parts)} must both be numbers or both be text")
    known = np.unique(np.concatenate(values))
    numbered = np.issubdtype(known.dtype, np.number) and np.array_equal(known, np.arange(len(known)))
    called = names if numbered and len(names) == len(known) else tuple(str(value) for value in known.tolist())
    return Labelled(tuple(np.searchsorted(known, part).astype(np.int64) for part in values), called)


def label_values(labels: Pixels, what: str) -> Pixels:
    """Labels as whole numbers or text, one per sample, checked."""
    flat = labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim != 1:
        raise InputError(f"{what} must be one label per sample, not an array of shape {labels.shape}")
    if not len(flat):
        raise InputError(f"{what} is empty: give at least one sample")
    if flat.dtype.kind == "f":
        _refuse_missing(np.isnan(flat), what)
        if not np.array_equal(flat, np.rint(flat)):
            fraction = flat[flat != np.rint(flat)][0]
            raise InputError(f"{what} has the label {fraction:g}: classes are whole numbers or text")
        return flat.astype(np.int64)
    if flat.dtype.kind == "O":
        _refuse_missing(np.array([value is None or value != value for value in flat.tolist()]), what)
        return np.array([str(value) for value in flat.tolist()])
    if flat.dtype.kind == "b":
        return flat.astype(np.int64)
    if flat.dtype.kind in "iuUS":
        return flat
    raise InputError(f"{what} holds {flat.dtype}: classes are whole numbers or text")


def _refuse_missing(missing: Pixels, what: str) -> None:
    if count := int(np.count_nonzero(missing)):
        samples = "1 sample" if count == 1 else f"{count:,} samples"
        raise InputError(
            f"{what} has no label for {samples}, the first of them sample {int(np.argmax(missing))}: "
            "give every sample one, or leave it out"
        )


def held_out_rows(labels: Labels, share: float, names: tuple[str, ...], *, seed: int) -> NDArray[np.bool_]:
    """Which samples are kept for testing: a share of every class, at least one, drawn with a seed.

    Args:
        labels: The class of each sample.
        share: The share that is kept.
        names: The names of the classes, for messages.
        seed: Draws the samples.

    Raises:
        InputError: A class has a single sample.

    Example:
        >>> held_out_rows(np.array([0] * 5 + [1] * 10), 0.2, ("a", "b"), seed=0).sum()
        np.int64(3)
    """
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(labels), bool)
    for label, name in enumerate(names):
        rows = np.flatnonzero(labels == label)
        if len(rows) < 2:
            raise InputError(
                f"class {name} has {len(rows)} sample: a class needs one to learn and one to test"
            )
        count = min(len(rows) - 1, max(1, round(share * len(rows))))
        chosen[rng.permutation(rows)[:count]] = True
    return chosen
