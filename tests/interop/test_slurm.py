"""Jobs of submitit, as processes of this machine: the contract of executors, and preemption."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.executors.contract import CHECKS, Make, left_over, plugin_in, same_bits, small, steps_made

from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT
from engram.engine.observers import Observer, Step, Watcher
from engram.engine.where import Where
from engram.executors import Executor, Machines, Slurm

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.skipif(find_spec("submitit") is None, reason="needs submitit: make test-integrations"),
]


def local(where: Where, observers: Sequence[Observer] = ()) -> Executor:
    return Slurm(where, observers, cluster="local")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Callable[[Make, Path], None], tmp_path: Path) -> None:
    check(local, tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
def test_a_preempted_job_is_queued_again_and_resumes(tmp_path: Path) -> None:
    plugin, out = plugin_in(tmp_path), tmp_path / "runs"
    (tmp_path / "slow").touch()
    preempted: list[int] = []

    class Preempt(Watcher):
        def updated(self, step: Step) -> None:
            if not preempted and step.step > 10:
                preempted.append(int((tmp_path / "steps.txt").read_text().split()[-1]))
                os.kill(preempted[0], signal.SIGUSR2)

    # Nothing but the preemption writes a checkpoint.
    where = Where(out=out, plugin=plugin, checkpoint_seconds=1000)
    [run] = Slurm(where, [Preempt()], cluster="local")([small("test-paced", updates=30)])
    assert preempted and run.finished
    pids = (tmp_path / "steps.txt").read_text().split()
    assert len(pids) == 150 and len(set(pids)) == 2, "two processes made each update once"
    assert left_over(out) == []
    assert same_bits(run)


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
def test_the_run_of_a_killed_job_resumes(tmp_path: Path) -> None:
    plugin, out = plugin_in(tmp_path), tmp_path / "runs"
    (tmp_path / "slow").touch()
    killed: list[int] = []

    class Kill(Watcher):
        def updated(self, step: Step) -> None:
            if not killed and list(out.glob(f"*/{CHECKPOINT}")):
                killed.append(int((tmp_path / "steps.txt").read_text().split()[-1]))
                os.kill(killed[0], signal.SIGKILL)

    where = Where(out=out, plugin=plugin, checkpoint_seconds=0.2)
    with pytest.warns(UserWarning, match="ended early: its runs are submitted again"):
        [run] = Slurm(where, [Kill()], cluster="local")([small("test-paced", updates=20)])
    assert killed and run.finished and 100 <= steps_made(tmp_path) <= 115
    assert same_bits(run)


def test_short_runs_share_a_job(tmp_path: Path) -> None:
    plugin = plugin_in(tmp_path)
    planned = [small("test-paced", seed=seed) for seed in range(4)]
    machines = Machines(on="slurm", runs_per_job=2)
    where = Where(out=tmp_path / "runs", plugin=plugin)
    runs = Slurm(where, machines=machines, cluster="local")(planned)
    assert all(run.finished for run in runs)
    assert len(set((tmp_path / "steps.txt").read_text().split())) == 2


def test_without_slurm_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="no Slurm here: sbatch is not in PATH"):
        Slurm(Where(out=tmp_path / "runs"))([small()])
