"""Jobs of submitit, as processes of this machine and on a real Slurm: the contract, and preemption."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.executors.contract import (
    CHECKS,
    Make,
    left_over,
    paced,
    plugin_in,
    same_bits,
    small,
    steps_made,
    the_run_of_a_killed_worker_resumes,
)

from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT, RESULT
from engram.engine.observers import Observer, Step, Watcher
from engram.engine.where import Where
from engram.executors import Executor, Machines, Slurm
from engram.record.run import Run

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
    paced(tmp_path)
    preempted: list[int] = []

    class Preempt(Watcher):
        def updated(self, step: Step) -> None:
            if not preempted and step.step > 10:
                preempted.append(int((tmp_path / "steps.txt").read_text().split()[-1]))
                os.kill(preempted[0], signal.SIGUSR2)
                (tmp_path / "stop").unlink()

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
    the_run_of_a_killed_worker_resumes(local, tmp_path, told="ended early: its runs are submitted again")


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


# A real Slurm of one node ---------------------------------------------------------------------------

CONFIGURATION = """
ClusterName=one
SlurmctldHost=localhost
SlurmctldPort=16917
SlurmdPort=16918
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=20
NodeName=localhost CPUs=2 State=UNKNOWN
PartitionName=main Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "munged", "munge")


def answers(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Slurm of this machine alone, or a skip that says what it needs."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip("needs root and Debian's slurm-wlm and munge: apt-get install slurm-wlm munge")
    if not answers("munge", "-n"):
        Path("/run/munge").mkdir(exist_ok=True)
        shutil.chown("/run/munge", "munge", "munge")
        subprocess.run(["su", "-s", "/bin/sh", "munge", "-c", "munged"], check=False)
        if not answers("munge", "-n"):
            pytest.skip("munge does not start on this machine")
    place = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (place / name).mkdir()
    (place / "slurm.conf").write_text(CONFIGURATION.format(place=place))
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(place / "slurm.conf")
    started = [
        subprocess.Popen([name, "-D", *more])
        for name, more in (("slurmctld", []), ("slurmd", ["-N", "localhost"]))
    ]
    try:
        deadline = time.monotonic() + 60
        while not answers("srun", "--immediate=5", "true"):
            if time.monotonic() > deadline:
                pytest.skip("Slurm does not start on this machine")
            time.sleep(0.5)
        yield place
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(timeout=30)
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before


def test_a_sweep_on_a_real_slurm(slurm: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "runs"
    file.write_text('scenario = "split-digits"\nmethod = "er"\nupdates = 4\nsubset = 20\nseeds = 4\n')
    command = [sys.executable, "-m", "engram", "sweep", str(file), "--on", "slurm", "--json"]
    options = ["--partition", "main", "--runs-per-job", "2", "--out", str(out)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["done"] == 4
    assert left_over(out) == [] and all(same_bits(Run.load(path)) for path in sorted(out.iterdir())[:2])
    unknown = [*command, "--partition", "nowhere", "--out", str(tmp_path / "other")]
    done = subprocess.run(unknown, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2 and "Invalid partition name" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr and not list((tmp_path / "other").glob("*"))


def test_a_job_that_a_real_slurm_preempts_is_queued_again(slurm: Path, tmp_path: Path) -> None:
    plugin, out = plugin_in(tmp_path), tmp_path / "runs"
    paced(tmp_path)
    preempted: list[str] = []

    class Preempt(Watcher):
        def updated(self, step: Step) -> None:
            if not preempted and step.step > 10:
                jobs = ["squeue", "--noheader", "--format", "%i"]
                preempted.extend(subprocess.check_output(jobs, text=True).split())
                # What Slurm does at a preemption: SIGTERM, then the signal that was asked for.
                for name in ("TERM", "USR2"):
                    subprocess.check_call(["scancel", "--signal", name, preempted[0]])
                for name in ("slow", "stop"):
                    (tmp_path / name).unlink()

    where = Where(out=out, plugin=plugin, checkpoint_seconds=1000)
    [run] = Slurm(where, [Preempt()])([small("test-paced", updates=40)])
    assert len(preempted) == 1 and run.finished, run.failure
    pids = (tmp_path / "steps.txt").read_text().split()
    assert len(pids) == 200 and len(set(pids)) == 2, "two processes made each update once"
    assert same_bits(run)


def test_an_interrupted_sweep_cancels_its_jobs(slurm: Path, tmp_path: Path) -> None:
    plugin, out, file = plugin_in(tmp_path), tmp_path / "runs", tmp_path / "sweep.toml"
    (tmp_path / "slow").touch()
    file.write_text('scenario = "split-digits"\nmethod = "test-paced"\nupdates = 40\nevery = 100\n')
    command = [sys.executable, "-m", "engram", "sweep", str(file), "--on", "slurm", "--out", str(out)]
    process = subprocess.Popen([*command, "--plugin", str(plugin)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while steps_made(tmp_path) < 10:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 143 and "interrupted: 0 of 1 runs are finished" in errors
    assert list(out.glob(f"*/{CHECKPOINT}")) and not list(out.glob(f"*/{RESULT}"))
    assert subprocess.check_output(["squeue", "--noheader"], text=True).strip() == ""
