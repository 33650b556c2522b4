"""The state of a sweep, and the expected time of its missing runs."""

from pathlib import Path

import pytest

from engram.core.files import write_json
from engram.core.folder import FAILURE, RESULT, TRACE
from engram.core.trace import Trace
from engram.engine.recipe import experiment
from engram.executors.survey import seconds_left, survey
from engram.record.experiment import Experiment
from engram.record.result import Seconds
from engram.record.run import Run


def run(method: str, seconds: float | None, *, scenario: str = "split-digits", seed: int = 0) -> Run:
    planned = experiment(scenario, method, seed=seed)
    taken = Seconds() if seconds is None else Seconds(seconds - 1, 1)
    return Run(planned=planned, folder=Path("nowhere"), finished=seconds is not None, seconds=taken)


def test_time_left_is_that_of_the_most_similar_runs() -> None:
    done = [
        run("er", 10.0),
        run("er", 20.0, seed=1),
        run("gem", 90.0),
        run("er", 40.0, scenario="permuted-digits"),
    ]
    assert seconds_left([*done, run("er", None, seed=2)], jobs=1) == 15
    assert seconds_left([*done, run("ewc", None)], jobs=1) == 40, "as the others on the same stream"
    assert seconds_left([*done, run("er", None, scenario="rotated-digits")], jobs=1) == 40, "as all"


def test_time_left_is_shared_out_among_the_jobs() -> None:
    runs = [run("er", 10.0), *(run("er", None, seed=seed) for seed in range(1, 6))]
    assert seconds_left(runs, jobs=1) == 50 and seconds_left(runs, jobs=2) == 25
    assert seconds_left(runs, jobs=100) == 10, "no run takes less than itself"


def test_time_left_at_the_end_and_at_the_beginning() -> None:
    assert seconds_left([run("er", 10.0)]) == 0
    assert seconds_left([run("er", None)]) is None


@pytest.fixture
def planned() -> list[Experiment]:
    return [experiment("split-digits", "er", seed=seed) for seed in range(3)]


def test_a_survey_reads_results_and_failures(planned: list[Experiment], tmp_path: Path) -> None:
    write_json(tmp_path / planned[0].id / RESULT, {"metrics": {"ACC": 0.5}})
    Trace().save(tmp_path / planned[0].id / TRACE)
    why = {"kind": "killed", "reason": "its process was killed by SIGKILL", "details": ""}
    write_json(tmp_path / planned[1].id / FAILURE, why)
    # A run that finished after it had failed is finished.
    write_json(tmp_path / planned[0].id / FAILURE, why)
    runs = survey(planned, tmp_path)
    assert [run.status for run in runs] == ["done", "failed", "missing"]
    assert runs[0].metrics == {"ACC": 0.5} and runs[0].failure is None
    assert runs[1].failure is not None and runs[1].failure.reason == why["reason"]


def test_a_result_without_its_trace_is_not_taken_for_a_run(planned: list[Experiment], tmp_path: Path) -> None:
    write_json(tmp_path / planned[0].id / RESULT, {"metrics": {"ACC": 0.5}})
    runs = survey(planned, tmp_path)
    assert [run.status for run in runs] == ["damaged", "missing", "missing"]
    assert runs[0].failure is not None
    assert "trace.parquet is missing" in runs[0].failure.reason and "\n" not in runs[0].failure.reason
