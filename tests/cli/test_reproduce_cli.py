"""`engram reproduce` as people type it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engram.cli.app import app
from engram.core.errors import InputError

runner = CliRunner()


def said(*words: str) -> str:
    result = runner.invoke(app, ["reproduce", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
def test_without_a_name_all_tables_and_what_they_need(tmp_path: Path) -> None:
    listed = json.loads(said("--json", "--out", str(tmp_path)))["artefacts"]
    entries = {entry["name"]: entry for entry in listed if entry["follow"] is None}
    split = entries["002-table2"]
    assert (split["runs"], split["done"], split["data"]) == (420, 0, ["mnist"])
    assert split["seconds"] > 60
    assert entries["002-table3"]["updates"] > 10 * split["updates"]
    kept = split["recorded"]
    assert kept["verdicts"]["reproduced"] > 0 and all(statement["holds"] for statement in kept["statements"])
    assert "imagenet" in entries["003-figure4"]["data"], "where its first weights come from"
    small = {entry["name"]: entry for entry in listed if entry["follow"] == "small"}
    assert small["004-table3"]["recorded"]["scale"] == "small"
    assert "reproduced" not in small["004-table3"]["recorded"]["verdicts"]


@pytest.mark.slow
def test_the_list_as_people_read_it(tmp_path: Path) -> None:
    text = said("--out", str(tmp_path))
    assert "statement" in text.split("000-figure3")[1].split("000-figure4")[0]
    assert "cifar100" in text.split("001-figure3")[1].split("001-figure4")[0], "what it reads"


def test_what_is_there_is_shown_and_nothing_is_run(tmp_path: Path) -> None:
    text = said("002-table2", "--done", "--cells", "task/EWC", "--json", "--out", str(tmp_path))
    output = json.loads(text)
    assert output["verdicts"] == {"open": 1}
    assert output["pieces"][0]["missing"] == 10
    assert list(tmp_path.iterdir()) == []


def test_recorded_runs_count_as_done(tmp_path: Path) -> None:
    words = ("002-table2", "--done", "--extend", "--cells", "task/EWC", "--out", str(tmp_path))
    output = json.loads(said(*words, "--json"))
    [piece] = output["pieces"]
    assert (piece["missing"], len(piece["runs"])) == (0, 10)
    [cell] = piece["cells"]
    assert output["verdicts"] == {cell["verdict"]: 1} == {"consistent": 1}
    assert 1 < cell["detectable"] < 1.5
    text = said(*words)
    assert "1 consistent" in text and f"{cell['detectable']:.2f}" in text
    assert list(tmp_path.iterdir()) == []


def test_power_says_what_would_be_noticed_and_how_many_runs_it_takes(tmp_path: Path) -> None:
    words = ("002-table3", "--power", "--cells", "domain/(SGD|LwF)", "--seeds", "3", "--out", str(tmp_path))
    sgd, lwf = json.loads(said(*words, "--json"))["cells"]
    assert sgd["runs"] >= 1 and sgd["planned"] >= 3
    assert sgd["detectable_then"] <= sgd["detectable"] and sgd["runs_for_target"] <= 3
    assert lwf["target"] == 2 and lwf["runs_for_target"] > 10
    text = said(*words)
    assert "2 points" in text and "Permuted" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "cell", "last"),
    [
        # No spread is published and nothing was run; a computed number has no spread.
        ("004-table3", "D5-5/FC", ["–", "never"]),
        ("001-table1", "random", ["1", "1"]),
    ],
)
def test_power_says_never_only_where_more_runs_cannot_help(
    name: str, cell: str, last: list[str], tmp_path: Path
) -> None:
    text = said(name, "--power", "--cells", cell, "--out", str(tmp_path))
    assert text.splitlines()[1].split()[-2:] == last


@pytest.mark.parametrize(
    "words",
    [
        ("002-tabel2",),
        ("002-table2", "--scale", "half"),
        ("002-table2", "--seeds", "0"),
        ("002-table2", "--jobs", "-1"),
        ("002-table2", "--on", "ray"),
        ("002-table2", "--cells", "no such cell"),
        ("002-table2", "--follow", "nobody"),
        ("--cells", "MNIST"),
        ("--follow", "small"),
        ("--done",),
        ("--power",),
        ("--extend",),
        ("002-table2", "--power", "--done"),
        ("002-table2", "--power", "--extend"),
        ("002-table2", "--power", "--scale", "quick"),
        ("002-table2", "--extend", "--scale", "quick"),
        ("002-table2", "--power", "--jobs", "3"),
        ("002-table2", "--power", "--timeout", "9"),
        ("002-table2", "--done", "--jobs", "3"),
        ("--jobs", "3"),
        ("002-table2", "--on", "serial", "--jobs", "3"),
        ("002-table2", "--data", "nowhere"),
        ("002-table5", "--extend"),
        ("002-figure3", "--power"),
        ("004-table3", "--power", "--follow", "small"),
    ],
)
def test_bad_input_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        runner.invoke(app, ["reproduce", *words], catch_exceptions=False)


@pytest.mark.slow
def test_quick_runs_and_is_labelled(real_data: Path, tmp_path: Path) -> None:
    words = ("002-table2", "--scale", "quick", "--cells", "task/(Adam|EWC)", "--seeds", "1", "--on", "serial")
    text = said(*words, "--json", "--out", str(tmp_path), "--data", str(real_data))
    output = json.loads(text)
    assert output["scale"] == "quick"
    assert output["verdicts"] == {"not compared": 2}
    assert len(list(tmp_path.glob("*/result.json"))) == 2


def test_a_page_says_what_it_shows(tmp_path: Path) -> None:
    def page(*words: str) -> str:
        output = json.loads(said("001-figure2", "--json", "--out", str(tmp_path), *words))
        return Path(output["page"]).read_text(encoding="utf-8").split("<script")[0]

    assert "Quick: a few updates of each run" in page("--scale", "quick")
    assert "Quick" not in page()
