"""Different numbers of the same name: what several tools compute from one matrix, side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from engram.metrics import matrix
from engram.metrics.arrays import Matrix, mean_of_known
from engram.metrics.examples import worked_matrix, written_matrix


@dataclass(frozen=True, slots=True)
class Variant:
    """One of several numbers that share a name.

    Attributes:
        who: The metric of engram, and the other tools that compute it.
        how: How it is computed.
        value: The number.
    """

    who: str
    how: str
    value: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same matrix under several definitions.

    Attributes:
        name: The name they share.
        cells: The matrix.
        variants: The numbers.
    """

    name: str
    cells: str
    variants: tuple[Variant, ...]


def same_name(family: str, acc: Matrix | None = None) -> Comparison | None:
    """The numbers that share a name, computed from one matrix; None if the name is not shared.

    Args:
        family: The name.
        acc: The matrix `acc[learned, evaluated]` (default: a worked example).

    Example:
        >>> [round(variant.value, 4) for variant in same_name("forgetting").variants]
        [0.13, 0.1367, 0.1433, 0.1075, 0.0975, -0.085, -0.13]
    """
    variants = _FAMILIES.get(family.casefold().replace("-", " ").replace("_", " "))
    if acc is None:
        acc = worked_matrix()[:4, :4]
    return Comparison(family, written_matrix(acc), tuple(variants(acc))) if variants else None


def shared_names() -> list[str]:
    """The names that several numbers share.

    Example:
        >>> shared_names()
        ['forgetting', 'backward transfer', 'average accuracy']
    """
    return list(_FAMILIES)


def _forgetting_variants(acc: Matrix) -> Iterable[Variant]:
    last, tasks = acc[-1], len(acc)
    best = np.nanmax(acc, axis=0)
    earlier = (best - last)[:-1]
    yield Variant(
        "FORG; Avalanche", "just learned − now, mean of T − 1", matrix.final(matrix.forgetting(acc), acc)
    )
    yield Variant(
        "AF; FACIL, Renate",
        "best earlier − now, mean of T − 1",
        matrix.final(matrix.average_forgetting(acc), acc),
    )
    yield Variant("AF with clamp; Mammoth, PyCIL", "best ever − now, mean of T − 1", mean_of_known(earlier))
    yield Variant("(other tools)", "best ever − now, summed and divided by T", float(earlier.sum()) / tasks)
    yield Variant(
        "GEM's code, sign turned",
        "just learned − now, summed and divided by T",
        float((np.diag(acc) - last).sum()) / tasks,
    )
    yield Variant(
        "AvgFgt", "now − just learned, after every task, then averaged", matrix.average_signed_forgetting(acc)
    )
    yield Variant(
        "BWT; Mammoth's backward transfer", "now − just learned, mean of T − 1", matrix.backward_transfer(acc)
    )


def _transfer_variants(acc: Matrix) -> Iterable[Variant]:
    change = acc - np.diag(acc)
    pairs = change[np.tril_indices(len(acc), -1)]
    yield Variant("BWT; Mammoth", "now − just learned, mean of T − 1", matrix.backward_transfer(acc))
    yield Variant(
        "GEM's code", "now − just learned, summed and divided by T", float(change[-1].sum()) / len(acc)
    )
    yield Variant(
        "Díaz-Rodríguez et al.",
        "after every later task − just learned, mean of all pairs",
        float(pairs.mean()),
    )
    yield Variant(
        "AvgFgt", "now − just learned, after every task, then averaged", matrix.average_signed_forgetting(acc)
    )


def _accuracy_variants(acc: Matrix) -> Iterable[Variant]:
    after_each = matrix.average_accuracy(acc)
    seen = acc[np.tril_indices(len(acc))]
    yield Variant("ACC, AA, AvgAcc", "mean of all tasks at the end", matrix.final(after_each, acc))
    yield Variant(
        "average incremental accuracy", "the same after every task, then averaged", mean_of_known(after_each)
    )
    yield Variant("Díaz-Rodríguez et al.; continuum's A", "mean of all cells", float(seen.mean()))
    yield Variant(
        "AvgLAcc", "mean of each task just after it was learned", matrix.average_learning_accuracy(acc)
    )


_FAMILIES: Final = {
    "forgetting": _forgetting_variants,
    "backward transfer": _transfer_variants,
    "average accuracy": _accuracy_variants,
}
