"""Accuracies that other tools logged, as the long table that `engram metrics` reads.

Every importer returns rows of step, task being learned, task evaluated and accuracy. Tools that log one
number per task and step (TensorBoard, MLflow, Weights & Biases) do not say which task is being learned: see
`engram.interop.series`.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import re
import sqlite3
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engram.core.errors import InputError, unknown_name
from engram.core.headers import refuse_repeated_columns
from engram.interop.libraries import library
from engram.interop.series import Hints, Row, Series, rows_of_series
from engram.interop.wandb_files import MARK, read_history
from engram.results.gate.predictions import read_predictions

if TYPE_CHECKING:
    import polars

_NUMBER: Final = r"(?:np\.float\d+\()?(?P<value>\d[\d.eE+-]*)\)?"


def read_log(
    path: Path,
    kind: str | None = None,
    *,
    pattern: str | None = None,
    ends: Sequence[int] | None = None,
    order: Sequence[str] | None = None,
) -> polars.DataFrame:
    """The accuracies in another tool's log as a long table: step, learning, task, accuracy.

    Args:
        path: The file or folder that the tool wrote.
        kind: The tool, one of `KINDS` (default: recognised by its files).
        pattern: For tools that log names and numbers, a regular expression with a group `task`.
        ends: For these tools, the last step of each task.
        order: For these tools, all tasks in the order in which they were learned.

    Raises:
        InputError: It cannot be read, or does not say what is needed.

    Warns:
        UserWarning: Percentages were assumed, or only the last run of several is read.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "eval_results.csv"
        >>> rows = ["0,0,.9,0,0", "1,0,.1,0,0", "0,1,.6,0,.3", "1,1,.8,0,0"]
        >>> title = "eval_exp,training_exp,eval_accuracy,eval_loss,forgetting"
        >>> _ = file.write_text("\\n".join([title, *rows]))
        >>> read_log(file).rows()
        [(1, 0, 0, 0.9), (1, 0, 1, 0.1), (2, 1, 0, 0.6), (2, 1, 1, 0.8)]
    """
    import polars as pl

    if not path.exists():
        raise InputError(f"no such file or folder: {path}")
    if kind is not None and kind not in KINDS:
        raise unknown_name("kind of log", kind, KINDS)
    path = _tracked(path, kind)
    chosen = kind or _recognised(path)
    hints = Hints(pattern, ends, order)
    try:
        rows = _read_rows(path, chosen, hints)
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"cannot read {path} as a log of {chosen}: it has no {error}") from error
    except (OSError, ValueError, SyntaxError, struct.error, RecursionError, OverflowError) as error:
        raise InputError(f"cannot read {path} as a log of {chosen}: {error}") from error
    large = [number for row in rows for number in row[:3] if isinstance(number, int) and number >= 2**63]
    if large:
        raise InputError(f"{path}: steps and numbers of tasks must be below 2^63, got {large[0]}")
    if not rows:
        raise InputError(f"{path} has no accuracies of tasks that {chosen} would have logged")
    return pl.DataFrame(_as_fractions(rows, path, chosen), orient="row")


def _read_rows(path: Path, kind: str, hints: Hints) -> list[Row]:
    if kind in _OF_SERIES:
        return rows_of_series(_OF_SERIES[kind](path), path, hints)
    for name, value in hints._asdict().items():
        if value is not None:
            raise InputError(
                f"--{name} has no effect on a log of {kind}, which says what is learned: leave it out"
            )
    return _OF_MATRICES[kind](path)


def _as_fractions(rows: Sequence[Row], path: Path, kind: str) -> list[Row]:
    """The rows with accuracies from 0 to 1.

    Raises:
        InputError: They are neither fractions nor percentages.

    Warns:
        UserWarning: They were taken for percentages, and the tool may write either; or for fractions, though
            the tool hardly ever writes them.
    """
    values = [row.accuracy for row in rows if not math.isnan(row.accuracy)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    percent = high > _LARGEST_FRACTION.get(kind, _SMALLEST_PERCENTAGE)
    scale = 0.01 if percent else 1.0
    if low < -_ROUNDING or scale * high > 1 + _ROUNDING:
        raise InputError(
            f"accuracies must be fractions from 0 to 1 or percentages from 0 to 100, but {path} has values "
            f"from {low:.9g} to {high:.9g}: choose other names with --pattern, or correct the log"
        )
    if percent != (kind in _LARGEST_FRACTION) and high > 0:
        unit = "percentages" if percent else "fractions, as in the first versions of PyCIL"
        warnings.warn(f"{path} has accuracies up to {high:.6g}: they are taken for {unit}", stacklevel=3)
    return [row._replace(accuracy=_within_one(scale * row.accuracy)) for row in rows]


def _within_one(value: float) -> float:
    """A fraction without what rounding to single precision added; NaN stays."""
    return value if math.isnan(value) else min(max(value, 0.0), 1.0)


_ROUNDING: Final = 1e-6
"""Single precision may end so far outside of 0 to 1."""
_SMALLEST_PERCENTAGE: Final = 2.0
"""No log whose best accuracy is between 1 and 2 is likely to hold fractions or percentages."""
_LARGEST_FRACTION: Final = {"mammoth": -1.0, "pycil": 1.0}
"""Tools that write percentages: always, or unless no value of a log is above 1."""


_SQLITE: Final = b"SQLite format 3"
_ENDINGS: Final = {
    (".db", ".sqlite", ".sqlite3"): "mlflow",
    (".wandb",): "wandb",
    (".pyd",): "mammoth",
    (".log",): "pycil",
    # Their first line tells.
    (".csv", ".json", ".jsonl"): "",
}


_TRACKED: Final = {
    "tensorboard": ("*tfevents*", "*/*tfevents*"),
    "wandb": ("wandb/*run-*/*.wandb", "*run-*/*.wandb", "*.wandb"),
    "mlflow": ("*.db",),
}
"""Where the folder that a tracker was given has the runs that it logged."""


def _tracked(path: Path, kind: str | None) -> Path:
    """The run in a folder that was given to `--track`; any other file or folder is returned as it is.

    Raises:
        InputError: The folder has several runs.
    """
    known = ("eval_results.csv", "metrics")
    if not path.is_dir() or (kind is None and any((path / name).exists() for name in known)):
        return path
    for tool, patterns in _TRACKED.items():
        if kind not in (None, tool):
            continue
        files = sorted({file.resolve() for pattern in patterns for file in path.glob(pattern)})
        # TensorBoard may have several files for one run.
        runs = list(dict.fromkeys(file.parent for file in files)) if tool == "tensorboard" else files
        if len(runs) == 1:
            return runs[0]
        if runs:
            listed = ", ".join(str(_below(run, path)) for run in runs[:3])
            more = f" and {len(runs) - 3} more" if len(runs) > 3 else ""
            raise InputError(f"{path} has {len(runs)} runs: name one of them: {listed}{more}")
    return path


def _below(run: Path, folder: Path) -> Path:
    """A run as it is typed."""
    return folder / run.relative_to(folder.resolve())


def _recognised(path: Path) -> str:
    """Which tool wrote a file or folder."""
    name = path.name.lower()
    if path.is_dir():
        if (path / "eval_results.csv").is_file():
            return "avalanche-csv"
        if (path / "metrics").is_dir() or path.name == "metrics":
            return "mlflow"
        if any(path.glob("*tfevents*")):
            return "tensorboard"
        if any(path.rglob("samples_*.jsonl")):
            return "lm-eval"
    elif "tfevents" in name:
        return "tensorboard"
    elif _begins(path, _SQLITE):
        return "mlflow"
    else:
        for endings, kind in _ENDINGS.items():
            if name.endswith(endings):
                return kind or _recognised_text(path)
    raise InputError(f"cannot tell which tool wrote {path}: say it with --kind ({', '.join(KINDS)})")


def _begins(path: Path, content: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(content)) == content


def _recognised_text(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    if path.suffix.lower() == ".csv":
        return "avalanche-csv" if "eval_exp" in first else "wandb"
    return "avalanche-json" if path.suffix.lower() == ".json" else "wandb"


# Tools that log the accuracy matrix -----------------------------------------------------------------


def _avalanche_csv(path: Path) -> list[Row]:
    """`eval_results.csv` of Avalanche's CSVLogger: one row per evaluated experience."""
    file = path / "eval_results.csv" if path.is_dir() else path
    rows: list[Row] = []
    step, evaluated = 0, set[int]()
    before: int | None = None
    with file.open(encoding="utf-8", newline="") as text:
        for line in _lines_of_csv(text, path):
            if line.get("training_exp") in (None, "", "None"):
                continue
            learning, task = int(line["training_exp"] or 0), int(line["eval_exp"] or 0)
            # A new evaluation begins with another task being learned, or with a task that comes again.
            if learning != before or task in evaluated:
                step, evaluated, before = step + 1, set(), learning
            evaluated.add(task)
            rows.append(Row(step, learning, task, float(line["eval_accuracy"] or math.nan)))
    return rows


