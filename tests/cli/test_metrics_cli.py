"""`engram metrics`: anybody's numbers in, every metric out, and one line for what cannot be used."""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from engram.cli import main
from engram.core.trace import Trace

MATRIX = ".98\n.91,.90\n.85,.92,.95\n.70,.94,.80,.96\n.75,.60,.85,.90,.93\n"
COUNTS = "step,learning,task,correct,total\n1,0,0,3,4\n"
LONG = "step,learning,task,accuracy\n1,0,0,0.9\n2,1,0,0.4\n2,1,1,0.2\n3,1,0,0.7\n3,1,1,0.8\n"


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def measure(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    code, out, err = run(["metrics", str(path), "--json", *options], capsys)
    assert (code, err) == (0, "")
    result: dict[str, Any] = json.loads(out)
    return result


def test_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "matrix.csv"
    file.write_text(MATRIX)
    result = measure(file, capsys, "--classes", "10,1,20,5,14")
    assert result["final"]["ACC"] == pytest.approx(0.806)
    assert result["by_task"]["RAF"][1:] == pytest.approx([0.07, 0.007912, 0.026655, 0.038822], abs=1e-6)
    assert result["by_task"]["FORG"][0] is None
    assert "min-ACC" not in result["final"]
    assert "min-ACC" in result["why"]


@pytest.mark.parametrize("blank", ["", " ", "nan", "NaN"])
def test_blank_and_nan_are_not_seen(blank: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "matrix.csv"
    file.write_text(f"\ufeff0.9,{blank}\n\n0.6,0.8\n", encoding="utf-8")
    assert measure(file, capsys)["final"]["FORG"] == pytest.approx(0.3)


def test_long_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.csv"
    file.write_text("\ufeff" + LONG, encoding="utf-8")
    result = measure(file, capsys, "--classes", "2,2")
    assert result["final"]["WC-ACC"] == pytest.approx(0.6)
    assert result["curve"]["min-ACC"] == [None, 0.4, 0.4]
    assert result["final"]["RAA"] == result["final"]["ACC"] == pytest.approx(0.75)


def test_names_spaces_and_blank_accuracies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.csv"
    file.write_text("task, step,learning,accuracy,note\nb,1,b, 0.9 ,x\na,1,b,,y\nb,2,a,0.5,\na,2,a,0.7,z\n")
    assert measure(file, capsys)["by_task"]["AvgLAcc"] == [0.9, 0.7]


def test_counts_and_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = {
        "step": [1, 2, 2],
        "learning": [0, 1, 1],
        "task": [0, 0, 1],
        "correct": [9, 0, 90],
        "total": [10, 10, 90],
    }
    frame = pl.DataFrame(table)
    frame.write_parquet(tmp_path / "counts.parquet")
    frame.write_csv(tmp_path / "counts.csv")
    parquet, csv = (measure(tmp_path / f"counts.{kind}", capsys) for kind in ("parquet", "csv"))
    assert parquet == csv
    assert parquet["final"]["ACC"] == 0.5
    assert parquet["final"]["ACC-pooled"] == pytest.approx(0.9)


def test_a_trace_is_a_long_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = Trace(step=[1], learning=[0], task=[0], correct=[3], total=[4], bits=[b""])
    trace.save(tmp_path / "trace.parquet")
    assert measure(tmp_path / "trace.parquet", capsys)["final"]["ACC"] == 0.75


def test_tables_for_people_are_in_percent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.csv"
    file.write_text(LONG)
    code, out, _ = run(["metrics", str(file)], capsys)
    assert code == 0
    assert "75.00" in out
    assert "left out: RAA, RAF: needs the number of classes" in out
    assert math.nan.__repr__() not in out


BAD = {
    "empty": ("", "is empty"),
    "blank lines": ("\n \n", "is empty"),
    "blank cells": (",\n,\n", "every cell is blank"),
    "no rows": ("step,learning,task,accuracy\n", "no rows"),
    "columns": ("step,task,accuracy\n1,0,0.5\n", "is missing the column 'learning'"),
    "no accuracy": ("step,learning,task,correct\n1,0,0,5\n", "is missing the column 'accuracy'"),
    "percent matrix": ("98\n91,90\n", "percentages"),
    "percent table": (LONG.replace("0.9", "90"), "values from 0 to 1, got"),
    "negative": (LONG.replace("0.9", "-0.9"), "values from 0 to 1, got"),
    "text in matrix": ("0.9,\n0.5,good\n", "line 2: 'good' is not a number"),
    "text in table": (LONG.replace("0.9", "good"), "row 1: 'good' in the column 'accuracy' is not a number"),
    "text step": (LONG.replace("2,1,0", "two,1,0"), "row 2: 'two' in the column 'step' is not a number"),
    "half step": (LONG.replace("2,1,0", "1.5,1,0"), "is not a whole number"),
    "blank step": (LONG.replace("2,1,0", ",1,0"), "row 2: a blank cell in the column 'step'"),
    "blank task": (LONG.replace("2,1,0", "2,1,"), "row 2: a blank cell in the column 'task'"),
    "names and numbers": (LONG.replace(",0,0,", ",a,0,"), "must both be numbers or both be names"),
    "duplicate": (LONG + "3,1,1,0.8\n", "task 1 is evaluated twice at step 3"),
    "two learned": (LONG + "3,0,2,0.8\n", "two tasks are being learned"),
    "ragged": (LONG + "3,1,2,0.8,9,9\n", "cannot read"),
    "total": ("step,learning,task,correct,total\n1,0,0,0,-1\n", "total must be at least 1, got -1"),
    "correct": ("step,learning,task,correct,total\n1,0,0,5,4\n", "between 0 and total"),
    "correct below 0": (
        "step,learning,task,correct,total\n1,0,0,-1,4\n",
        "row 1: '-1' in the column 'correct'",
    ),
    "half correct": (COUNTS + "2,0,0,1.5,4\n", "row 2: '1.5' in the column 'correct' is not a whole number"),
    "half total": (COUNTS + "2,0,0,1,4.5\n", "row 2: '4.5' in the column 'total' is not a whole number"),
    "nan correct": (COUNTS + "2,0,0,nan,4\n", "row 2: 'nan' in the column 'correct' is not a whole number"),
    "inf correct": (COUNTS + "2,0,0,inf,4\n", "row 2: 'inf' in the column 'correct' is not a whole number"),
    "blank correct": (COUNTS + "2,0,0,,4\n", "row 2: a blank cell in the column 'correct'"),
    "huge total": (COUNTS + f"2,0,0,1,{2**53 + 1}\n", "row 2: '9007199254740993' in the column 'total'"),
    "infinite accuracy": (LONG.replace("0.9", "inf"), "row 1: the column 'accuracy' must have values"),
    "negative step": (LONG.replace("2,1,0", "-2,1,0"), "row 2: '-2' in the column 'step' must be at least 0"),
    "infinite step": (LONG.replace("2,1,0", "inf,1,0"), "row 2: 'inf' in the column 'step'"),
    "step from 2^63": (LONG + f"{2**63},1,1,0.8\n", "row 6: '9223372036854775808' in the column 'step'"),
    "step that is rounded": (LONG + "9.1e15,1,1,0.8\n", "row 6: '9.1e15' in the column 'step'"),
    "negative task": (
        LONG.replace(",1,0.8", ",-1,0.8"),
        "row 5: '-1' in the column 'task' must be at least 0",
    ),
    "negative learning": (LONG.replace("1,0,0,", "1,-1,0,"), "row 1: '-1' in the column 'learning'"),
    "tall matrix": ("0.5\n0.5\n", "2 rows but 1 columns"),
    "quote": ('0.5\n0.5,"0.5', "is not"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_files_are_one_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = BAD[case]
    file = tmp_path / "bad.csv"
    file.write_text(content)
    code, out, err = run(["metrics", str(file), "--json"], capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert str(file) in err


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_large_steps_are_exact(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As floating-point numbers, the steps would be one step, or wrap around and come first."""
    steps = [2**53, 2**53 + 1, 2**63 - 1, 2**63 - 1]
    table = {"step": steps, "learning": [0, 0, 1, 1], "task": [0, 0, 0, 1], "accuracy": [0.5, 0.9, 0.2, 0.8]}
    frame = pl.DataFrame(table)
    file = tmp_path / f"large.{kind}"
    frame.write_csv(file) if kind == "csv" else frame.write_parquet(file)
    result = measure(file, capsys)
    assert result["final"]["ACC"] == pytest.approx(0.5)
    assert result["curve"]["current-ACC"] == [0.5, 0.9, 0.8]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("step", pl.Series([1, 2**63], dtype=pl.UInt64), "row 2: 9223372036854775808 in the column 'step'"),
        ("step", pl.Series([1.0, 2.0**53 + 2]), "row 2: 9007199254740994.0 in the column 'step'"),
        ("step", pl.Series([True, False]), "the column 'step' must be numbers, got Boolean"),
        ("task", pl.Series([True, False]), "the column 'task' must be numbers or text, got Boolean"),
        ("task", pl.Series([0, -1]), "row 2: -1 in the column 'task' must be at least 0"),
        ("correct", pl.Series([True, False]), "the column 'correct' must be numbers, got Boolean"),
        ("correct", pl.Series([1.0, 1.5]), "row 2: 1.5 in the column 'correct' is not a whole number"),
    ],
)
def test_impossible_parquet_columns_are_one_line(
    column: str, values: pl.Series, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"step": [1, 2], "learning": [0, 0], "task": [0, 0], "correct": [1, 2], "total": [4, 4]}
    pl.DataFrame({**table, column: values}).write_parquet(tmp_path / "bad.parquet")
    code, out, err = run(["metrics", str(tmp_path / "bad.parquet")], capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize("content", [b"PAR1 not really", b"\xff\xfe\x00\x01", b"0.5,\x000.5\n"])
def test_broken_bytes_are_one_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.bin"
    file.write_bytes(content)
    code, out, err = run(["metrics", str(file)], capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(("place", "reason"), [("nowhere.csv", "cannot read"), (".", "is not a run")])
def test_files_that_cannot_be_read(
    place: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(["metrics", str(tmp_path / place)], capsys)
    assert code == 2
    assert reason in err


def test_tasks_that_are_never_learned_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "slices.csv"
    rows = [(1, "v1", "v1", 0.9), (1, "v1", "rare", 0.96), (2, "v2", "v2", 0.9), (2, "v2", "v1", 0.9)]
    lines = [",".join(map(str, row)) for row in [*rows, (2, "v2", "rare", 0.008)]]
    file.write_text("step,learning,task,accuracy\n" + "\n".join(lines) + "\n")
    result = measure(file, capsys)
    assert result["final"]["FORG-unlearned"] == pytest.approx(0.952)
    assert "(task rare fell from 96.0 % to 0.8 %); see FORG-unlearned" in result["why"]["FORG"]
    _, out, _ = run(["metrics", str(file)], capsys)
    assert "95.20" in out and "does not count" in out


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("2,2", "each of the 5 tasks; got 2"),
        ("2,2,2,2,x", "got 'x'"),
        ("2,2,2,2,0", "got '0'"),
        ("", "got ''"),
    ],
)
def test_bad_class_counts(
    classes: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "matrix.csv"
    file.write_text(MATRIX)
    code, out, err = run(["metrics", str(file), "--classes", classes], capsys)
    assert (code, out) == (2, "")
    assert message in err


def test_columns_that_name_no_tasks_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lists.parquet"
    table = {"step": [1, 2], "learning": [[0], [0]], "task": [0, 0], "accuracy": [0.5, 0.6]}
    pl.DataFrame(table).write_parquet(file)
    code, _, errors = run(["metrics", str(file)], capsys)
    assert code == 2 and errors.count("\n") == 1
    assert "the column 'learning' must be numbers or text, got List" in errors
