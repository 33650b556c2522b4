"""A failure leaves the same record in the run's folder, whichever executor runs the experiment."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engram.cli.run import run_all
from engram.core.errors import InputError
from engram.core.files import write_json
from engram.core.folder import EXPERIMENT, FAILURE, RESULT, TRACE
from engram.core.plugins import load_plugin
from engram.engine.execute import execute
from engram.engine.failures import RunFailed, explain_crash
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.processes import Processes
from engram.executors.serial import Serial
from engram.models import build
from engram.papers.published import Cell
from engram.papers.reproduce import reproduce
from engram.papers.values import Piece
from engram.protocols.drive import Plan, drive
from engram.protocols.grid import grid
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run

PLUGIN = """
import math
import engram
from torch import nn

@engram.method("test-raises")
class Raises(engram.Learner):
    "Fails in the second task."
    def after_step(self, batch):
        if self.task.index == 1 and self.step_in_task == 2:
            raise LookupError("nothing here")

@engram.model("test-norm", head="last")
def norm(shape, n_units):
    "One layer and batch norm."
    made = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 8), nn.BatchNorm1d(8))
    made.add_module("last", nn.Linear(8, n_units))
    return made
"""
EVERY_UPDATE: dict[str, Any] = {"subset": 20, "losses": True}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("plugin") / "raises.py"
    place.write_text(PLUGIN)
    load_plugin(place)
    return place


def diverging() -> Experiment:
    return experiment("split-digits", "finetune", lr=1e9, updates=8, evaluation=EVERY_UPDATE)


def crashing() -> Experiment:
    return experiment("split-digits", "test-raises", updates=4, evaluation=EVERY_UPDATE)


def over_budget() -> Experiment:
    planned = experiment("split-digits", "online-ewc", updates=3, evaluation=EVERY_UPDATE)
    return replace(planned, budget_bytes=20_000)


def single_sample() -> Experiment:
    """Of the 289 samples of the first task, batches of 96 leave one."""
    return experiment(
        "split-digits", "finetune", model="test-norm", batch_size=96, epochs=1, evaluation={"every": 100}
    )


class Case:
    """An experiment that fails, and its expected failure."""

    def __init__(
        self,
        make: Callable[[], Experiment],
        kind: str,
        reason: str,
        *,
        step: int,
        task: int,
        raised: str = "",
    ) -> None:
        self.make, self.kind, self.reason = make, kind, reason
        self.step, self.task, self.raised = step, task, raised


CASES = {
    "diverged": Case(
        diverging,
        "diverged",
        "the loss became nan at step 3 while learning task 1: try a learning rate smaller than 1000000000.0",
        step=3,
        task=0,
    ),
    "crashed": Case(
        crashing, "crashed", "LookupError: nothing here", step=6, task=1, raised="in after_step\n"
    ),
    "out of budget": Case(
        over_budget,
        "out of budget",
        "method online-ewc keeps 71760 bytes after phase 1, over the budget of 20000: raise the budget, "
        "or use a smaller network or memory",
        step=3,
        task=0,
    ),
    "bad input": Case(
        single_sample,
        "bad input",
        "batch norm cannot learn from this update's single sample: choose another batch size",
        step=4,
        task=0,
    ),
}


def alone(planned: Experiment, where: Where) -> Run:
    """As `engram run` runs it."""
    with pytest.raises(RunFailed) as error:
        execute(planned, where)
    assert error.value.run.failure == error.value.failure
    return replace(error.value.run, folder=where.folder / planned.id)


def in_this_process(planned: Experiment, where: Where) -> Run:
    [run] = Serial(where)([planned])
    return run


def in_another_process(planned: Experiment, where: Where) -> Run:
    [run] = Processes(where)([planned])
    return run


def by_the_command(planned: Experiment, where: Where) -> Run:
    with pytest.raises(InputError):
        run_all([planned], where)
    return Run.find(planned, where.folder)


def by_a_protocol(planned: Experiment, where: Where) -> Run:
    with pytest.raises(InputError):
        drive(grid([planned], {}), Serial(where))
    return Run.find(planned, where.folder)


def by_a_reproduction(planned: Experiment, where: Where) -> Run:
    def plan(seeds: Sequence[int]) -> Plan[dict[Cell, Sequence[float]]]:
        yield [planned for _ in seeds]
        return {}

    [reproduced] = reproduce([Piece("made up", plan, (), 1)], Serial(where))
    assert [run.id for run in reproduced.failures] == [planned.id]
    return Run.find(planned, where.folder)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.mark.parametrize(
    "how",
    [
        alone,
        by_the_command,
        by_a_protocol,
        by_a_reproduction,
        in_this_process,
        pytest.param(in_another_process, marks=pytest.mark.slow),
    ],
)
def test_the_same_failure_leaves_the_same_record(
    how: Callable[[Experiment, Where], Run], case: Case, plugin: Path, tmp_path: Path
) -> None:
    planned = case.make()
    run = how(planned, Where(out=tmp_path, plugin=plugin, jobs=1))
    folder = tmp_path / planned.id
    assert run.folder == folder and run.status == "failed" and not run.finished
    written = json.loads((folder / FAILURE).read_text())
    details, digest, checksums = (written.pop(name, None) for name in ("details", "digest", "checksums"))
    assert digest is not None
    tables = {table.name for table in folder.glob("*.parquet")}
    assert set(checksums or {}) == (tables | {EXPERIMENT} if tables else set())
    assert (TRACE in tables) == bool(len(run.trace))
    assert written == {
        "id": planned.id,
        "label": planned.label,
        "kind": case.kind,
        "reason": case.reason,
        "step": case.step,
        "task": case.task,
    }
    assert (case.raised in details) if case.raised else details == ""
    assert not (folder / RESULT).exists() and (folder / EXPERIMENT).is_file()
    # The failure and what was measured until then are read back.
    kept = Run.load(folder)
    assert kept.failure == run.failure and kept.trace == run.trace
    # As text, because losses that are NaN are unequal to themselves.
    assert repr(kept.readings) == repr(run.readings)
    assert kept.description == json.loads(json.dumps(planned.as_json()))
    last_evaluated = max(kept.trace.step)
    assert last_evaluated < case.step
    assert kept.trace == alone(planned, Where(out=tmp_path / "again")).trace


def test_whoever_runs_it_the_others_go_on(plugin: Path, tmp_path: Path) -> None:
    good = experiment("split-digits", "finetune", updates=2, evaluation={"every": 100})
    runs = Serial(Where(out=tmp_path))([diverging(), crashing(), good])
    assert [run.status for run in runs] == ["failed", "failed", "done"]
    assert [run.experiment.id for run in runs] == [diverging().id, crashing().id, good.id]


@pytest.mark.parametrize("how", [alone, in_this_process])
def test_a_network_that_does_not_fit_into_memory_is_a_failure(
    how: Callable[[Experiment, Where], Run], tmp_path: Path
) -> None:
    planned = experiment("split-digits", "finetune", hidden=(3_000_000, 3_000_000), updates=2)
    run = how(planned, Where(out=tmp_path))
    assert run.failure is not None and run.failure.kind is FailureKind.OUT_OF_MEMORY
    assert "use a smaller network or batch" in run.failure.reason and "\n" not in run.failure.reason
    assert (run.failure.step, run.failure.task) == (None, None)
    assert Run.load(tmp_path / planned.id).failure == run.failure


def test_a_run_that_is_tried_again_forgets_its_failure(tmp_path: Path) -> None:
    good = experiment("split-digits", "finetune", updates=2, evaluation={"every": 100})
    write_json(tmp_path / good.id / FAILURE, {"kind": "crashed", "reason": "no luck"})
    assert Run.find(good, tmp_path).status == "failed"
    [run] = Serial(Where(out=tmp_path))([good])
    assert run.finished and run.failure is None and not (tmp_path / good.id / FAILURE).exists()


@pytest.mark.parametrize("executor", [Serial, Processes])
def test_missing_data_are_noticed_before_anything_starts(
    executor: type[Serial] | type[Processes], tmp_path: Path
) -> None:
    good = experiment("split-digits", "finetune", updates=2)
    missing = experiment("split-kmnist", "finetune", updates=2)
    out = tmp_path / "runs"
    with pytest.raises(InputError, match="nowhere is not a folder") as error:
        executor(Where(out=out, data=tmp_path / "nowhere", jobs=1))([good, missing])
    assert not isinstance(error.value, RunFailed) and "\n" not in str(error.value)
    assert not list(out.glob("*"))


def test_missing_data_leave_no_folder_of_a_single_run(tmp_path: Path) -> None:
    missing = experiment("split-kmnist", "finetune", updates=2)
    with pytest.raises(InputError, match="nowhere is not a folder") as error:
        execute(missing, Where(out=tmp_path, data=tmp_path / "nowhere"))
    assert not isinstance(error.value, RunFailed)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_cannot_start_is_recorded_and_others_continue(tmp_path: Path) -> None:
    """A start that is gone concerns one run of several."""
    good = experiment("split-digits", "finetune", updates=2, evaluation={"every": 100})
    weights = tmp_path / "start.pt"
    torch.save(build(good.model, shape=(1, 8, 8), n_units=10, seed=0).state_dict(), weights)
    broken = experiment("split-digits", "finetune", updates=2, weights=weights)
    weights.unlink()
    first, second = Serial(Where(out=tmp_path))([broken, good])
    assert second.finished
    assert first.failure is not None and first.failure.kind is FailureKind.BAD_INPUT
    assert "start.pt" in first.failure.reason
    assert (first.failure.step, first.failure.task) == (None, None)
    assert Run.load(tmp_path / broken.id).failure == first.failure


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("input", FailureKind.BAD_INPUT),
        ("memory", FailureKind.OUT_OF_MEMORY),
        ("killed", FailureKind.CRASHED),
        ("crashed", FailureKind.CRASHED),
    ],
)
def test_failures_of_earlier_versions_are_read(before: str, now: FailureKind, tmp_path: Path) -> None:
    planned = experiment("split-digits", "er")
    old = {"id": planned.id, "label": planned.label, "kind": before, "reason": "why", "details": "where"}
    write_json(tmp_path / planned.id / FAILURE, old)
    run = Run.find(planned, tmp_path)
    assert run.failure == Failure(now, "why", details="where") and run.status == "failed"


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failure_survives_json(kind: FailureKind) -> None:
    for failure in (Failure(kind, "why"), Failure(kind, "why", 3, 1, "Traceback …\nLookupError")):
        assert Failure.of_json(json.loads(json.dumps(failure.as_json()))) == failure


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ([], "does not describe a failure"),
        ({"kind": "crashed"}, "does not describe a failure"),
        ({"kind": "crashed", "reason": 3}, "does not describe a failure"),
        ({"kind": "bored", "reason": "why"}, "unknown kind 'bored'"),
        ({"reason": "why"}, "unknown kind"),
    ],
)
def test_a_damaged_failure_is_one_line(written: object, words: str, tmp_path: Path) -> None:
    planned = experiment("split-digits", "er")
    write_json(tmp_path / planned.id / FAILURE, written)
    run = Run.find(planned, tmp_path)
    assert run.status == "damaged" and run.failure is not None
    reason = run.failure.reason
    assert words in reason and "\n" not in reason and str(tmp_path / planned.id / FAILURE) in reason


def test_a_run_that_ended_without_a_word_is_explained(tmp_path: Path) -> None:
    line = explain_crash(Run(folder=tmp_path))
    assert line == f"the run {tmp_path} ended without a result: run the same command again to retry it"


def test_only_what_would_fail_again_is_final() -> None:
    final = {kind for kind in FailureKind if Failure(kind, "why").final}
    assert final == {FailureKind.DIVERGED, FailureKind.OUT_OF_BUDGET}
