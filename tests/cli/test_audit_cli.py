"""`engram audit`, and `--strict` where methods are run."""

import json
from pathlib import Path

import pytest
from tests.cli.command import Engram
from tests.results.simulated import write_run

from engram.methods import METHODS

PLUGIN = '''
from dataclasses import dataclass
from typing import final

import torch

import engram
from engram.datasets.stream import Stream
from engram.scenarios import split


@engram.method("test-peek")
@final
@dataclass(kw_only=True, eq=False)
class Peek(engram.Learner):
    """Looks at the test samples of the first task."""

    def after_step(self, batch):
        Stream(split("digits", setting="class")).test(0).rows(torch.arange(2))
'''


@pytest.fixture
def out(tmp_path: Path, engram: Engram) -> Path:
    done = engram(
        *("run", "split-digits", "er", "--epochs", "1", "--every", "1000", "--seeds", "2"),
        *("--out", tmp_path / "runs"),
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "runs"


def test_the_card_is_printed(out: Path, engram: Engram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.cli.output.stdout._width", 160)
    done = engram("audit", out)
    assert done.returncode == 0, done.stderr
    assert "er, 2 seeds" in done.stdout
    for part in (
        "after Pfülb & Gepperth (2019)",
        "low memory footprint",
        "broken",
        "100 samples and 27,600 bytes kept",
        "How many passes over the data?",
        "1 in updates, 1 when a task ends",
    ):
        assert part in done.stdout
    assert done.stdout.count("causality") == 1


def test_as_json(out: Path, engram: Engram) -> None:
    said = engram("audit", out, "--json").json
    assert len(said["runs"]) == 2
    card = said["runs"][0]["card"]
    assert [constraint["verdict"] for constraint in card["constraints"]] == ["broken", "held", "held"]
    assert all(constraint["figure"] and constraint["how"] for constraint in card["constraints"])
    assert all(line["question"] and line["answer"] and line["how"] for line in card["lines"])
    facts = {fact["name"]: fact for fact in card["facts"]}
    assert facts["kept bytes"]["answer"] == facts["kept bytes"]["measured"]["after_each_task"][-1] == 27_600


def test_runs_without_a_card(tmp_path: Path, engram: Engram) -> None:
    run = write_run(tmp_path, "er", seed=0, tasks=2, updates=5)
    done = engram("audit", run)
    assert done.returncode == 2
    assert "was made before cards were recorded" in done.stderr
    assert "run it again with --again" in done.stderr
    assert done.stderr.count("\n") == 1


LINE = {"name": "later", "question": "Later?", "answer": "no", "figure": "", "how": ""}
CONSTRAINT = {"name": "causality", "verdict": "held", "figure": "", "how": ""}
CARD = {"lines": [LINE], "constraints": [CONSTRAINT], "reads": [], "forbidden": {}}
FACTS = {"format": 2, "facts": [], "constraints": [], "reads": [], "forbidden": [], "choices": []}


@pytest.mark.parametrize(
    "card",
    [
        [1],
        {"lines": 3},
        {"lines": [{}]},
        {**CARD, "lines": [{**LINE, "answer": 3}]},
        {**CARD, "constraints": [{**CONSTRAINT, "verdict": "perhaps"}]},
        {
            **CARD,
            "reads": [{"reader": "somebody", "part": "train", "when": "later", "tasks": [], "samples": 1}],
        },
        {**FACTS, "facts": [{"name": "passes"}]},
        {**FACTS, "facts": [{"name": "passes", "answer": "3"}]},
        {**FACTS, "facts": [{"name": "passes", "answer": 3, "measured": {"updates": [None]}}]},
        {**FACTS, "facts": 3},
        {**FACTS, "constraints": [{"name": "causality", "verdict": "perhaps"}]},
        {**FACTS, "forbidden": [{"what": "a look", "times": 1}]},
        {**FACTS, "format": 4},
    ],
)
def test_a_broken_card_is_one_line(card: object, tmp_path: Path, engram: Engram) -> None:
    run = write_run(tmp_path, "er", seed=0, tasks=2, updates=5)
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "card": card}))
    done = engram("audit", run)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the card of")
    assert done.stderr.count("\n") == 1


