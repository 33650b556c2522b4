"""What is there of a sweep, and how long the rest takes."""

from pathlib import Path

import pytest
from engram.executors.sweep import seconds_left, survey

from engram.core.files import write_json
from engram.engine.recipe import experiment
from engram.executors.processes import FAILURE, Row
from engram.record.experiment import Experiment


def row(method: str, seconds: float | None, *, scenario: str = "split-digits", seed: int = 0) -> Row:
    planned = experiment(scenario, method, seed=seed)
    return Row(planned, Path("nowhere"), result=None if seconds is None else {"seconds": {"total": seconds}})


def test_time_left_is_that_of_the_most_similar_runs() -> None:
    done = [
        row("er", 10.0),
        row("er", 20.0, seed=1),
        row("gem", 90.0),
        row("er", 40.0, scenario="permuted-digits"),
    ]
    assert seconds_left([*done, row("er", None, seed=2)], jobs=1) == 15
    assert seconds_left([*done, row("ewc", None)], jobs=1) == 40, "as the others on the same stream"
    assert seconds_left([*done, row("er", None, scenario="rotated-digits")], jobs=1) == 40, "as all"


def test_time_left_is_shared_out_among_the_jobs() -> None:
    rows = [row("er", 10.0), *(row("er", None, seed=seed) for seed in range(1, 6))]
    assert seconds_left(rows, jobs=1) == 50 and seconds_left(rows, jobs=2) == 25
    assert seconds_left(rows, jobs=100) == 10, "no run takes less than itself"


def test_time_left_at_the_end_and_at_the_beginning() -> None:
    assert seconds_left([row("er", 10.0)]) == 0
    assert seconds_left([row("er", None)]) is None


@pytest.fixture
def planned() -> list[Experiment]:
    return [experiment("split-digits", "er", seed=seed) for seed in range(3)]


def test_a_survey_reads_results_and_failures(planned: list[Experiment], tmp_path: Path) -> None:
    write_json(tmp_path / planned[0].id / "result.json", {"metrics": {"ACC": 0.5}})
    why = {"kind": "killed", "reason": "its process was killed by SIGKILL", "details": ""}
    write_json(tmp_path / planned[1].id / FAILURE, why)
    # A run that was done after it had failed is done.
    write_json(tmp_path / planned[0].id / FAILURE, why)
    found = survey(planned, tmp_path)
    assert [each.status for each in found] == ["done", "failed", "missing"]
    assert found[0].result == {"metrics": {"ACC": 0.5}} and found[0].failure is None
    assert found[1].failure is not None and found[1].failure.reason == why["reason"]
