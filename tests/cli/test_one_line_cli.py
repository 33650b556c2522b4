"""Names, input files, numbers and terminals that do not fit are one line and exit code 2, not a traceback."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from PIL import Image
from tests.cli.command import Done, Engram
from tests.results.simulated import write_run

from engram.cli import main

LONG = 300 * "x"
DEEP = 50_000 * "[" + 50_000 * "]"


def is_one_line(done: Done) -> bool:
    return done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


# Names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        f"table {LONG}",
        f"gate {LONG}.csv {LONG}.csv",
        f"import {LONG}.csv",
        f"history {LONG}",
        f"verify runs {LONG}",
        f"run split:{LONG}.csv er",
        f"run split-digits er --weights {LONG}",
        f"run split-digits er --plugin {LONG}.py",
        f"run split-digits er --model {LONG}.py:net",
    ],
)
def test_a_name_that_is_too_long(engram: Engram, command: str) -> None:
    done = engram(*command.split())
    assert is_one_line(done) and "File name too long" in done.stderr, done.stderr


# Input files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name", "content", "words"),
    [
        ("metrics", "a.csv", "step, step,learning,task,accuracy\n1,1,0,0,0.5\n", "2 columns 'step'"),
        ("gate", "a.csv", "id,correct, correct\n1,1,1\n2,0,0\n", "2 columns 'correct'"),
        ("gate", "a.jsonl", '{"id": [1], "correct": 1}\n', "column 'id' must have text or numbers"),
        ("gate", "a.jsonl", '{"id": 1, "correct": [1]}\n', "column 'correct' must have text or numbers"),
        ("gate", "a.jsonl", '{"id": 1, "correct": 1, "label": [1]}\n', "column 'label' must have text"),
        ("gate", "a.jsonl", '{"id": 1, "correct": 1, "dark": [1]}\n', "column 'dark' has List"),
        ("gate", "a.jsonl", DEEP, "nested too deeply"),
        ("gate", "a.jsonl", '{"id": 1, "correct": 1, "doc": {}}\n[2]\n', "line 2: it is not a JSON object"),
        ("gate", "a.jsonl", '{"id": 1, "correct": 1, "doc": {}}\n' + DEEP, "nested too deeply"),
        ("import", "a.json", DEEP, "recursion"),
        ("import", "a.jsonl", DEEP, "recursion"),
        ("import", "a.csv", "_step,task 0 accuracy\n1e400,0.5\n", "infinity"),
        ("import", "a.csv", "_step,task 0 accuracy\n1e30,0.5\n", "must be below 2^63, got 1000000000000000"),
    ],
)
def test_a_file_that_cannot_be_read(
    engram: Engram, tmp_path: Path, command: str, name: str, content: str, words: str
) -> None:
    file = tmp_path / name
    file.write_text(content)
    options = ["-o", tmp_path / "out.csv"] if command == "import" else []
    done = engram(command, *([file] * (1 + (command == "gate"))), *options)
    assert is_one_line(done) and words in done.stderr, done.stderr
    assert name in done.stderr or "dark" in words


def test_lists_that_are_no_slices_may_be_left_out(engram: Engram, tmp_path: Path) -> None:
    for name, tokens in (("a", "[1]"), ("b", '["x"]')):
        rows = [f'{{"id": {row}, "correct": 1, "tokens": {tokens}, "dark": 1}}' for row in range(2)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    done = engram("gate", tmp_path / "a.jsonl", tmp_path / "a.jsonl", "--slices", "dark")
    assert done.returncode == 1 and "dark=1" in done.stdout, done.stderr
    assert is_one_line(engram("gate", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--slices", "dark"))


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_predictions_in_a_file_whose_name_is_not_utf8(engram: Engram, tmp_path: Path, ending: str) -> None:
    frame = pl.DataFrame({"id": ["a", "b"], "correct": [1, 0]})
    written = tmp_path / f"new.{ending}"
    if ending == "csv":
        frame.write_csv(written)
    elif ending == "jsonl":
        frame.write_ndjson(written)
    else:
        frame.write_parquet(written)
    file = os.fsdecode(os.fsencode(tmp_path) + b"/\xff." + ending.encode())
    written.rename(file)
    done = engram("gate", file, file)
    assert done.returncode == 1 and "2 samples: accuracy 50.00 % before" in done.stdout, done.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
@pytest.mark.parametrize("kind", ["table", "images"])
def test_samples_in_files_whose_names_are_not_utf8(engram: Engram, tmp_path: Path, kind: str) -> None:
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    options = ["--updates", 1, "--batch-size", 2, "--out", tmp_path / "runs"]
    if kind == "images":
        for number in range(16):
            folder = place / os.fsdecode(b"\xfe") if number % 2 else place / "cat"
            folder.mkdir(parents=True, exist_ok=True)
            Image.new("L", (4, 4), number).save(folder / os.fsdecode(f"{number}".encode() + b"\xfd.png"))
        options += ["--classes-per-task", 1]
    else:
        place = place.with_suffix(".csv")
        place.write_text("x,label\n" + "".join(f"{row},{row % 4}\n" for row in range(40)))
    done = engram("run", f"split:{place}", "finetune", *options)
    assert done.returncode == 0 and "report: " in done.stdout, done.stderr


# Numbers --------------------------------------------------------------------------------------------


def test_more_samples_than_any_machine_has(engram: Engram, tmp_path: Path) -> None:
    run = write_run(tmp_path, "er", seed=0, tasks=2, updates=5)
    done = engram("samples", run, "--most", "9" * 23)
    assert done.returncode == 0 and "forgotten most often" in done.stdout, done.stderr


def test_slices_with_more_samples_than_any_machine_has(engram: Engram, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,correct,dark\n1,1,1\n2,0,1\n")
    done = engram("gate", file, file, "--min-samples", "9" * 23)
    assert done.returncode == 1 and "one slice is left out" in done.stdout, done.stderr


@pytest.mark.parametrize("level", ["1e-300", "0", "nan", "0.5"])
def test_a_level_without_meaning(engram: Engram, tmp_path: Path, level: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,correct\n1,1\n2,0\n")
    done = engram("gate", file, file, "--level", level)
    assert is_one_line(done) and "level must be at least 1e-09 and below 0.5" in done.stderr, done.stderr
    assert engram("gate", file, file, "--level", "1e-9").returncode == 1


# Terminals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_is_not_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, errors: str
) -> None:
    file = tmp_path / "naïve – ∎.csv"
    file.write_text("id,correct\n1,1\n2,0\n")
    for options in ([], ["--json"]):
        printed = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)
        monkeypatch.setattr(sys, "stdout", printed)
        with pytest.raises(SystemExit) as end:
            main(["gate", str(file), str(file), *options])
        text = printed.buffer.getvalue().decode(encoding)
        assert end.value.code == 1
        assert json.loads(text)["old"] == str(file) if options else r"\u2026" in text


class _Full(io.RawIOBase):
    """A file on a full disk."""

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("command", [["--version"], ["list", "methods", "--json"]])
def test_standard_output_that_cannot_be_written(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(_Full()), encoding="utf-8"))
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        "error: cannot write to standard output: No space left on device; send it elsewhere\n"
    )
    assert sys.stdout.closed


@pytest.mark.parametrize(
    ("command", "closed", "code"),
    [
        ("--version", ">&-", 0),
        ("gate a.csv a.csv --max-drop 99pp", ">&-", 0),
        ("list methods --json", ">&-", 0),
        ("gate a.csv nowhere.csv", "2>&-", 2),
        ("gate a.csv a.csv --max-drop 99pp", "<&- >&- 2>&-", 0),
    ],
)
def test_streams_that_are_closed(tmp_path: Path, command: str, closed: str, code: int) -> None:
    (tmp_path / "a.csv").write_text("id,correct\n" + "".join(f"{row},1\n" for row in range(40)))
    line = f"{sys.executable} -m engram.cli {command} {closed}"
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr


def test_a_sweep_whose_streams_are_closed(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'scenario = "split-digits"\nmethod = "finetune"\nupdates = 2\nevery = 9\nseeds = 2'
    )
    line = f"{sys.executable} -m engram.cli sweep s.toml --jobs 2 <&- >&- 2>&-"
    done = subprocess.run(line, shell=True, cwd=tmp_path, check=False)
    assert done.returncode == 0 and len([*tmp_path.glob("runs/*/result.json")]) == 2
