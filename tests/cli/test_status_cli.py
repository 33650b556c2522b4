"""`engram status`: a folder of runs, asked from outside while others work on it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.command import Engram

from engram.core.folder import LEASE, PROGRESS
from engram.core.leases import lease
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.record.description import save_description
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.planned import note_planned
from engram.record.run import Run
from engram.results.status import folder_status


def planned(seed: int) -> Experiment:
    return experiment("split-digits", "finetune", updates=2, evaluation={"every": 100}, seed=seed)


@contextmanager
def folder_in_use(out: Path) -> Iterator[list[Experiment]]:
    """Five runs: one is done, one failed, one under way here, one was killed, one has not begun."""
    runs = [planned(seed) for seed in range(5)]
    Serial(Where(out=out))(runs[:1])
    note_planned(out, runs)
    crash = Failure(FailureKind.CRASHED, "no luck")
    Run(planned=runs[1], failure=crash).save(out / runs[1].id)
    for begun in runs[2:4]:
        save_description(out / begun.id, begun.as_json())
    (out / runs[3].id / "checkpoint.pt").write_bytes(b"state")
    progress = {"step": 6, "steps": 10, "learning": 2, "first": 1, "seconds": 50.0}
    (out / runs[2].id / PROGRESS).write_text(json.dumps(progress))
    with lease(out / runs[2].id):
        yield runs


def test_it_says_what_is_done_under_way_failed_and_left(tmp_path: Path, engram: Engram) -> None:
    with folder_in_use(tmp_path) as runs:
        printed = engram("status", tmp_path)
        state = engram("status", tmp_path, "--json").json
    assert printed.returncode == 0, printed.stderr
    lines = printed.stdout.splitlines()
    assert lines[0] == f"5 runs in {tmp_path}: 1 done, 1 under way, 1 failed, 2 left"
    label = f"{runs[2].label}, seed 2"
    assert f"{label}: process {os.getpid()} on" in printed.stdout
    assert "6 of 10 updates (60%), task 3, 40 s left" in printed.stdout
    assert f"{runs[1].label}, seed 1: no luck" in printed.stdout
    assert "resumes from its checkpoint" in printed.stdout
    assert state["counts"] == {"total": 5, "done": 1, "running": 1, "failed": 1, "left": 2}
    [active] = state["running"]
    assert (active["process"], active["step"], active["seconds_left"]) == (os.getpid(), 6, 40.0)
    assert [run["id"] for run in state["waiting"]] == [runs[4].id]
    assert state["unfinished"][0]["checkpoint"] is True
    assert state["seconds_left"] >= 40.0


def test_a_process_on_another_machine_is_named_and_one_that_is_gone_is_not(
    tmp_path: Path, engram: Engram
) -> None:
    with folder_in_use(tmp_path) as runs:
        content = json.loads((tmp_path / runs[2].id / LEASE).read_text())
    elsewhere = {**content, "host": "node7", "machine": "0123456789", "process": 4242}
    (tmp_path / runs[2].id / LEASE).write_text(json.dumps(elsewhere))
    [active] = engram("status", tmp_path, "--json").json["running"]
    assert (active["host"], active["process"]) == ("node7", 4242)
    assert "process 4242 on node7 since" in engram("status", tmp_path).stdout
    # Not renewed for longer than a lease lasts.
    os.utime(tmp_path / runs[2].id / LEASE, (1.0, 1.0))
    state = engram("status", tmp_path, "--json").json
    assert state["running"] == [] and state["counts"]["left"] == 3
    assert "no process is working on it" in engram("status", tmp_path).stdout


def test_when_all_is_done_nothing_is_left(tmp_path: Path, engram: Engram) -> None:
    Serial(Where(out=tmp_path))([planned(0), planned(1)])
    printed = engram("status", tmp_path).stdout.strip()
    assert printed == f"2 runs in {tmp_path}: 2 done, 0 under way, 0 failed, 0 left"
    assert not list(tmp_path.glob(".planned*")) and not list(tmp_path.glob(f"*/{PROGRESS}"))


def test_a_folder_that_does_not_exist_is_one_line(tmp_path: Path, engram: Engram) -> None:
    done = engram("status", tmp_path / "nowhere")
    assert done.returncode == 2 and "no such folder" in done.stderr and done.stderr.count("\n") == 1


def test_torch_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from engram.cli import main\n"
        f"sys.argv = ['engram', 'status', {str(tmp_path / 'runs')!r}]\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "0 runs" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_sweep_can_be_asked_from_another_terminal(tmp_path: Path, engram: Engram) -> None:
    out, file = tmp_path / "runs", tmp_path / "sweep.toml"
    plugin = tmp_path / "steady.py"
    plugin.write_text(
        "import time, engram\n"
        "@engram.method('test-steady')\n"
        "class Steady(engram.Learner):\n"
        "    'Takes its time.'\n"
        "    def after_step(self, batch):\n"
        "        time.sleep(0.05)\n"
    )
    file.write_text('scenario = "split-digits"\nmethod = "test-steady"\nupdates = 40\nevery = 100\nseeds = 3')
    command = [sys.executable, "-m", "engram", "sweep", str(file), "--jobs", "1", "--out", str(out)]
    process = subprocess.Popen([*command, "--plugin", str(plugin)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not list(out.glob(f"*/{PROGRESS}")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        state = engram("status", out, "--json").json
        assert state["counts"]["total"] == 3 and state["counts"]["left"] == 2
        [active] = state["running"]
        assert active["steps"] == 200 and active["step"] >= 1 and active["process"] != process.pid
        assert state["seconds_left"] > active["seconds_left"] > 0
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    assert process.returncode == 143
    state = engram("status", out, "--json").json
    assert state["counts"] == {"total": 3, "done": 0, "running": 0, "failed": 0, "left": 3}
    assert state["unfinished"][0]["checkpoint"] is True


def test_a_damaged_run_counts_as_failed(tmp_path: Path, engram: Engram) -> None:
    one = replace(planned(0), seed=9)
    (tmp_path / one.id).mkdir()
    (tmp_path / one.id / "experiment.json").write_text("{")
    state = engram("status", tmp_path, "--json").json
    assert state["counts"]["failed"] == 1 and state["failed"][0]["kind"] == "damaged"


@pytest.mark.parametrize("name", ["result.json", "experiment.json", "trace.parquet"])
@pytest.mark.parametrize("content", [None, b"", b"null", b"[1]", b"{}", b"\x93\x00\xff"])
def test_finished_runs_that_are_damaged_count_as_failed(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    """As `engram compare` judges them; the content of tables is for `engram verify runs`."""
    Serial(Where(out=tmp_path))([planned(0), planned(1)])
    file = tmp_path / planned(0).id / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    state = folder_status(tmp_path)
    if name == "result.json" and content is None:
        assert (state.done, len(state.unfinished)) == (1, 1)
    elif name == "trace.parquet" and content is not None:
        assert state.done == 2
    else:
        assert (state.done, [run.status for run in state.failed]) == (1, ["damaged"])
    assert state.total == 2
