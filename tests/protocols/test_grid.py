"""Grid search with made-up scores."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.made_up import Recorder, failed, with_metrics

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.engine.execute import execute
from engram.engine.observers import Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors import Executor
from engram.executors.processes import Processes
from engram.executors.serial import Serial
from engram.metrics.summary import summarise
from engram.protocols.candidates import combinations, varied
from engram.protocols.drive import drive
from engram.protocols.grid import grid, metric_name
from engram.record.experiment import Experiment
from engram.record.failure import FailureKind
from engram.record.run import Run


def bases(method: str = "er", seeds: int = 1) -> list[Experiment]:
    return [experiment("split-digits", method, seed=seed) for seed in range(seeds)]


def by_rate(metric: str = "ACC") -> Recorder:
    return Recorder(
        lambda planned: with_metrics(planned, {metric: planned.optimizer.lr + 0.01 * planned.seed})
    )


def test_every_combination_is_tried_with_every_seed_and_kept() -> None:
    execute = by_rate()
    outcome = drive(grid(bases(seeds=3), {"lr": [0.1, 0.5], "weight": [0.3, 0.7]}), execute)
    assert [len(experiments) for experiments in execute.rounds] == [12, 3]
    assert [c.fields for c in outcome.candidates] == combinations({"lr": [0.1, 0.5], "weight": [0.3, 0.7]})
    assert outcome.candidates[0].scores == pytest.approx((0.1, 0.11, 0.12))
    assert outcome.candidates[0].score == pytest.approx(0.11)
    assert outcome.choice == {"lr": 0.5, "weight": 0.3}
    assert [result.experiment.seed for result in outcome.results] == [0, 1, 2]
    assert {planned.id for planned in execute.rounds[1]} <= {planned.id for planned in execute.rounds[0]}


def test_less_forgetting_is_better() -> None:
    assert drive(grid(bases(), {"lr": [0.1, 0.5]}, metric="FORG"), by_rate("FORG")).choice == {"lr": 0.1}
    assert drive(grid(bases(), {"lr": [0.1, 0.5]}, metric="WF10"), by_rate("WF10")).choice == {"lr": 0.1}
    assert drive(grid(bases(), {"lr": [0.1, 0.5]}, metric="AvgFgt"), by_rate("AvgFgt")).choice == {"lr": 0.5}


def test_a_failed_run_keeps_its_candidate_in_the_table_but_out_of_the_choice() -> None:
    def make(planned: Experiment) -> Run:
        if planned.optimizer.lr == 0.5 and planned.seed == 1:
            return failed(planned, "loss became nan")
        return with_metrics(planned, {"ACC": planned.optimizer.lr})

    outcome = drive(grid(bases(seeds=2), {"lr": [0.1, 0.5]}), Recorder(make))
    assert outcome.choice == {"lr": 0.1}
    assert outcome.candidates[1].failures == ("loss became nan",)
    assert math.isnan(outcome.candidates[1].score) and outcome.candidates[1].scores[0] == 0.5
    with pytest.raises(InputError, match=r"none of 1 candidates has a score.*loss became nan"):
        drive(grid(bases(seeds=2), {"lr": [0.5]}), Recorder(make))


def test_validation_never_shows_test_data_before_the_choice() -> None:
    execute = by_rate()
    outcome = drive(grid(bases(seeds=2), {"lr": [0.1, 0.5]}, on="validation", held_out=0.25), execute)
    searched, final = execute.rounds
    assert {planned.evaluation.on for planned in searched} == {"validation"}
    assert {planned.scenario.held_out for planned in searched + final} == {0.25}
    assert {planned.evaluation.on for planned in final} == {"test"}
    assert {planned.optimizer.lr for planned in final} == {0.5}
    assert outcome.on == "validation" and len(outcome.results) == 2


def test_the_search_may_use_fewer_seeds_than_the_winner() -> None:
    execute = by_rate()
    drive(grid(bases(seeds=5), {"lr": [0.1, 0.5]}, search_seeds=1), execute)
    assert [len(experiments) for experiments in execute.rounds] == [2, 5]
    with pytest.raises(InputError, match="search_seeds must be between 1 and 5, got 6"):
        drive(grid(bases(seeds=5), {"lr": [0.1]}, search_seeds=6), execute)


def test_the_first_of_equals_is_chosen() -> None:
    same = Recorder(lambda planned: with_metrics(planned, {"ACC": 0.5}))
    assert drive(grid(bases(), {"lr": [0.2, 0.1]}), same).choice == {"lr": 0.2}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lrr": ["1"]}, "unknown field 'lrr'; did you mean 'lr'"),
        ({"lr": ["-1"]}, "lr must be above 0, got '-1'"),
        ({"lr": ["x"]}, "lr must be a number, got 'x'"),
        ({"hidden": ["4xa"]}, "hidden must be whole numbers .*, got '4xa'"),
        ({"memory": ["0"]}, "memory must be greater than 0, got '0'"),
        ({"lr": []}, "no value for lr"),
    ],
)
def test_bad_grids_are_refused_before_anything_is_asked(fields: dict[str, list[str]], message: str) -> None:
    execute = by_rate()
    with pytest.raises(InputError, match=message) as error:
        drive(grid(bases(), fields), execute)
    assert execute.rounds == [] and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("ACCC", "unknown metric 'ACCC'; did you mean 'ACC'"),
        ("FWT", "evaluate all tasks"),
    ],
)
def test_a_metric_that_no_run_will_have_is_named_before_anything_is_run(metric: str, words: str) -> None:
    execute = by_rate()
    with pytest.raises(InputError, match=words):
        drive(grid(bases(), {"lr": [0.1]}, metric=metric), execute)
    assert not execute.rounds


def test_metrics_may_be_spelled_in_any_case_and_are_those_of_runs() -> None:
    assert drive(grid(bases(), {"lr": [0.1]}, metric="acc"), by_rate()).metric == "ACC"
    trace = Trace()
    for step, learning in ((0, 0), (1, 0), (2, 1)):
        for task in (0, 1):
            trace.add(step=step, learning=learning, task=task, right=np.array([True, False]))
    for name in summarise(trace, classes_seen=[2, 4]).final:
        assert metric_name(name.lower()) == name


def test_fields_of_all_kinds() -> None:
    base = experiment("split-digits", "er", updates=7)
    other = varied(base, {"batch_size": "5", "epochs": "3", "dropout_hidden": ".5", "memory": "9"})
    assert (other.batch_size, other.epochs, other.updates) == (5, 3, None)
    assert other.model.dropout_hidden == 0.5 and other.settings["memory"] == 9
    assert varied(base, {}) == base


def test_serial_execution_runs_each_experiment_once(tmp_path: Path) -> None:
    began: list[str] = []
    ended: list[Run] = []
    steps: list[int] = []

    class Following(Watcher):
        def began(self, run: Run) -> None:
            began.append(run.id)

        def updated(self, step: Step) -> None:
            steps.append(step.step)

        def ended(self, run: Run) -> None:
            ended.append(run)

    base = experiment("split-digits", "finetune", updates=3, evaluation={"every": 100})
    plan = grid([base], {"lr": ["0.1", "1e9"]})
    outcome = drive(plan, Serial(Where(out=tmp_path), [Following()]))
    assert outcome.choice == {"lr": 0.1}
    assert "try a learning rate smaller" in outcome.candidates[1].failures[0]
    (diverged,) = [run.failure for run in ended if run.failure is not None]
    assert diverged.kind is FailureKind.DIVERGED and diverged.reason == outcome.candidates[1].failures[0]
    chosen = outcome.results[0].experiment.id
    # It is requested twice and run once.
    assert began.count(chosen) == 1 and [run.id for run in ended].count(chosen) == 2
    assert steps.count(15) == 1


def test_a_run_that_crashes_is_a_failure_and_the_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashing(planned: Experiment, where: Where, observers: Any) -> Run:
        if planned.optimizer.lr == 0.2:
            raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes")
        return execute(planned, where, observers)

    monkeypatch.setattr("engram.engine.execute.execute", crashing)
    base = experiment("split-digits", "finetune", updates=2, evaluation={"every": 100})
    plan = grid([base], {"lr": [0.1, 0.2]})
    outcome = drive(plan, Serial(Where(out=tmp_path)))
    tried = outcome.candidates[1]
    assert outcome.choice == {"lr": 0.1} and tried.failures[0].startswith("out of memory (RuntimeError: Def")
    told = Run.find(varied(base, {"lr": 0.2}), tmp_path).failure
    assert told is not None and told.kind is FailureKind.OUT_OF_MEMORY and "in crashing" in told.details
    assert not told.final
    monkeypatch.undo()
    (again,) = Serial(Where(out=tmp_path))([varied(base, {"lr": 0.2})])
    assert again.finished and again.failure is None and not list(tmp_path.glob("*/failure.json"))


@pytest.mark.parametrize("executor", [Serial, pytest.param(Processes, marks=pytest.mark.slow)])
def test_a_run_that_diverges_leaves_what_was_measured_before(
    executor: Callable[[Where], Executor], tmp_path: Path
) -> None:
    base = experiment("split-digits", "finetune", updates=6, evaluation={"every": 1, "subset": 10})
    (run,) = executor(Where(out=tmp_path, jobs=1))([varied(base, {"lr": 1e9})])
    assert run.failure is not None and run.failure.kind is FailureKind.DIVERGED
    assert run.trace == Trace.load(tmp_path / run.experiment.id / "trace.parquet")
    assert f"at step {max(run.trace.step) + 1} " in run.failure.reason
    assert run.failure.step == max(run.trace.step) + 1 and run.failure.task == 0
