"""Weights that runs keep: right after a kill, in worker processes, and without effect on the run."""

import warnings
from pathlib import Path

import pytest

import engram
from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT
from engram.engine.checkpoint import write_checkpoint
from engram.engine.execute import execute
from engram.engine.loop import run_steps
from engram.engine.observers import Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.record.experiment import Experiment
from engram.record.weights import task_file


def small(method: str = "er") -> Experiment:
    return experiment("split-digits", method, updates=3, hidden=(8,), evaluation={"subset": 10})


class Killed(Watcher):
    """Raises after an update, as a kill would end the process."""

    def __init__(self, after: int) -> None:
        self.after = after

    def updated(self, step: Step) -> None:
        if step.step == self.after:
            raise SystemExit


def kept(out: Path) -> dict[str, str]:
    return dict(execute(small(), Where(out=out, save_weights="tasks")).weights)


def test_a_run_that_was_killed_keeps_the_same_weights(tmp_path: Path) -> None:
    whole = kept(tmp_path / "whole")
    assert list(whole) == [task_file(number) for number in range(1, 6)]
    with pytest.raises(SystemExit):
        execute(
            small(),
            Where(out=tmp_path / "killed", save_weights="tasks", checkpoint_seconds=1e-9),
            [Killed(after=8)],
        )
    folder = tmp_path / "killed" / small().id
    assert (folder / CHECKPOINT).is_file() and (folder / task_file(2)).is_file()
    assert kept(tmp_path / "killed") == whole
    assert not (folder / CHECKPOINT).exists()


def test_a_checkpoint_without_the_weights_before_it_is_not_used(tmp_path: Path) -> None:
    """As where a run began without `save_weights`, and goes on with it."""
    whole = kept(tmp_path / "whole")
    for step in run_steps(small()):
        if step.step == 8:
            assert step.snapshot is not None
            write_checkpoint(tmp_path / "late" / small().id / CHECKPOINT, step.snapshot())
            break
    with pytest.warns(UserWarning, match="weights were not kept: the run starts from the beginning"):
        assert kept(tmp_path / "late") == whole


@pytest.mark.parametrize("method", ["imm-mean", "ewc"])
def test_keeping_weights_changes_nothing(method: str, tmp_path: Path) -> None:
    plain = execute(small(method), Where(out=tmp_path / "plain"))
    keeping = execute(small(method), Where(out=tmp_path / "keeping", save_weights="tasks"))
    assert keeping.id == plain.id
    rows = range(len(plain.trace))
    assert all((plain.trace.right(row) == keeping.trace.right(row)).all() for row in rows)
    assert dict(plain.metrics) == pytest.approx(dict(keeping.metrics), nan_ok=True, abs=0)
    assert keeping.model().head.out_features == 10


def test_weights_need_a_folder() -> None:
    with pytest.raises(InputError, match="name one with out="):
        engram.run("split-digits", "er", updates=1, save_weights="final")


@pytest.mark.slow
def test_worker_processes_keep_them_too(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n\n\ndef flat(shape, n_units):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, n_units))\n"
    )
    table = {
        "scenario": "split-digits",
        "method": ["er", "finetune"],
        "updates": 2,
        "model": f"{tmp_path / 'nets.py'}:flat",
    }
    with warnings.catch_warnings():
        runs = engram.sweep(table, out=tmp_path / "runs", jobs=2, save_weights="final")
    assert len(runs) == 2 and all(run.model().width == 64 for run in runs)