def _mammoth(path: Path) -> list[Row]:
    """The last run in `logs.pyd` of Mammoth: a dictionary per line, accuracies in percent."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    matches = re.finditer(rf"'accuracy_(\d+)_task(\d+)': {_NUMBER}", lines[-1] if lines else "")
    return [
        Row(int(match[2]), int(match[2]) - 1, int(match[1]) - 1, float(match["value"])) for match in matches
    ]


def _pycil(path: Path) -> list[Row]:
    """The last run in a log file of PyCIL or PILOT: after each task, the accuracy of groups of classes.

    A run that is repeated appends to the file.
    """
    runs: list[list[dict[str, float]]] = []
    for match in re.finditer(r"(?:CNN: |=> )(\{'total'.*\})", path.read_text("utf-8")):
        groups = ast.literal_eval(re.sub(r"np\.float\d+\(([^)]*)\)", r"\1", match[1]))
        if not runs or _begins_run(groups, runs[-1]):
            runs.append([])
        runs[-1].append(groups)
    if len(runs) > 1:
        warnings.warn(
            f"{path} has {len(runs)} runs, one after the other: only the last one is read", stacklevel=4
        )
    rows: list[Row] = []
    names: list[str] = []
    for step, groups in enumerate(runs[-1] if runs else [], start=1):
        classes = _classes(groups)
        names += [name for name in classes if name not in names]
        rows += [Row(step, names[-1], name, float(value)) for name, value in classes.items()]
    return rows


def _begins_run(groups: Mapping[str, float], run: Sequence[Mapping[str, float]]) -> bool:
    """Whether an evaluation in a log of PyCIL is not the next one of a run, but the first of another one."""
    if isinstance(run[0].get("old"), int):
        # Before any class is old, their accuracy is the whole number 0; later it has a decimal point.
        return isinstance(groups.get("old"), int)
    now, first, latest = (len(_classes(one)) for one in (groups, run[0], run[-1]))
    return now < latest or now <= first


def _classes(groups: Mapping[str, float]) -> dict[str, float]:
    """The groups that are ranges of classes; ten classes each in some versions, whatever a task has."""
    return {name: value for name, value in groups.items() if re.fullmatch(r"\d+-\d+", name)}


def _lm_eval(path: Path) -> list[Row]:
    """lm-eval's per-sample files: every task of one model, evaluated once."""
    frame = read_predictions(path).frame
    if "task" not in frame.columns:
        raise InputError(f"{path} has no per-sample files of lm-eval")
    import polars as pl

    means = frame.group_by("task", maintain_order=True).agg(pl.col("correct").mean())
    names = [str(task) for task in means["task"]]
    return [Row(1, names[0], name, value) for name, value in zip(names, means["correct"], strict=True)]


