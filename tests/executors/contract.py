"""What every executor must do: one suite for all of them.

A check is given a function that makes the executor, and a folder. `tests/executors/test_contract.py` calls
all checks for the executors of this machine, `tests/interop` for those of clusters.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pytest
import torch

from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT, EXPERIMENT, FAILURE, LEASE, PROGRESS, RESULT
from engram.core.leases import lease
from engram.core.plugins import load_plugin
from engram.engine.loop import run as run_here
from engram.engine.observers import Observer, Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors import Executor
from engram.models import build
from engram.record.description import save_description
from engram.record.experiment import Experiment
from engram.record.run import Run

PLUGIN = """
import os, time
from pathlib import Path
import engram

PLACE = Path({place!r})

@engram.method("test-paced")
class Paced(engram.Learner):
    "Takes its time while there is a file `slow`, stops in the middle while there is a file `stop`."
    def after_step(self, batch):
        with (PLACE / "steps.txt").open("a") as file:
            file.write(f"{{os.getpid()}}\\n")
        if (PLACE / "slow").exists():
            time.sleep(0.05)
        while (PLACE / "stop").exists() and self.task.index == 2:
            time.sleep(0.05)

@engram.method("test-crashes")
class Crashes(engram.Learner):
    "Fails until there is a file `calm`."
    def after_step(self, batch):
        if not (PLACE / "calm").exists():
            raise KeyError("gone")
"""


class Make(Protocol):
    """Makes an executor."""

    def __call__(self, where: Where, observers: Sequence[Observer] = ()) -> Executor: ...


def plugin_in(place: Path) -> Path:
    """A plugin whose methods look at files of a folder."""
    file = place / "paced.py"
    file.write_text(PLUGIN.format(place=str(place)))
    load_plugin(file)
    return file


def paced(place: Path) -> None:
    """Make the paced method take its time, and stop in the middle: it does not end before it is disturbed.

    However late its progress is noticed. Whoever disturbs it removes `stop`.
    """
    for name in ("slow", "stop"):
        (place / name).touch()


def small(method: str = "finetune", seed: int = 0, **options: object) -> Experiment:
    chosen: dict[str, object] = {"updates": 4, "evaluation": {"every": 2, "subset": 20}, **options}
    return experiment("split-digits", method, seed=seed, **chosen)  # type: ignore[arg-type]


def same_bits(run: Run) -> bool:
    """Whether a run is, bit for bit, what a run in this process with one thread gives."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        reference = run_here(run.experiment)
    finally:
        torch.set_num_threads(threads)
    assert run.folder is not None
    loaded = Run.load(run.folder)
    return loaded.trace == reference.trace and dict(loaded.stored) == {
        name: pytest.approx(value, nan_ok=True, abs=0) for name, value in reference.stored.items()
    }


def steps_made(place: Path) -> int:
    """How many updates the paced method made, in all processes."""
    try:
        return len((place / "steps.txt").read_text().split())
    except FileNotFoundError:
        return 0


def left_over(out: Path) -> list[str]:
    """Files that should not be there when all is done."""
    working = {LEASE, PROGRESS, CHECKPOINT, "checkpoint.previous.pt"}
    hidden = [path.name for path in out.iterdir() if path.name.startswith(".")]
    return hidden + [path.name for path in out.glob("*/*") if path.name in working or path.name[0] == "."]


class Diary(Watcher):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.began_: list[str] = []
        self.evaluated_: dict[str, list[int]] = {}
        self.ended_: dict[str, str] = {}

    def began(self, run: Run) -> None:
        self.began_.append(run.id)

    def evaluated(self, step: Step) -> None:
        self.evaluated_.setdefault(step.run.id, []).append(step.step)

    def ended(self, run: Run) -> None:
        assert run.id not in self.ended_, "it ends once"
        self.ended_[run.id] = run.status


def one_run_per_experiment_in_order_to_the_bit(make: Make, place: Path) -> None:
    out, diary = place / "runs", Diary()
    planned = [small(seed=1), small("er"), small(seed=1), small()]
    runs = make(Where(out=out, jobs=2), [diary])(planned)
    assert [run.id for run in runs] == [one.id for one in planned]
    assert all(run.status == "done" for run in runs), [run.failure for run in runs]
    assert all(same_bits(run) for run in runs[:2])
    assert left_over(out) == []
    assert {path.name for path in (out / planned[1].id).iterdir()} >= {EXPERIMENT, "trace.parquet", RESULT}
    assert set(diary.ended_.values()) == {"done"} and len(diary.ended_) == 3
    # Finished runs are read, not run again.
    stamps = {one.id: (out / one.id / RESULT).stat().st_mtime_ns for one in planned}
    again = make(Where(out=out, jobs=2))([*planned, small(seed=2)])
    assert len(again) == 5 and all(run.finished for run in again)
    assert stamps == {one.id: (out / one.id / RESULT).stat().st_mtime_ns for one in planned}