def test_what_a_protocol_chose_is_known_to_the_winner(
    tmp_path: Path, engram: Engram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engram.cli.output.stdout._width", 160)
    grid = ("protocol", "grid", "split-digits", "finetune", "--grid", "lr=.1,.01", "--updates", "2")
    said = engram(*grid, "--every", "1000", "--out", tmp_path, "--json").json
    [winner] = said["runs"]
    [loser] = {run for row in said["candidates"] for run in row["runs"]} - {winner}
    done = engram("audit", tmp_path / winner)
    assert done.stdout.count("fields chosen among 2 on test data") == 1
    assert "fields chosen among 2, judged on later tasks" in done.stdout
    [run] = engram("audit", tmp_path / loser, "--json").json["runs"]
    assert run["card"]["lines"][0]["figure"] == "no choice is recorded for this run"
    # A protocol that chooses nothing takes nothing back, and what is recorded twice is one choice.
    for again in (grid, ("protocol", "grid", *grid[2:5], "lr=.1", *grid[6:])):
        engram(*again, "--every", "1000", "--out", tmp_path)
    assert len(json.loads((tmp_path / winner / "selection.json").read_text())) == 1


def test_what_is_not_finished_is_named(tmp_path: Path, engram: Engram) -> None:
    run = write_run(tmp_path, "er", seed=0, tasks=2, updates=5)
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "card": CARD}))
    begun = write_run(tmp_path, "ewc", seed=0, tasks=2, updates=5)
    (begun / "result.json").unlink()
    done = engram("audit", tmp_path)
    assert done.returncode == 0
    assert done.stderr == (
        f"left out: {begun}: it is not finished: it was killed, or its process ended; run the same command "
        "again to resume it, or delete its folder\n"
    )
    [incomplete] = engram("audit", tmp_path, "--json").json["incomplete"]
    assert incomplete["id"] == "ewc-0" and incomplete["status"] == "unfinished"


def test_what_is_no_run(tmp_path: Path, engram: Engram) -> None:
    done = engram("audit", tmp_path / "absent")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no such run: ")


def test_a_cheat_is_recorded_and_stopped(tmp_path: Path, engram: Engram) -> None:
    plugin = tmp_path / "peek.py"
    plugin.write_text(PLUGIN)
    command = ("run", "split-digits", "test-peek", "--plugin", plugin, "--updates", "2", "--every", "1000")
    try:
        stopped = engram(*command, "--strict", "--out", tmp_path / "strict")
        assert stopped.returncode == 2
        assert stopped.stderr.splitlines()[-1] == (
            "error: method test-peek read the whole data set digits: a method may read only what the stream "
            "hands to it"
        )
        assert not list((tmp_path / "strict").glob("*/result.json"))
        grid = ("protocol", "grid", *command[1:], "--grid", "lr=.1,.01", "--out", tmp_path / "strict")
        reason = stopped.stderr.splitlines()[-1].removeprefix("error: ")
        assert engram(*grid, "--strict").stderr.splitlines()[-1].endswith(reason)
        assert not list((tmp_path / "strict").glob("*/result.json"))
        assert engram(*command, "--out", tmp_path / "audit").returncode == 0
        file = tmp_path / "sweep.toml"
        file.write_text('scenario = "split-digits"\nmethod = "test-peek"\nupdates = 2\nevery = 1000\n')
        sweep = ("sweep", file, "--plugin", plugin, "--jobs", "1", "--strict", "--json")
        failed = engram(*sweep, "--out", tmp_path / "swept")
        assert failed.returncode == 1
        assert json.loads(failed.stdout)["runs"][0]["failure"] == {
            "kind": "bad input",
            "reason": stopped.stderr.splitlines()[-1].removeprefix("error: "),
        }
        # What was recorded without `--strict` is refused before anything starts.
        assert engram(*sweep, "--out", tmp_path / "audit").returncode == 2
        done = engram("audit", tmp_path / "audit", "--strict")
        assert done.returncode == 1
        assert "the method read what it should not: test data of task 1" in done.stdout
        assert engram("audit", tmp_path / "audit").returncode == 0
    finally:
        del METHODS._entries["test-peek"]


def test_acts_are_shown_and_exit_with_1(tmp_path: Path, engram: Engram) -> None:
    run = write_run(tmp_path, "er", seed=0, tasks=2, updates=5)
    result = json.loads((run / "result.json").read_text())
    acts = [{"what": "file", "note": "samples.pt", "times": 3}, {"what": "test", "tasks": [0], "times": 1}]
    (run / "result.json").write_text(
        json.dumps({**result, "card": {**FACTS, "format": 3, "forbidden": acts}})
    )
    done = engram("audit", run)
    assert done.returncode == 0
    flat = " ".join(done.stdout.split())
    assert "the method did what it should not: opened the file samples.pt for writing (3 times)" in flat
    assert "the method read what it should not: test data of task 1 (once)" in flat
    assert engram("audit", run, "--strict").returncode == 1