# Tools that log names and numbers -------------------------------------------------------------------


def _avalanche_json(path: Path) -> Series:
    """What `EvaluationPlugin.get_all_metrics()` of Avalanche returns, as JSON: name → [steps, values]."""
    try:
        content = json.loads(path.read_text("utf-8"))
        series = {
            str(name): list(zip(map(int, values[0]), map(float, values[1]), strict=True))
            for name, values in content.items()
            if isinstance(values, list)
            and len(values) == 2
            and all(isinstance(part, list) for part in values)
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not what get_all_metrics() returns: {error}") from error
    return series


def _mlflow(path: Path) -> Series:
    """A run of an MLflow database, or of a file store: a file per metric in `metrics`; time, value, step."""
    if path.is_file():
        return _mlflow_database(path)
    folder = path if path.name == "metrics" else path / "metrics"
    series: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        lines = [line.split() for line in file.read_text("utf-8").splitlines() if line.strip()]
        try:
            values = [(int(line[2]), float(line[1])) for line in lines]
        except (IndexError, ValueError) as error:
            raise InputError(f"{file} is not a metric of an MLflow file store: {error}") from error
        series[str(file.relative_to(folder))] = values
    return series


def _mlflow_database(path: Path) -> Series:
    """The metrics of the only run in an MLflow database that logged any, or of the latest one."""
    # Read only: a path that is no database must not become one.
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        try:
            rows = database.execute(
                "SELECT key, step, value FROM metrics WHERE is_nan = 0 AND run_uuid = (SELECT run_uuid FROM "
                "runs WHERE run_uuid IN (SELECT run_uuid FROM metrics) ORDER BY start_time DESC LIMIT 1) "
                "ORDER BY step"
            ).fetchall()
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path} is not a database of MLflow: {error}") from error
    series: dict[str, list[tuple[int, float]]] = {}
    for key, step, value in rows:
        series.setdefault(key, []).append((step, value))
    return series


