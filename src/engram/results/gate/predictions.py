"""A model's answers, one row per sample, read from files or tables."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from engram.core.errors import InputError, unknown_name
from engram.core.headers import header_of, refuse_repeated_columns
from engram.core.words import subject
from engram.metrics.tables import strip_names

if TYPE_CHECKING:
    import polars

    Table: TypeAlias = polars.DataFrame | Mapping[str, Sequence[object]]

ID, CORRECT, LABEL, PREDICTION, TEXT, IMAGE = "id", "correct", "label", "prediction", "text", "image"
SPECIAL: Final = (ID, CORRECT, LABEL, PREDICTION, TEXT, IMAGE)
"""Columns that are not slices; `text` and `image` (a path) show people what a sample is."""

LAYOUT: Final = (
    "a prediction file has one row per sample with the columns id, and correct, or label and prediction; "
    "further columns are slices"
)
_TRUE: Final = ("1", "true", "1.0")
_FALSE: Final = ("0", "false", "0.0")
_LISTED: Final = 10
_LM_EVAL_NAME: Final = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d{2}-\d{2}T[\d.:-]+)\.jsonl")


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a model answered, one row per sample.

    Attributes:
        frame: The columns `id` (text) and `correct` (boolean), `label` and `prediction` where known, `text`
            and `image` for people, and any number of columns that are slices.
        source: Where it comes from, for messages.
        of_lm_eval: Whether lm-eval wrote it, so that one of several metrics said what is right.
    """

    frame: polars.DataFrame
    source: str
    of_lm_eval: bool = False

    @property
    def slice_columns(self) -> list[str]:
        """The columns that divide the samples into slices."""
        return [name for name in self.frame.columns if name not in SPECIAL]


def read_predictions(path: str | Path, *, score: str | None = None) -> Predictions:
    """The predictions in a CSV, Parquet, JSONL or npz file, or in lm-eval's per-sample files.

    Args:
        path: The file, or a folder with lm-eval's `samples_TASK_DATE.jsonl`, of which the newest of every
            task is read.
        score: For lm-eval, the metric that says whether an answer is right (default: the first one).

    Raises:
        InputError: The file cannot be read, or is not laid out like this.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "old.csv"
        >>> _ = file.write_text("id,label,prediction,light\\n1,cat,cat,day\\n2,dog,cat,night\\n")
        >>> predictions = read_predictions(file)
        >>> predictions.frame["correct"].to_list(), predictions.slice_columns
        ([True, False], ['light'])
    """
    place = Path(path)
    if place.is_dir():
        return _of_folder(place, score)
    frame = _frame(place)
    of_lm_eval = {"doc_id", "target"} <= set(frame.columns)
    if of_lm_eval:
        frame = _of_lm_eval(frame, place, score)
    return replace(consistent(of_table(frame, source=str(place))), of_lm_eval=of_lm_eval)


