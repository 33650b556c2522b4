"""Reads evaluation tables and accuracy matrices from CSV and Parquet files."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.folder import ANCHORS, TRACE
from engram.core.headers import header_of, refuse_repeated_columns
from engram.core.trace import COLUMNS, Trace
from engram.metrics.arrays import Labels, Matrix, Vector
from engram.metrics.history import Curve
from engram.metrics.matrix import accuracy_matrix

if TYPE_CHECKING:
    import polars

_EXACT = 2**53
"""Up to here, every whole number is a floating-point number."""

_INTEGER = r"^[+-]?[0-9]+$"

_LAYOUT = (
    "a long table has the columns step, learning, task and accuracy (or correct and total), "
    "a matrix has numbers only and no header"
)


def read_accuracies(path: Path) -> Curve | Matrix:
    """The evaluation history or accuracy matrix in a file.

    A long table (CSV with a header, or Parquet) has the columns `step`, `learning`, `task` and either
    `accuracy` or `correct` and `total`, which take precedence if both are present; tasks are numbers or
    names. A CSV file whose first line has numbers only is a matrix: row k is after learning task k, and a
    blank cell or nan means "not evaluated".

    Raises:
        InputError: The file cannot be read, or has neither of these layouts.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "matrix.csv"
        >>> _ = file.write_text("0.9,\\n0.6,0.8\\n")
        >>> read_accuracies(file)
        array([[0.9, nan],
               [0.6, 0.8]])
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if not content.strip():
        raise InputError(f"{path} is empty: {_LAYOUT}")
    if content[:4] == b"PAR1":
        return _long_table(_frame(path, content), path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is neither Parquet nor text in UTF-8: {_LAYOUT}") from error
    first = next(line for line in text.splitlines() if line.strip())
    if all(_as_number(cell) is not None for cell in first.split(",")):
        return _matrix(text, path)
    return _long_table(_frame(path, text.encode()), path)


def read_bits(path: Path) -> Trace | None:
    """The trace in a file, for metrics that need bits; None if the file has no bits.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "trace.parquet"
        >>> trace = Trace()
        >>> trace.add(step=1, learning=0, task=0, right=np.array([True, False]))
        >>> _ = trace.save(file)
        >>> read_bits(file) == trace
        True
    """
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            return None
    import polars as pl

    types = pl.read_parquet_schema(path)
    integers = all(name in types and types[name].is_integer() for name in COLUMNS[:-1])
    if not integers or types.get("bits") != pl.Binary:
        return None
    trace = Trace.load(path)
    beside = path.parent / ANCHORS
    if path.name == TRACE and beside.is_file():
        trace.anchors = Trace.load(beside)
    return trace if all(trace.bits) else None


def _matrix(text: str, path: Path) -> Matrix:
    rows: list[list[float]] = []
    try:
        for number, cells in enumerate(csv.reader(io.StringIO(text), strict=True), start=1):
            if not cells:
                continue
            values = [_as_number(cell) for cell in cells]
            if None in values:
                raise InputError(f"{path}, line {number}: {cells[values.index(None)]!r} is not a number")
            rows.append([value for value in values if value is not None])
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}") from error
    try:
        matrix = accuracy_matrix(rows)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if np.isnan(matrix).all():
        raise InputError(f"{path} has no accuracies: every cell is blank")
    return matrix


def _as_number(cell: str) -> float | None:
    """The number in a cell; NaN for a blank cell, None for text."""
    try:
        return float(cell) if cell.strip() else math.nan
    except ValueError:
        return None


def _frame(path: Path, content: bytes) -> polars.DataFrame:
    import polars as pl

    try:
        if content[:4] == b"PAR1":
            return pl.read_parquet(content)
        # All columns are read as text, so that a cell that is not a number can be named in an error.
        frame = pl.read_csv(content, infer_schema=False)
        text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace", newline="")
        refuse_repeated_columns(header_of(text), path)
        return frame
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot read {path}: {reason}") from error


def _long_table(frame: polars.DataFrame, path: Path) -> Curve:
    frame = strip_names(frame, path)
    counted = {"correct", "total"} <= set(frame.columns)
    wanted = ["step", "learning", "task", *(("correct", "total") if counted else ("accuracy",))]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise InputError(f"{path} is missing the column {' and '.join(map(repr, missing))}: {_LAYOUT}")
    if not len(frame):
        raise InputError(f"{path} has no rows: it must have one row per evaluation of a task")
    step = _counts(frame["step"], path)
    learning, task = _labels(frame["learning"], path), _labels(frame["task"], path)
    if learning.dtype.kind != task.dtype.kind:
        raise InputError(f"{path}: learning and task must both be numbers or both be names")
    try:
        if counted:
            correct, total = _shares(frame, path)
            return Curve.of_counts(step=step, learning=learning, task=task, correct=correct, total=total)
        return Curve.of_table(
            step=step, learning=learning, task=task, accuracy=_fractions(frame["accuracy"], path)
        )
    except InputError as error:
        raise error if str(error).startswith(str(path)) else InputError(f"{path}: {error}") from error