def _wandb(path: Path) -> Series:
    """A history that Weights & Biases exported: CSV or JSON lines, one row per step.

    Beside each curve, tables from its pages have the least and the greatest value of a group of runs. The
    file of an offline run is read as well.
    """
    if _begins(path, MARK):
        return read_history(path)
    with path.open(encoding="utf-8", newline="") as text:
        lines: Iterable[Mapping[str, object]]
        try:
            is_csv = path.suffix.lower() == ".csv"
            lines = list(_lines_of_csv(text, path)) if is_csv else _json_lines(text)
        except ValueError as error:
            raise InputError(f"{path} is not a history of Weights & Biases: {error}") from error
    series: dict[str, list[tuple[int, float]]] = {}
    for number, line in enumerate(lines):
        step = next(
            (line[name] for name in ("_step", "Step", "step") if line.get(name) not in (None, "")), number
        )
        for name, value in line.items():
            if name and not name.startswith("_") and name.lower() != "step" and _is_number(value):
                if name.endswith(("__MIN", "__MAX")):
                    continue
                series.setdefault(name, []).append((int(float(str(step))), float(str(value))))
    return series


def _lines_of_csv(text: Iterable[str], path: Path) -> csv.DictReader[str]:
    """The rows of CSV by the names of its columns.

    Raises:
        InputError: A name occurs twice, so that one column would be ignored.
    """
    reader = csv.DictReader(text)
    refuse_repeated_columns(reader.fieldnames or (), path)
    return reader


def _json_lines(lines: Iterable[str]) -> list[Mapping[str, object]]:
    rows = [json.loads(line) for line in lines if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("every line must be a JSON object")
    return rows


def _is_number(value: object) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(float(str(value)))
    except ValueError:
        return False


def _tensorboard(path: Path) -> Series:
    """The scalars of TensorBoard's event files."""
    files = sorted(path.glob("*tfevents*")) if path.is_dir() else [path]
    series: dict[str, list[tuple[int, float]]] = {}
    for file in files:
        for step, tag, value in _scalars(file):
            series.setdefault(tag, []).append((step, value))
    return series


def _scalars(file: Path) -> Iterator[tuple[int, str, float]]:
    """Step, tag and value of every scalar in an event file."""
    extra = "engram-eval[tensorboard]"
    event_type = library("tensorboardX.proto.event_pb2", user="an event file", install=extra).Event
    damaged = library("google.protobuf.message", user="an event file", install=extra).DecodeError
    with file.open("rb") as records:
        while header := records.read(12):
            (length,) = struct.unpack("<Q", header[:8])
            content = records.read(length)
            records.read(4)
            if len(content) < length:
                # A writer that is still at work, or was killed.
                return
            try:
                event = event_type.FromString(content)
            except damaged as error:
                raise InputError(f"{file} is not an event file of TensorBoard, or is damaged") from error
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    yield event.step, value.tag, value.simple_value
                elif value.HasField("tensor") and len(value.tensor.float_val) == 1:
                    yield event.step, value.tag, value.tensor.float_val[0]


_OF_MATRICES: Final[Mapping[str, Callable[[Path], list[Row]]]] = {
    "avalanche-csv": _avalanche_csv,
    "mammoth": _mammoth,
    "pycil": _pycil,
    "lm-eval": _lm_eval,
}
"""The tools whose logs say which task was being learned."""
_OF_SERIES: Final[Mapping[str, Callable[[Path], Series]]] = {
    "avalanche-json": _avalanche_json,
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}
"""The tools that log names and numbers."""
KINDS: Final = (
    "avalanche-csv",
    "avalanche-json",
    "mammoth",
    "pycil",
    "tensorboard",
    "mlflow",
    "wandb",
    "lm-eval",
)
"""The tools whose logs can be read."""