def of_table(table: Table, *, source: str) -> Predictions:
    """Predictions from a polars data frame, or from columns by name.

    Args:
        table: The columns.
        source: What messages call it.

    Example:
        >>> of_table({"id": [1, 2], "correct": [1, 0]}, source="old").frame.rows()
        [('1', True), ('2', False)]
    """
    import polars as pl

    try:
        frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(dict(table), strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise InputError(f"{source} is not a table of predictions: {_first_line(error)}; {LAYOUT}") from error
    frame = strip_names(frame, source)
    if ID not in frame.columns:
        raise InputError(f"{source} has no column 'id': {LAYOUT}")
    if not len(frame):
        raise InputError(f"{source} has no rows: {LAYOUT}")
    columns = [_identities(frame[ID], source), _correctness(frame, source)]
    known = {column.name for column in columns}
    frame = frame.select(*columns, *(pl.col(name) for name in frame.columns if name not in known))
    _refuse_repeated(frame, source)
    return Predictions(frame, source)


def consistent(predictions: Predictions) -> Predictions:
    """The same predictions, where `correct` does not contradict label and prediction.

    What is right may be more than the label itself: another spelling, a number that is near, an answer that a
    judge accepts. But another class is not right, and the label itself is not wrong. The labels and answers
    of runs need not be of one kind: an answer is an output of the network.

    Raises:
        InputError: An answer is said to be right and is another label, or to be wrong and is the label.

    Example:
        >>> table = {"id": [7, 8], "label": ["cat", "dog"], "prediction": ["dog", "Dog"], "correct": [1, 1]}
        >>> consistent(of_table(table, source="new"))
        Traceback (most recent call last):
        engram.core.errors.InputError: new, row 1: correct is 1, but label is 'cat' and prediction is 'dog'...
    """
    frame = predictions.frame
    if not {LABEL, PREDICTION} <= set(frame.columns):
        return predictions
    if any(frame[name].dtype.is_nested() for name in (LABEL, PREDICTION)):
        return predictions
    label, answer = (_words(frame[name], predictions.source) for name in (LABEL, PREDICTION))
    same, known = label.eq_missing(answer), answer.is_in(label.drop_nulls().unique().implode())
    right = frame[CORRECT]
    wrong = ((right & ~same & known) | (~right & same)).fill_null(value=False) & label.is_not_null()
    if wrong.any():
        row = int(wrong.arg_true()[0])
        raise InputError(
            f"{predictions.source}, row {row + 1}: correct is {int(right[row])}, but label is "
            f"{frame[LABEL][row]!r} and prediction is {frame[PREDICTION][row]!r}: correct the row, or leave "
            "out the column correct, or label and prediction"
        )
    return predictions


def _words(column: polars.Series, source: str) -> polars.Series:
    """A column as text without spaces at either end; null where a number is NaN.

    Whole numbers are written alike, so that 3 and 3.0 are the same class.

    Example:
        >>> import polars as pl
        >>> _words(pl.Series([3.0, -0.0, float("nan"), 2.5]), "new").to_list()
        ['3', '0', None, '2.5']
        >>> _words(pl.Series(["3", " 3.0", "03"]), "new").to_list()
        ['3', '3', '03']
    """
    words = as_text(_without_nan(column), source).str.strip_chars()
    return words.str.replace(r"^(-?\d+)\.0+$", "$1").str.replace("^-0$", "0")


def _without_nan(column: polars.Series) -> polars.Series:
    """A column whose numbers that are NaN are null."""
    return column.fill_nan(None) if column.dtype.is_float() else column


# Files ----------------------------------------------------------------------------------------------


def _frame(path: Path) -> polars.DataFrame:
    import polars as pl

    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".jsonl": _read_jsonl, ".ndjson": _read_jsonl}
    readers[".npz"] = _read_npz
    reader = readers.get(path.suffix.lower())
    if not path.is_file():
        raise InputError(f"no such file: {path}; {LAYOUT}")
    if reader is None:
        raise InputError(f"cannot read {path}: predictions are .csv, .parquet, .jsonl or .npz files")
    try:
        frame = reader(path)
    except InputError:
        raise
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        raise InputError(f"cannot read {path}: {_first_line(error)}") from error
    except RecursionError as error:
        raise InputError(f"cannot read {path}: it is nested too deeply") from error
    if not frame.width:
        raise InputError(f"{path} is empty: {LAYOUT}")
    return frame


def _read_csv(path: Path) -> polars.DataFrame:
    import polars as pl

    # Text first: a slice `01` stays what it is, and a bad cell can be named.
    # Polars itself opens only files whose names are UTF-8.
    with path.open("rb") as file:
        frame = pl.read_csv(file, infer_schema=False)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as text:
        refuse_repeated_columns(header_of(text), path)
    return frame


def _read_parquet(path: Path) -> polars.DataFrame:
    import polars as pl

    with path.open("rb") as file:
        return pl.read_parquet(file)


def _read_jsonl(path: Path) -> polars.DataFrame:
    import polars as pl

    with path.open(encoding="utf-8") as file:
        first = file.readline()
    try:
        nested = isinstance(json.loads(first or "{}").get("doc"), dict)
    except (ValueError, AttributeError) as error:
        raise InputError(f"cannot read {path}: its first line is not a JSON object") from error
    if not nested:
        with path.open("rb") as file:
            return pl.read_ndjson(file, infer_schema_length=None)
    # lm-eval nests whole documents whose types differ from row to row: only what is needed is read.
    rows = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                rows.append(_flat_row(line, path, number))
    return pl.DataFrame(rows, infer_schema_length=None, strict=False)


def _flat_row(line: str, path: Path, number: int) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"cannot read {path}, line {number}: {error}") from error
    if not isinstance(row, dict):
        raise InputError(f"cannot read {path}, line {number}: it is not a JSON object")
    plain: dict[str, object] = {
        name: value for name, value in row.items() if isinstance(value, str | int | float | bool)
    }
    if isinstance(row.get("metrics"), list):
        plain["metrics"] = ",".join(map(str, row["metrics"]))
    plain["target"] = str(row.get("target"))
    return plain


def _read_npz(path: Path) -> polars.DataFrame:
    import numpy as np
    import polars as pl

    with np.load(path, allow_pickle=False) as arrays:
        try:
            columns = {name: arrays[name] for name in arrays.files}
        except ValueError as error:
            raise InputError(f"{path}: save text as arrays of text, not of objects") from error
    wrong = [name for name, column in columns.items() if column.ndim != 1]
    if wrong:
        raise InputError(f"{path}: the array {wrong[0]!r} must have one entry per sample; {LAYOUT}")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"{path}: all arrays must have the same length, got {sorted(lengths)}")
    return pl.DataFrame({name: pl.Series(column.tolist()) for name, column in columns.items()})


# lm-eval --------------------------------------------------------------------------------------------


