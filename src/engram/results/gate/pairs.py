"""Two models' answers to the same samples, joined by id, and counted slice by slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError, unknown_name
from engram.core.words import subject
from engram.results.gate.predictions import ID, IMAGE, LABEL, PREDICTION, TEXT, Predictions, as_text, listed

if TYPE_CHECKING:
    import polars

OLD, NEW, OLD_ANSWER, NEW_ANSWER = "old", "new", "old answer", "new answer"
CLASS: Final = "class"
EVERYTHING: Final = "all samples"
_COUNTED: Final = ("total", "before", "after", "lost", "gained")


@dataclass(frozen=True, slots=True)
class Pairs:
    """The answers of an old and a new model to the same samples.

    Attributes:
        frame: One row per sample: `id`, `old` and `new` (whether that model is right), `label`, `old answer`,
            `new answer`, `text` and `image` where known, and the columns that are slices.
        slice_columns: The columns that are slices; `class` is the label.
    """

    frame: polars.DataFrame
    slice_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """How many samples of each slice are right before and after; the first entry is all samples.

    Attributes:
        names: `all samples`, then `column=value`, or the column alone where it is true or false.
        total: Samples.
        before: Those that the old model classifies correctly.
        after: Those that the new model classifies correctly.
        lost: Those that only the old model classifies correctly.
        gained: Those that only the new model classifies correctly.
        too_small: How many slices were left out because they are too small.
    """

    names: tuple[str, ...]
    total: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    lost: NDArray[np.int64]
    gained: NDArray[np.int64]
    too_small: int = 0


def join(old: Predictions, new: Predictions, *, common: bool = False) -> Pairs:
    """The answers of two models to the same samples, joined by id.

    Args:
        old: The old model's predictions.
        new: The new model's predictions.
        common: Whether samples that only one of them has are left out, instead of being an error.

    Raises:
        InputError: Ids, labels or slices do not match.

    Example:
        >>> from engram.results.gate.predictions import of_table
        >>> old = of_table({"id": [1, 2], "correct": [1, 1]}, source="old")
        >>> new = of_table({"id": [2, 1], "correct": [0, 1]}, source="new")
        >>> join(old, new).frame.rows()
        [('1', True, True), ('2', True, False)]
    """
    first = old.frame.rename({"correct": OLD})
    second = new.frame.rename({"correct": NEW})
    if not first[ID].equals(second[ID]):
        first, second = _aligned(first, second, old, new, common=common)
    columns = [first[ID], first[OLD], second[NEW]]
    for name in (LABEL, TEXT, IMAGE):
        columns += _agreed(name, first, second, old, new)
    columns += [
        frame[PREDICTION].alias(answer)
        for frame, answer in ((first, OLD_ANSWER), (second, NEW_ANSWER))
        if PREDICTION in frame.columns
    ]
    slices = list(dict.fromkeys([*old.slice_columns, *new.slice_columns]))
    taken = [name for name in slices if name in (OLD, NEW, OLD_ANSWER, NEW_ANSWER, CLASS)]
    if taken:
        raise InputError(f"a slice cannot be called {taken[0]!r}: rename this column")
    for name in slices:
        columns += _agreed(name, first, second, old, new)
    import polars as pl

    frame = pl.DataFrame(columns)
    if LABEL in frame.columns:
        frame = frame.with_columns(as_text(frame[LABEL], old.source).alias(CLASS))
        slices.append(CLASS)
    return Pairs(frame, tuple(slices))


def choose_slices(pairs: Pairs, names: Sequence[str]) -> Pairs:
    """The same answers with only these columns as slices.

    Example:
        >>> import polars as pl
        >>> choose_slices(Pairs(pl.DataFrame({"a": [1], "b": [1]}), ("a", "b")), ["b"]).slice_columns
        ('b',)
    """
    for name in names:
        if name not in pairs.slice_columns:
            raise unknown_name("slice column", name, pairs.slice_columns)
    return Pairs(pairs.frame, tuple(names))


def count(pairs: Pairs, *, min_samples: int | None = None) -> Counted:
    """The counts of all samples and of every slice.

    Args:
        pairs: The answers.
        min_samples: Slices with fewer samples are left out. By default none is, and a slice of one sample
            is an error, because it usually means that a column is not a slice.

    Raises:
        InputError: A slice has one sample only.

    Example:
        >>> import polars as pl
        >>> right = {"old": [True, True, False], "new": [True, False, True]}
        >>> frame = pl.DataFrame({**right, "dark": [1, 1, None]})
        >>> counted = count(Pairs(frame, ("dark",)))
        >>> list(zip(counted.names, counted.total.tolist(), counted.lost.tolist()))
        [('all samples', 3, 1), ('dark=1', 2, 1)]
    """
    import polars as pl

    frame = pairs.frame
    parts = [frame.select(pl.lit(EVERYTHING).alias("name"), *_sums())]
    memberships = [name for name in pairs.slice_columns if frame[name].dtype == pl.Boolean]
    if memberships:
        parts.append(_of_memberships(frame, memberships))
    parts += [_of_column(frame, name) for name in pairs.slice_columns if name not in memberships]
    table = pl.concat(parts, how="vertical_relaxed")
    least = 2 if min_samples is None else min_samples
    small = [total < least for total in table["total"].to_list()]
    small[0] = False
    if min_samples is None and any(small):
        _refuse_single(table.filter(pl.Series(small))["name"].to_list())
    kept = table.filter(~pl.Series(small))
    numbers = {name: kept[name].cast(pl.Int64).to_numpy() for name in _COUNTED}
    return Counted(tuple(kept["name"].to_list()), **numbers, too_small=sum(small))


def _parts() -> dict[str, polars.Expr]:
    """Which samples are counted under each name but the total."""
    import polars as pl

    old, new = pl.col(OLD), pl.col(NEW)
    return {"before": old, "after": new, "lost": old & ~new, "gained": ~old & new}


def _sums() -> list[polars.Expr]:
    """The counts of the rows of a table or of a group."""
    import polars as pl

    return [
        pl.len().cast(pl.Int64).alias("total"),
        *(part.sum().cast(pl.Int64).alias(name) for name, part in _parts().items()),
    ]


def _of_memberships(frame: polars.DataFrame, names: Sequence[str]) -> polars.DataFrame:
    """Slices that are columns of true and false: all of them in one pass."""
    import polars as pl

    parts = frame.select(**_parts())
    columns = {name: frame[name].fill_null(value=False) for name in names}
    sums = np.array(
        [
            [column.sum(), *((column & part).sum() for part in parts.iter_columns())]
            for column in columns.values()
        ],
        dtype=np.int64,
    )
    table = pl.DataFrame({"name": list(names), **dict(zip(_COUNTED, sums.T, strict=True))})
    return table.filter(pl.col("total") > 0)


def _of_column(frame: polars.DataFrame, name: str) -> polars.DataFrame:
    """The slices of one column: one per value; samples without a value are in none."""
    import polars as pl

    if isinstance(frame[name].dtype, pl.List | pl.Array | pl.Binary):
        raise InputError(
            f"the column {name!r} has {frame[name].dtype} and cannot be a slice: name those that are with "
            "--slices"
        )
    values = frame.select(OLD, NEW, pl.col(name).alias("value")).filter(pl.col("value").is_not_null())
    grouped = values.group_by("value").agg(_sums()).sort("value")
    return grouped.select(pl.format("{}={}", pl.lit(name), pl.col("value")).alias("name"), *_COUNTED)


def _refuse_single(names: Sequence[str]) -> None:
    one = subject(len(names), "slice")
    raise InputError(
        f"{one} a single sample: {listed(names)}; name the columns that are slices with --slices, or leave "
        "small ones out with --min-samples 2"
    )


# Agreement ------------------------------------------------------------------------------------------


def _aligned(
    first: polars.DataFrame, second: polars.DataFrame, old: Predictions, new: Predictions, *, common: bool
) -> tuple[polars.DataFrame, polars.DataFrame]:
    """The rows of both in the order of the first.

    Raises:
        InputError: An id is in one of them only, unless `common` leaves it out; or no id is in both.
    """
    import polars as pl

    numbered = second.select(ID).with_row_index("row")
    rows = first.select(ID).join(numbered, on=ID, how="left", maintain_order="left")["row"]
    gone = rows.is_null()
    matched = rows.drop_nulls()
    if not len(matched):
        examples = " and ".join(listed(frame[ID].head(2).to_list()) for frame in (first, second))
        raise InputError(f"{old.source} and {new.source} have no id in common: {examples}")
    if len(matched) == len(first) == len(second):
        return first, second[matched]
    if not common:
        alone = second.filter(~pl.int_range(len(second), eager=True).is_in(matched.implode()))
        parts = [
            f"{subject(len(ids), 'id', ('is', 'are'))} only in {source}: {listed(ids.to_list())}"
            for ids, source in ((first.filter(gone)[ID], old.source), (alone[ID], new.source))
            if len(ids)
        ]
        them = "it" if int(gone.sum()) + len(alone) == 1 else "them"
        raise InputError("; ".join(parts) + f"; leave {them} out with --common")
    return first.filter(~gone), second[matched]


def _agreed(
    name: str, first: polars.DataFrame, second: polars.DataFrame, old: Predictions, new: Predictions
) -> list[polars.Series]:
    """A column that one or both have; where both have it, it must be the same."""
    both = [frame[name] for frame in (first, second) if name in frame.columns]
    if len(both) < 2 or name in (TEXT, IMAGE):
        return both[:1]
    if both[0].dtype != both[1].dtype:
        both = [as_text(column, model.source) for column, model in zip(both, (old, new), strict=True)]
    differ = both[0].ne_missing(both[1])
    if differ.any():
        if name == LABEL:
            words = [set(as_text(column.drop_nulls(), old.source).unique().to_list()) for column in both]
            if not words[0] & words[1]:
                raise InputError(
                    f"labels have different vocabularies: {old.source} has {listed(words[0])}, "
                    f"{new.source} has {listed(words[1])}"
                )
        row = int(differ.arg_true()[0])
        raise InputError(
            f"{name!r} differs between {old.source} and {new.source} for {int(differ.sum())} samples, "
            f"for example id {first[ID][row]!r}: {both[0][row]!r} and {both[1][row]!r}"
        )
    return both[:1]
