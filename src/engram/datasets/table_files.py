"""Tables in CSV and Parquet files: columns of numbers, or one column of lists, and a column of labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engram.core.errors import InputError, unknown_name
from engram.core.headers import header_of, refuse_repeated_columns
from engram.datasets.formats import Pixels

if TYPE_CHECKING:
    import polars

LABEL = "label"
"""The column of labels, if no other is named."""


@dataclass(frozen=True, slots=True)
class Table:
    """The inputs of a table, samples × columns or samples × what the lists of a column hold, and labels."""

    x: Pixels
    y: Pixels


def read_table(path: Path, label: str | None, features: tuple[str, ...] = ()) -> Table:
    """The inputs and labels in a table.

    Args:
        path: A CSV, TSV or Parquet file.
        label: The column of labels (default: `label`).
        features: The columns that are inputs (default: all others).

    Raises:
        InputError: A column is missing, is not made of numbers, or lacks some of them.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "flowers.csv"
        >>> _ = place.write_text("petal,leaf,kind\\n1.5,2,rose\\n0.5,1,lily\\n")
        >>> table = read_table(place, "kind")
        >>> table.x.tolist(), table.y.tolist()
        ([[1.5, 2.0], [0.5, 1.0]], ['rose', 'lily'])
    """
    frame = _frame(path)
    column = LABEL if label is None else label
    if column not in frame.columns:
        hint = "name the column of labels with --label (label=)" if label is None else "choose one of these"
        raise InputError(f"{path.name} has no column {column!r}: it has {', '.join(frame.columns)}; {hint}")
    for name in features:
        if name not in frame.columns:
            raise unknown_name(f"column of {path.name}", name, frame.columns)
    if column in features:
        raise InputError(f"{column!r} is the label and cannot be a feature as well: leave it out")
    chosen = list(features) or [name for name in frame.columns if name != column]
    if not chosen:
        raise InputError(f"{path.name} has no column besides the label {column!r}: add the inputs")
    if not len(frame):
        raise InputError(f"{path.name} has no rows")
    return Table(_inputs(frame.select(chosen), path), _label(frame[column], column, path))


def _frame(path: Path) -> polars.DataFrame:
    import polars as pl

    try:
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        # Polars itself opens only files whose names are UTF-8.
        with path.open("rb") as file:
            if path.suffix.lower() == ".parquet":
                return pl.read_parquet(file)
            frame = pl.read_csv(file, separator=separator, infer_schema_length=None)
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as text:
            refuse_repeated_columns(header_of(text, separator=separator), path)
        return frame
    except (OSError, pl.exceptions.PolarsError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot read {path}: {first}") from error


def _label(column: polars.Series, name: str, path: Path) -> Pixels:
    missing = column.is_null() | (column.is_nan() if column.dtype.is_float() else False)
    if count := int(missing.sum()):
        rows = "1 row" if count == 1 else f"{count:,} rows"
        raise InputError(
            f"the column {name!r} of {path.name} has no label in {rows}, the first of them row "
            f"{missing.arg_max()}: give every row one, or leave it out"
        )
    values: Pixels = column.to_numpy()
    return values.astype(str) if values.dtype == object else values


def _inputs(frame: polars.DataFrame, path: Path) -> Pixels:
    lists = [name for name, kind in frame.schema.items() if kind.is_nested()]
    if lists:
        return _of_lists(frame, lists, path)
    for name, kind in frame.schema.items():
        if not (kind.is_numeric() or str(kind) == "Boolean"):
            raise InputError(
                f"the column {name!r} of {path.name} holds {kind}, not numbers: turn it into numbers, or "
                "name the columns that are inputs with --features (features=)"
            )
        if count := frame[name].null_count():
            raise InputError(
                f"the column {name!r} of {path.name} lacks {count:,} of {len(frame):,} numbers: fill "
                "them in, or leave these rows out"
            )
    return frame.to_numpy().astype(np.float64)


def _of_lists(frame: polars.DataFrame, lists: list[str], path: Path) -> Pixels:
    """The lists of a column as an array; all of them must have the same shape."""
    if frame.width > 1:
        raise InputError(
            f"{path.name} has lists in {', '.join(map(repr, lists))} beside other columns: name the "
            "one that is the input with features"
        )
    try:
        array: Pixels = np.asarray(frame[lists[0]].to_list())
    except ValueError as error:
        raise InputError(
            f"the lists in the column {lists[0]!r} of {path.name} have different lengths: pad or cut them"
        ) from error
    return array