def failures_are_values_and_are_tried_again(make: Make, place: Path) -> None:
    out, plugin = place / "runs", plugin_in(place)
    wild = experiment("split-digits", "finetune", updates=4, lr=1e9)
    planned = [small("test-crashes"), wild, small()]
    where = Where(out=out, jobs=1, plugin=plugin)
    crashed, diverged, good = make(where)(planned)
    assert good.finished
    assert crashed.failure is not None and crashed.failure.reason == "KeyError: 'gone'"
    assert "after_step" in crashed.failure.details
    assert diverged.failure is not None and diverged.failure.kind == "diverged"
    kept = json.loads((out / planned[0].id / FAILURE).read_text())
    assert kept["kind"] == crashed.failure.kind == "crashed"
    (place / "calm").touch()
    again = make(where)(planned)
    assert [run.status for run in again] == ["done", "failed", "done"]
    assert same_bits(again[0]) and not (out / planned[0].id / FAILURE).exists()


def plugin_and_weights_are_there(make: Make, place: Path) -> None:
    plugin, weights = plugin_in(place), place / "start.pt"
    torch.save(build(small().model, shape=(1, 8, 8), n_units=10, seed=7).state_dict(), weights)
    planned = [small("test-paced", weights=weights), small(weights=weights)]
    runs = make(Where(out=place / "runs", jobs=2, plugin=plugin))(planned)
    assert all(run.finished for run in runs), [run.failure for run in runs]
    assert all(same_bits(run) for run in runs)


def missing_data_are_noticed_before_anything_starts(make: Make, place: Path) -> None:
    out = place / "runs"
    with pytest.raises(InputError, match="nowhere is not a folder"):
        make(Where(out=out, data=place / "nowhere", jobs=1))([small(), experiment("split-kmnist", "er")])
    assert not list(out.glob("*"))


def cancelled_runs_keep_their_checkpoint(make: Make, place: Path) -> None:
    out, plugin = place / "runs", plugin_in(place)
    paced(place)
    planned = [small("test-paced", updates=30, seed=seed) for seed in (0, 1)]
    where = Where(out=out, jobs=1, plugin=plugin)

    class Stop(Watcher):
        def updated(self, step: Step) -> None:
            if step.step >= 5:
                (place / "stop").unlink(missing_ok=True)
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(where, [Stop()])(planned)
    first = Run.find(planned[0], out)
    assert first.status == "unfinished" and (out / planned[0].id / CHECKPOINT).is_file()
    assert Run.find(planned[1], out).status in ("missing", "unfinished")
    made = steps_made(place)
    assert 5 <= made < 150
    (place / "slow").unlink()
    runs = make(where)(planned)
    assert all(run.finished for run in runs) and all(same_bits(run) for run in runs)
    # 150 updates of each, and nothing was made twice but for a few after the checkpoint.
    before_reference = steps_made(place) - 2 * 150
    assert 300 <= before_reference <= 300 + 10, "a run that was cancelled resumes"
    assert left_over(out) == []


def what_others_hold_is_waited_for(make: Make, place: Path) -> None:
    out, one = place / "runs", small()
    save_description(out / one.id, one.as_json())
    taken, enough = threading.Event(), threading.Event()
    released = 0.0

    def hold() -> None:
        nonlocal released
        with lease(out / one.id):
            taken.set()
            enough.wait(60)
            released = time.time()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(60)
    threading.Timer(1.0, enough.set).start()
    try:
        with warnings.catch_warnings():
            # Where nothing else is left to do, it says whom it waits for.
            warnings.simplefilter("ignore")
            held, free = make(Where(out=out, jobs=1))([one, small(seed=1)])
    finally:
        enough.set()
        holder.join()
    assert held.finished and free.finished and same_bits(held)
    assert (out / one.id / RESULT).stat().st_mtime >= released - 0.1


def the_run_of_a_killed_worker_resumes(make: Make, place: Path, *, told: str) -> None:
    """For executors of clusters: the run goes on from its checkpoint, and one warning says so."""
    plugin, out = plugin_in(place), place / "runs"
    paced(place)
    killed: list[int] = []

    class Kill(Watcher):
        def updated(self, step: Step) -> None:
            if not killed and list(out.glob(f"*/{CHECKPOINT}")):
                killed.append(int((place / "steps.txt").read_text().split()[-1]))
                os.kill(killed[0], signal.SIGKILL)
                (place / "stop").unlink()

    where = Where(out=out, plugin=plugin, checkpoint_seconds=0.2)
    with pytest.warns(UserWarning, match=told):
        [run] = make(where, [Kill()])([small("test-paced", updates=20)])
    assert killed and run.finished
    made = (place / "steps.txt").read_text().split()
    assert 100 <= len(made) <= 100 + 15, "it lost the work since its last checkpoint"
    assert len(set(made)) == 2
    (place / "slow").unlink()
    assert same_bits(run)


CHECKS: tuple[Callable[[Make, Path], None], ...] = (
    one_run_per_experiment_in_order_to_the_bit,
    failures_are_values_and_are_tried_again,
    plugin_and_weights_are_there,
    missing_data_are_noticed_before_anything_starts,
    cancelled_runs_keep_their_checkpoint,
    what_others_hold_is_waited_for,
)
