"""`engram run --config FILE`."""

import json
from pathlib import Path

import pytest
from tests.cli.command import Engram

CONFIG = """
scenario = "split-digits"
method = "er"
updates = 3
hidden = [16]
losses = true
[set]
memory = 50
weight = 0.4
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "run.toml"
    place.write_text(CONFIG)
    return place


def test_a_file_says_what_the_options_would(file: Path, tmp_path: Path, engram: Engram) -> None:
    said = engram("run", "--config", file, "--out", tmp_path / "runs", "--json").json
    typed = ["split-digits", "er", "--updates", 3, "--hidden", 16, "--losses"]
    options = [*typed, "--set", "memory=50", "--set", "weight=.4"]
    assert [run["id"] for run in said["runs"]] == [
        run["id"] for run in engram("run", *options, "--out", tmp_path / "runs", "--json").json["runs"]
    ]


def test_the_command_line_comes_first(file: Path, tmp_path: Path, engram: Engram) -> None:
    command = ["run", "--config", file, "--lr", ".3", "--seeds", 2, "--set", "weight=.3", "--out", tmp_path]
    said = engram(*command, "--json").json
    assert [run["seed"] for run in said["runs"]] == [0, 1]
    written = json.loads((Path(said["runs"][0]["folder"]) / "experiment.json").read_text())
    assert written["optimizer"]["lr"] == 0.3 and written["updates"] == 3
    assert written["settings"]["weight"] == 0.3 and written["settings"]["memory"] == 50


def test_fields_may_have_dashes(tmp_path: Path, engram: Engram) -> None:
    place = tmp_path / "run.toml"
    place.write_text("set.memory-batch = 5")
    command = ["run", "split-digits", "er", "--updates", 2, "--config", place, "--out", tmp_path, "--json"]
    for options in ([], ["--set", "memory=50"]):
        [run] = engram(*command, *options).json["runs"]
        written = json.loads((Path(run["folder"]) / "experiment.json").read_text())
        assert written["settings"]["memory_batch"] == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lrr = 1", "unknown key 'lrr'; did you mean 'lr'?"),
        ("lr = [0.1, 0.2]", "lr must have one value; for several, run it with `engram sweep"),
        ("set = 3", "set must be a table of FIELD = VALUE"),
        ("lr = ", "cannot read the configuration"),
        ('scenario = "split-digits"\nmethod = "er"\nlr = "x"', "invalid value for '--lr'"),
        ('scenario = "split-digits"\nmethod = "er"\nupdates = true', "invalid value for '--updates'"),
        ('scenario = "split-digits"\nmethod = "er"\nupdates = 1.5', "invalid value for '--updates'"),
        ('scenario = "split-digits"\nmethod = "er"\nlr = false', "invalid value for '--lr'"),
        ('scenario = "split-digits"', "missing argument 'METHOD'; see `engram run --help`"),
    ],
)
def test_mistakes_are_one_line(text: str, words: str, tmp_path: Path, engram: Engram) -> None:
    place = tmp_path / "run.toml"
    place.write_text(text)
    done = engram("run", "--config", place, "--out", tmp_path / "runs")
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    assert engram("run", "--config", tmp_path / "nowhere.toml").returncode == 2
