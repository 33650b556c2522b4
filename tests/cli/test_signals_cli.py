"""Ctrl-C, SIGTERM and SIGHUP: a command stops with a checkpoint, one line and the right exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Engram

import engram as engram_package
from engram.core.folder import CHECKPOINT, FAILURE, LEASE, RESULT
from engram.core.plugins import load_plugin
from engram.core.stopping import Stopped, StopSignals
from engram.engine.checkpoint import read_checkpoint
from engram.engine.loop import run
from engram.engine.observers import Step, Watcher
from engram.record.run import Run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")

PLUGIN = """
import time
from pathlib import Path
import engram

HERE = Path(__file__).parent

@engram.method("test-unhurried")
class Unhurried(engram.Learner):
    "Takes its time, and says how far it is."
    def after_step(self, batch):
        if not (HERE / "calm").exists():
            (HERE / "step").write_text(f"{self.task.index} {self.step_in_task}")
            time.sleep(0.03)

@engram.method("test-stuck")
class Stuck(engram.Learner):
    "Does not complete an update."
    def after_step(self, batch):
        if self.task.index == 1:
            (HERE / "step").write_text("stuck")
            while True:
                time.sleep(0.01)

@engram.method("test-deaf")
class Deaf(engram.Learner):
    "Computes for ever, without any chance to interrupt it."
    def after_step(self, batch):
        import re
        re.match("(a+)+$", "a" * 60 + "b")
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    place = tmp_path / "unhurried.py"
    place.write_text(PLUGIN)
    load_plugin(place)
    return place


def command(plugin: Path, *, method: str = "test-unhurried", seeds: int = 1) -> list[str]:
    return [
        *(sys.executable, "-m", "engram", "run", "split-digits", method, "--updates", "8", "--subset", "20"),
        *("--seeds", str(seeds), "--plugin", str(plugin), "--out", str(plugin.parent / "runs"), "--json"),
    ]


def as_in_a_terminal() -> None:
    """What is started in the background ignores Ctrl-C; these tests may be."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def started(
    arguments: list[str], *, own_session: bool = False, before: Callable[[], object] = as_in_a_terminal
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=own_session,
        preexec_fn=before,
    )


def until(happened: Callable[[], bool], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def reached(plugin: Path, task: int) -> Callable[[], bool]:
    """Whether a run is in the middle of a task."""
    file = plugin.parent / "step"
    return lambda: file.exists() and file.read_text() >= f"{task} 3"


def check_resumed(plugin: Path, arguments: list[str]) -> None:
    """The same command again finishes all runs, to the bits of an uninterrupted one."""
    (plugin.parent / "calm").touch()
    again = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
    assert again.returncode == 0, again.stderr
    for folder in (plugin.parent / "runs").iterdir():
        finished = Run.load(folder)
        assert finished.trace == run(finished.experiment).trace
        assert {path.name for path in folder.iterdir()} == {
            *("experiment.json", "result.json", "samples.parquet", "trace.parquet"),
        }


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("task", [0, 2, 4])
def test_a_run_writes_a_checkpoint_before_it_stops(number: signal.Signals, task: int, plugin: Path) -> None:
    process = started(command(plugin))
    until(reached(plugin, task))
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    [folder] = (plugin.parent / "runs").iterdir()
    assert "Traceback" not in errors
    last = errors.strip().splitlines()[-1]
    assert last == (
        f"error: interrupted: 0 of 1 runs are finished and kept in {folder.parent}; "
        "run the same command again to resume"
    )
    assert read_checkpoint(folder / CHECKPOINT)["place"]["step"] > 8 * task
    assert json.loads((folder / FAILURE).read_text())["kind"] == "interrupted"
    assert Run.load(folder).status == "unfinished" and not (folder / LEASE).exists()
    check_resumed(plugin, command(plugin))


@pytest.mark.slow
def test_a_second_signal_does_not_wait(plugin: Path) -> None:
    arguments = command(plugin, method="test-stuck")
    process = started(arguments)
    until(reached(plugin, 9))
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in errors
    assert "the run under way has no checkpoint, and starts from the beginning" in errors


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("whom", ["parent", "all"])
def test_a_sweep_stops_as_after_ctrl_c(number: signal.Signals, whom: str, plugin: Path) -> None:
    file, out = plugin.parent / "sweep.toml", plugin.parent / "runs"
    file.write_text(
        'scenario = "split-digits"\nmethod = "test-unhurried"\nupdates = 8\nsubset = 20\nseeds = 2'
    )
    arguments = [
        *(sys.executable, "-m", "engram", "sweep", str(file), "--jobs", "1", "--plugin", str(plugin)),
        *("--out", str(out), "--json"),
    ]
    process = started(arguments, own_session=True)
    until(reached(plugin, 1))
    if whom == "all":
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert "Traceback" not in errors
    # Who still makes a run is waited for, so it has its checkpoint by now.
    last = errors.strip().splitlines()[-1]
    assert last == (
        f"error: interrupted: 0 of 2 runs are finished and kept in {out}; "
        "run the same command again to resume"
    )
    [folder] = [path for path in out.iterdir() if path.is_dir()]
    assert read_checkpoint(folder / CHECKPOINT)["place"]["step"] > 8
    check_resumed(plugin, arguments)


@pytest.mark.slow
def test_a_signal_that_is_ignored_stays_ignored(plugin: Path) -> None:
    """As `nohup` does."""
    process = started(command(plugin), before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    until(reached(plugin, 1))
    process.send_signal(signal.SIGHUP)
    (plugin.parent / "calm").touch()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


AT_IMPORT = """
import os, signal, sys

