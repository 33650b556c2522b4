"""Runs with evaluator processes: the same files as in line, observers in order, resumed, skipped, failed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import engram as front
from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT
from engram.core.plugins import load_plugin
from engram.engine.execute import execute, run_in_memory
from engram.engine.failures import RunFailed
from engram.engine.observers import Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.record.experiment import Experiment
from engram.record.run import Run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="evaluators are forked on Linux only")


def timeless(value: Any) -> Any:
    """A result without times, which differ from run to run, and without how it was evaluated."""
    if isinstance(value, dict):
        kept = {name: timeless(item) for name, item in value.items() if "seconds" not in name}
        return {name: item for name, item in kept.items() if name not in ("parallel", "digest")}
    items = value if isinstance(value, list) else []
    return [timeless(item) for item in items if not _is_time(item)] if isinstance(value, list) else value


def _is_time(value: object) -> bool:
    """Whether it is the fact of a card that is a time."""
    return isinstance(value, dict) and value.get("name") == "update time"


def files(folder: Path) -> dict[str, Any]:
    """Everything in the folder of a run."""
    return {
        path.name: timeless(json.loads(path.read_text())) if path.suffix == ".json" else path.read_bytes()
        for path in sorted(folder.iterdir())
    }


def same_files(planned: Experiment, tmp_path: Path, **options: Any) -> Run:
    """Make a run in line and one with two evaluators; returns the latter, whose files must be the same."""
    places = []
    for parallel in ("off", "2"):
        run = execute(planned, Where(out=tmp_path / parallel, parallel=parallel, **options))
        assert run.folder is not None
        places.append(files(run.folder))
    assert places[0].keys() == places[1].keys()
    for name in places[0]:
        assert places[0][name] == places[1][name], name
    return run


def small(method: str, **options: Any) -> Experiment:
    evaluation = {"losses": True, "answers": True, **options.pop("evaluation", {})}
    return experiment("split-digits", method, updates=5, evaluation=evaluation, **options)


def test_a_run_leaves_the_same_files(tmp_path: Path) -> None:
    run = same_files(small("er", evaluation={"gradients": True}), tmp_path)
    assert run.parallel is not None
    assert run.parallel.evaluations == 15
    assert run.parallel.why == ""


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["class", "task"])
@pytest.mark.parametrize(
    "method", ["ewc", "gem", "icarl", "imm-mean", "packnet", "lwf", "dgr", "independent"]
)
def test_every_kind_of_method_leaves_the_same_files(method: str, setting: str, tmp_path: Path) -> None:
    try:
        planned = small(method, setting=setting)
        run = same_files(planned, tmp_path)
    except InputError as error:
        assert "needs task identity" in str(error)
        return
    assert run.parallel is not None
    assert run.parallel.evaluations > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"model": "slim-resnet18", "evaluation": {"full_ends": True, "subset": 50}},
        {"evaluation": {"subset": 50, "redraw": True}},
        {"evaluation": {"every": 2, "tasks": "all", "plasticity": True}},
    ],
    ids=["batch norm", "redrawn", "all tasks"],
)
def test_every_kind_of_evaluation_leaves_the_same_files(options: dict[str, Any], tmp_path: Path) -> None:
    run = same_files(small("er", **options), tmp_path)
    assert run.parallel is not None
    redrawn = options["evaluation"].get("redraw", False)
    assert (run.parallel.evaluations == 0) == redrawn
    assert run.parallel.why == ("samples are drawn again for every evaluation" if redrawn else "")


def test_networks_with_code_of_their_own_stay_where_it_is_watched(tmp_path: Path) -> None:
    plugin = tmp_path / "own.py"
    plugin.write_text(
        "import engram\n"
        "from torch import nn\n"
        "from engram.models.network import Network\n\n\n"
        "class Own(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.flatten(1)\n\n\n"
        "@engram.model('test-own-code')\n"
        "def own(shape, n_units):\n"
        "    'A head on the inputs.'\n"
        "    return Network(Own(), nn.Linear(64, n_units))\n"
    )
    load_plugin(plugin)
    run = same_files(small("finetune", model="test-own-code"), tmp_path)
    assert run.parallel is not None
    assert run.parallel.evaluations == 0
    assert "code of its own" in run.parallel.why


class Diary(Watcher):
    """Notes evaluations, and the loss of updates that are evaluated."""

    def __init__(self) -> None:
        self.evaluations: list[tuple[int, int, dict[int, float]]] = []
        self.ends: list[tuple[int, dict[int, float]]] = []
        self.updates: list[int] = []
        self.losses: list[tuple[int, float]] = []
        self.lag = 0

    def updated(self, step: Step) -> None:
        self.updates.append(step.step)
        self.lag = max(self.lag, step.lag)
        if step.accuracies or step.pending:
            self.losses.append((step.step, step.loss))

    def evaluated(self, step: Step) -> None:
        self.evaluations.append((step.step, step.learning, dict(step.accuracies)))

    def task_ended(self, step: Step) -> None:
        self.ends.append((step.step, dict(step.accuracies)))


def test_observers_are_told_of_the_same_evaluations_in_order() -> None:
    diaries = []
    for parallel in ("off", "2"):
        diaries.append(diary := Diary())
        run_in_memory(small("finetune"), Where(out=None, parallel=parallel), [diary])
    in_line, beside = diaries
    assert beside.evaluations == in_line.evaluations
    assert beside.ends == in_line.ends
    assert beside.updates == in_line.updates
    assert beside.losses == in_line.losses
    assert beside.lag > 0 == in_line.lag


class Interrupt(Watcher):
    """Interrupts a run in the middle of a task."""

    def updated(self, step: Step) -> None:
        if step.step == 13:
            raise KeyboardInterrupt


def test_a_checkpoint_holds_what_was_under_way_and_the_run_resumes(tmp_path: Path) -> None:
    planned = small("er")
    in_line = execute(planned, Where(out=tmp_path / "in line"))
    where = Where(out=tmp_path / "beside", parallel="2")
    with pytest.raises(KeyboardInterrupt):
        execute(planned, where, [Interrupt()])
    assert (where.folder / planned.id / CHECKPOINT).exists()
    # Any other number resumes it, and so does none.
    resumed = execute(planned, replace(where, parallel="1"))
    assert in_line.folder is not None
    assert resumed.folder is not None
    assert resumed.trace == in_line.trace
    assert files(resumed.folder)["trace.parquet"] == files(in_line.folder)["trace.parquet"]
    assert resumed.evaluations == in_line.evaluations


def test_a_run_that_fails_leaves_what_was_measured(tmp_path: Path) -> None:
    planned = experiment("split-digits", "finetune", updates=20, lr=1e20)
    failures = []
    for parallel in ("off", "2"):
        with pytest.raises(RunFailed) as caught:
            run_in_memory(planned, Where(out=None, parallel=parallel))
        failures.append(caught.value.run)
    in_line, beside = failures
    assert beside.trace == in_line.trace
    assert beside.failure == in_line.failure
    assert len(beside.trace) > 0


def test_a_skipped_run_is_never_made_without_skipping_and_the_reverse(tmp_path: Path) -> None:
    planned = small("finetune")
    whole = run_in_memory(planned, Where(out=None, parallel="skip:2"))
    assert whole.parallel is not None
    assert (whole.evaluations, whole.parallel.wanted, whole.parallel.skipped) == (26, "2", 0)
    skipped = run_in_memory(planned.skipping(), Where(out=None))
    assert skipped.parallel is not None
    assert skipped.parallel.wanted == "skip"
    assert front.run("split-digits", "finetune", updates=2, parallel="skip").experiment.evaluation.skips