def strip_names(frame: polars.DataFrame, source: object) -> polars.DataFrame:
    """A table whose columns are named without spaces at either end.

    Args:
        frame: The table.
        source: What messages call it.

    Raises:
        InputError: Two columns have the same name then.

    Example:
        >>> import polars as pl
        >>> strip_names(pl.DataFrame({" step": [1], "task": [0]}), "log.csv").columns
        ['step', 'task']
        >>> strip_names(pl.DataFrame({" step": [1], "step": [0]}), "log.csv")
        Traceback (most recent call last):
        engram.core.errors.InputError: log.csv has 2 columns 'step': every name must occur once
    """
    refuse_repeated_columns(frame.columns, source)
    names = [name.strip() or name for name in frame.columns]
    return frame.rename(dict(zip(frame.columns, names, strict=True)))


def _numbers(column: polars.Series, path: Path) -> Vector:
    """A column as numbers; NaN where a cell is blank."""
    import polars as pl

    if column.dtype == pl.String:
        cells = column.str.strip_chars().replace("", None)
        values = cells.cast(pl.Float64, strict=False)
        text = cells.is_not_null() & values.is_null()
        if text.any():
            _refuse_cell(column, int(text.arg_true()[0]), path, "is not a number")
        column = values
    elif not column.dtype.is_numeric():
        raise InputError(f"{path}: the column {column.name!r} must be numbers, got {column.dtype}")
    numbers: Vector = column.cast(pl.Float64).fill_null(math.nan).to_numpy()
    return numbers


def _fractions(column: polars.Series, path: Path) -> Vector:
    """A column of accuracies; NaN where a cell is blank."""
    numbers = _numbers(column, path)
    wrong = np.flatnonzero((numbers < 0) | (numbers > 1))
    if wrong.size:
        value = numbers[wrong[0]]
        hint = " (are these percentages? divide by 100)" if 1 < value <= 100 else ""
        raise InputError(
            f"{path}, row {wrong[0] + 1}: the column {column.name!r} must have values from 0 to 1, "
            f"got {value:g}{hint}"
        )
    return numbers


def _shares(frame: polars.DataFrame, path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The columns `correct` and `total`."""
    correct, total = _whole_numbers(frame["correct"], path), _whole_numbers(frame["total"], path)
    empty, over = np.flatnonzero(total < 1), np.flatnonzero((correct < 0) | (correct > total))
    if empty.size:
        row = int(empty[0])
        raise InputError(f"{path}, row {row + 1}: total must be at least 1, got {total[row]}")
    if over.size:
        row = int(over[0])
        _refuse_cell(frame["correct"], row, path, f"must be between 0 and total, which is {total[row]}")
    large = np.flatnonzero(total > _EXACT)
    if large.size:
        _refuse_cell(frame["total"], int(large[0]), path, f"must be at most {_EXACT}")
    return correct, total


def _counts(column: polars.Series, path: Path) -> NDArray[np.int64]:
    """A column of whole numbers from 0 on."""
    numbers = _whole_numbers(column, path)
    negative = np.flatnonzero(numbers < 0)
    if negative.size:
        _refuse_cell(column, int(negative[0]), path, "must be at least 0")
    return numbers


def _whole_numbers(column: polars.Series, path: Path) -> NDArray[np.int64]:
    """A column of whole numbers, exactly: as they are written, and not by way of floating-point numbers."""
    import polars as pl

    approximate = _numbers(column, path)
    wrong = np.flatnonzero(~(np.floor(approximate) == approximate) | np.isinf(approximate))
    if wrong.size:
        _refuse_cell(column, int(wrong[0]), path, "is not a whole number")
    text = column.dtype == pl.String
    cells = column.str.strip_chars() if text else column
    if cells.dtype.is_float():
        exact = pl.Series(column.name, [None] * len(column), dtype=pl.Int64)
    else:
        exact = cells.cast(pl.Int64, strict=False)
    # 1e3 and 3.0 are whole numbers too, and exact as long as neighbouring numbers can be told apart.
    rounded = exact.is_null().to_numpy()
    inexact = np.flatnonzero(rounded & (np.abs(approximate) > _EXACT))
    if inexact.size:
        limit = "between -2^63 and 2^63 - 1, and written without an exponent or a decimal point above 2^53"
        _refuse_cell(column, int(inexact[0]), path, f"must be {limit}")
    numbers = exact.fill_null(0).to_numpy().astype(np.int64)
    return np.where(rounded, np.where(rounded, approximate, 0).astype(np.int64), numbers)


def _labels(column: polars.Series, path: Path) -> Labels:
    """A column of tasks: integers if all entries are, otherwise names."""
    import polars as pl

    if column.dtype.is_numeric():
        return _counts(column, path)
    if column.dtype != pl.String and not isinstance(column.dtype, pl.Categorical | pl.Enum):
        raise InputError(f"{path}: the column {column.name!r} must be numbers or text, got {column.dtype}")
    names = column.cast(pl.String).str.strip_chars()
    blank = names.is_null() | (names == "")
    if blank.any():
        _refuse_cell(column, int(blank.arg_true()[0]), path, "is not the name of a task")
    if names.str.contains(_INTEGER).all():
        return _counts(column.cast(pl.String), path)
    return np.array(names.to_list())


def _refuse_cell(column: polars.Series, row: int, path: Path, what: str) -> NoReturn:
    value = column[row]
    cell = "a blank cell" if value is None or value == "" else repr(value)
    raise InputError(f"{path}, row {row + 1}: {cell} in the column {column.name!r} {what}")