module, number, out = sys.argv[1:]

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), getattr(signal, number))

sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["run", "split-digits", "er", "--updates", "2", "--out", out]
from engram.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("module", ["typer", "engram.cli.run", "torch", "torch.nn", "engram.engine.where"])
def test_while_libraries_are_imported_there_is_no_traceback(
    number: signal.Signals, module: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_IMPORT, module, number.name, str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=as_in_a_terminal,
    )
    assert done.returncode == 128 + number, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert lines == ["error: interrupted: finished runs are kept; run the same command again to resume"]
    assert "Traceback" not in done.stderr and not list(tmp_path.glob("runs/*"))


# Timeouts -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["test-stuck", "test-deaf"])
def test_a_method_that_hangs_is_ended(method: str, plugin: Path) -> None:
    process = started([*command(plugin, method=method), "--timeout", "3"])
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2, errors
    last = errors.strip().splitlines()[-1]
    assert last.startswith("error: ") and "was not completed in 3 s (--timeout)" in last
    [folder] = [path for path in (plugin.parent / "runs").iterdir() if path.is_dir()]
    failure = json.loads((folder / FAILURE).read_text())
    assert failure["kind"] == "timed out" and not (folder / LEASE).exists()


@pytest.mark.slow
def test_a_run_in_a_process_of_its_own_has_the_same_bits(plugin: Path, engram: Engram) -> None:
    out = plugin.parent / "runs"
    options = ("run", "split-digits", "er", "--updates", 4, "--subset", 20, "--out", out, "--json")
    there = engram(*options, "--timeout", 60).json
    [folder] = [path for path in out.iterdir() if path.is_dir()]
    trace = Run.load(folder).trace
    (folder / RESULT).unlink()
    here = engram(*options).json
    assert here["runs"][0]["metrics"] == there["runs"][0]["metrics"] and Run.load(folder).trace == trace


@pytest.mark.parametrize("option", ["--timeout", "--checkpoint-every"])
@pytest.mark.parametrize(
    "verb",
    [("run", "split-digits", "er"), ("protocol", "grid", "split-digits", "er"), ("reproduce", "002-table2")],
)
def test_durations_are_checked(option: str, verb: tuple[str, ...], engram: Engram) -> None:
    done = engram(*verb, option, "0")
    assert done.returncode == 2
    assert done.stderr.strip() == f"error: {option.removeprefix('--')} must be above 0 seconds, got 0"


# In this process --------------------------------------------------------------------------------------


def test_signals_are_noted_first_and_raised_then() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals(wait=True) as signals:
        signal.raise_signal(signal.SIGTERM)
        assert signals.number == signal.SIGTERM and not signals.urgent
        with pytest.raises(Stopped) as stopped:
            signals.check()
        assert stopped.value.code == 143
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
        assert signals.urgent
    assert signal.getsignal(signal.SIGTERM) == before


def test_somebodys_own_handler_is_left_alone() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        with StopSignals(wait=True) as signals:
            signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGTERM] and signals.number is None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_from_python_sigterm_ends_with_a_checkpoint_and_its_exit_code(tmp_path: Path) -> None:
    class Told(Watcher):
        def updated(self, step: Step) -> None:
            if step.step == 7:
                signal.raise_signal(signal.SIGTERM)

    options: dict[str, Any] = {"updates": 4, "evaluation": {"every": 100}, "out": tmp_path}
    with pytest.raises(SystemExit) as ended:
        engram_package.run("split-digits", "er", observers=[Told()], **options)
    assert ended.value.code == 143
    [folder] = tmp_path.iterdir()
    assert read_checkpoint(folder / CHECKPOINT)["place"]["step"] == 7
    assert engram_package.run("split-digits", "er", **options).updates == 20
