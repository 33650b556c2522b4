"""Checkpoints that runs keep: kept after a kill and after the end, sealed, without effect on the run."""

from dataclasses import replace
from pathlib import Path

import pytest

import engram
from engram.core.errors import InputError
from engram.engine.checkpoint import checkpoint_of
from engram.engine.execute import execute
from engram.engine.loop import run_steps
from engram.engine.observers import Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.record.aside import restore, set_aside
from engram.record.checkpoints import kept_checkpoints, kept_file
from engram.record.experiment import Experiment
from engram.results.integrity import check_run


def small() -> Experiment:
    return experiment("split-digits", "er", updates=4, hidden=(8,), evaluation={"subset": 10})


class Killed(Watcher):
    """Raises after an update, as a kill would end the process."""

    def __init__(self, after: int) -> None:
        self.after = after

    def updated(self, step: Step) -> None:
        if step.step == self.after:
            raise SystemExit


def test_checkpoints_are_kept_at_task_ends_and_the_run_is_the_same(tmp_path: Path) -> None:
    plain = execute(small(), Where(out=tmp_path / "plain"))
    run = execute(small(), Where(out=tmp_path / "kept", keep_checkpoints="tasks"))
    kept = kept_checkpoints(run.folder)
    assert list(kept) == [4, 8, 12, 16, 20]
    assert run.id == plain.id
    assert run.trace.bits == plain.trace.bits
    state = checkpoint_of(kept[8], small())
    again = [step.step for step in run_steps(small(), resume=state)]
    assert again == list(range(9, 21))
    assert not kept_checkpoints(plain.folder)


@pytest.mark.parametrize("keep", [3, "3"])
def test_checkpoints_are_kept_every_n_updates_as_well(keep: str | int, tmp_path: Path) -> None:
    run = engram.run(small(), out=tmp_path, keep_checkpoints=keep)
    assert list(kept_checkpoints(run.folder)) == [3, 4, 6, 8, 9, 12, 15, 16, 18, 20]


def test_a_run_that_was_killed_keeps_its_checkpoints(tmp_path: Path) -> None:
    where = Where(out=tmp_path, keep_checkpoints="tasks", checkpoint_seconds=1e-9)
    with pytest.raises(SystemExit):
        execute(small(), where, [Killed(after=10)])
    folder = tmp_path / small().id
    before = (folder / kept_file(4)).stat().st_mtime_ns
    run = execute(small(), where)
    assert list(kept_checkpoints(folder)) == [4, 8, 12, 16, 20]
    assert (folder / kept_file(4)).stat().st_mtime_ns == before
    # A finished run is read, whoever asks for its checkpoints.
    assert execute(small(), replace(where, keep_checkpoints=7)).trace.bits == run.trace.bits


def test_a_finished_run_without_checkpoints_says_what_to_do(tmp_path: Path) -> None:
    execute(small(), Where(out=tmp_path))
    with pytest.raises(
        InputError, match="kept no checkpoints: run it again with --again, or delete its folder"
    ):
        execute(small(), Where(out=tmp_path, keep_checkpoints="tasks"))


def test_checkpoints_move_with_a_run_that_is_set_aside(tmp_path: Path) -> None:
    run = execute(small(), Where(out=tmp_path, keep_checkpoints="tasks"))
    assert run.folder is not None
    assert set_aside(run.folder, again=True)
    assert not kept_checkpoints(run.folder)
    restore(run.folder)
    assert len(kept_checkpoints(run.folder)) == 5


def test_a_damaged_checkpoint_is_noticed(tmp_path: Path) -> None:
    run = engram.run(small(), out=tmp_path, keep_checkpoints="tasks")
    assert run.folder is not None
    assert check_run(run).status == "done"
    path = run.folder / kept_file(8)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    checked = check_run(run)
    assert checked.status == "damaged"
    assert "checkpoint-step-8.pt is damaged" in checked.problems[0]


@pytest.mark.parametrize("keep", ["always", "0", -2, "2.5"])
def test_what_cannot_be_kept_is_refused(keep: str | int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="write tasks or a number from 1 on"):
        engram.run(small(), out=tmp_path, keep_checkpoints=keep)
    assert not list(tmp_path.iterdir())


def test_checkpoints_need_a_folder() -> None:
    with pytest.raises(InputError, match="checkpoints are kept in the folder of a run"):
        engram.run(small(), keep_checkpoints="tasks")


def test_a_full_disk_costs_the_checkpoints_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise InputError("cannot write: No space left on device")

    monkeypatch.setattr("engram.engine.kept_checkpoints.write_checkpoint", full)
    with pytest.warns(UserWarning, match="no checkpoint is kept: cannot write"):
        run = engram.run(small(), out=tmp_path, keep_checkpoints="tasks")
    assert run.finished and not kept_checkpoints(run.folder)