def _of_lm_eval(frame: polars.DataFrame, path: Path, score: str | None) -> polars.DataFrame:
    """The per-sample file of one task of lm-eval as predictions."""
    import polars as pl

    listed = str(frame["metrics"][0]).split(",") if "metrics" in frame.columns else []
    numbers = [name for name in frame.columns if frame[name].dtype.is_numeric() and name != "doc_id"]
    metrics = [name for name in listed if name in frame.columns] or numbers
    if not metrics:
        raise InputError(f"{path} has no metric that says which answers are right")
    if score is not None and score not in metrics:
        raise unknown_name(f"metric of {path.name}", score, metrics)
    if "filter" in frame.columns:
        # Several filters judge the same answers: the first one is used.
        frame = frame.filter(pl.col("filter") == frame["filter"][0])
    same = "doc_hash" if "doc_hash" in frame.columns and frame["doc_hash"].is_unique().all() else "doc_id"
    named = _LM_EVAL_NAME.fullmatch(path.name)
    task = named["task"] if named else path.stem
    return frame.select(
        pl.format("{}:{}", pl.lit(task), pl.col(same)).alias(ID),
        pl.col(score or metrics[0]).alias(CORRECT),
        pl.lit(task).alias("task"),
        pl.col("target").alias(TEXT),
    )


def _of_folder(folder: Path, score: str | None) -> Predictions:
    import polars as pl

    newest: dict[str, tuple[str, Path]] = {}
    for path in sorted(folder.rglob("samples_*.jsonl")):
        if match := _LM_EVAL_NAME.fullmatch(path.name):
            newest[match["task"]] = max(newest.get(match["task"], ("", path)), (match["date"], path))
    if not newest:
        raise InputError(
            f"{folder} is neither a run nor a folder with lm-eval's samples_TASK_DATE.jsonl: name a file"
        )
    frames = [_of_lm_eval(_frame(path), path, score) for _, path in newest.values()]
    table = of_table(pl.concat(frames, how="vertical_relaxed"), source=str(folder))
    return replace(table, of_lm_eval=True)


# Columns --------------------------------------------------------------------------------------------


def _identities(column: polars.Series, source: str) -> polars.Series:
    missing = int(_without_nan(column).is_null().sum())
    if missing:
        raise InputError(f"{source}: {subject(missing, 'sample')} no id; every row needs one")
    return as_text(column, source).str.strip_chars().alias(ID)


def as_text(column: polars.Series, source: str) -> polars.Series:
    """A column as text.

    Raises:
        InputError: It has lists, or bytes that are not text.
    """
    import polars as pl

    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError as error:
        what = f"the column {column.name!r} must have text or numbers"
        raise InputError(f"{source}: {what}, got {column.dtype}: {_first_line(error)}") from error


def _refuse_repeated(frame: polars.DataFrame, source: str) -> None:
    if frame[ID].n_unique() == len(frame):
        return
    repeated = frame.filter(frame[ID].is_duplicated())[ID].unique(maintain_order=True)
    occur = subject(len(repeated), "id", ("occurs", "occur"))
    raise InputError(f"{source}: {occur} more than once: {listed(repeated.to_list())}")


def _correctness(frame: polars.DataFrame, source: str) -> polars.Series:
    """Which answers are right: the column `correct`, or whether `prediction` equals `label`."""
    if CORRECT in frame.columns:
        return _booleans(frame[CORRECT], source)
    missing = [name for name in (LABEL, PREDICTION) if name not in frame.columns]
    if missing:
        what = "correct" if len(missing) == 2 else missing[0]
        raise InputError(f"{source} has no column {what!r}: {LAYOUT}")
    label, prediction = _words(frame[LABEL], source), _words(frame[PREDICTION], source)
    blank = int(label.is_null().sum())
    if blank:
        raise InputError(f"{source}: {subject(blank, 'sample')} no label; every row needs one")
    known = set(label.unique().to_list())
    answers = set(prediction.drop_nulls().unique().to_list())
    if answers and not answers & known:
        raise InputError(
            f"{source}: predictions and labels have no word in common: labels are {listed(known)}, "
            f"predictions {listed(answers)}"
        )
    return (label == prediction).fill_null(value=False).alias(CORRECT)


def _booleans(column: polars.Series, source: str) -> polars.Series:
    import polars as pl

    if column.dtype == pl.Boolean:
        right, wrong = column, column.is_null()
    else:
        words = as_text(column, source).str.strip_chars().str.to_lowercase().fill_null("")
        right, wrong = words.is_in(_TRUE), ~words.is_in([*_TRUE, *_FALSE])
    if wrong.any():
        row = int(wrong.arg_true()[0])
        raise InputError(f"{source}, row {row + 1}: correct must be 0 or 1, got {column[row]!r}")
    return right.alias(CORRECT)


def listed(values: Sequence[object] | set[str]) -> str:
    """Up to ten values, and how many more there are.

    Example:
        >>> listed(["b", "a"]), listed(list(range(12)))
        ("'b', 'a'", '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    ordered = sorted(values) if isinstance(values, set) else list(values)
    rest = len(ordered) - _LISTED
    return ", ".join(map(repr, ordered[:_LISTED])) + (f" and {rest} more" if rest > 0 else "")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
