"""Real processes that crash, are killed and run out of memory; and the memory that they share."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe, forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engram.core.errors import InputError
from engram.core.files import write_json
from engram.core.folder import CHECKPOINT, FAILURE, LEASE, RESULT
from engram.core.plugins import load_plugin
from engram.core.stopping import Stopped
from engram.datasets import InMemory, arrays, load
from engram.engine.check import complete
from engram.engine.execute import record_failure
from engram.engine.loop import run
from engram.engine.observers import Observer, Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors import processes, worker
from engram.executors.forkserver import prepare_workers, worker_context
from engram.executors.processes import Processes
from engram.executors.queue import ExperimentQueue, failed_since, failure_stamp
from engram.executors.shared_data import SharedImages, share
from engram.executors.worker import Setup
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run
from engram.scenarios import split

PLUGIN = """
import os, time
from pathlib import Path
import numpy as np
import engram

HERE = Path(__file__).parent

def wild():
    return not (HERE / "calm").exists()

@engram.method("test-crash")
class Crash(engram.Learner):
    "Fails in the middle."
    def after_step(self, batch):
        if wild() and self.step_in_task == 5:
            raise KeyError("gone")

@engram.method("test-hungry")
class Hungry(engram.Learner):
    "Wants more memory than it may have."
    def after_step(self, batch):
        if wild():
            import resource
            # With less than what is mapped already, a library may end the process before it says why.
            with open("/proc/self/statm") as file:
                mapped = int(file.read().split()[0]) * resource.getpagesize()
            limit = mapped + 2**28
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
            self.kept = np.ones(2**33, np.uint8)

@engram.method("test-killed")
class Killed(engram.Learner):
    "Is killed, as by a system that lacks memory."
    def after_step(self, batch):
        os.kill(os.getpid(), 9)

@engram.method("test-long")
class Long(engram.Learner):
    "One of its updates takes its time."
    def after_step(self, batch):
        if self.step_in_task == 2:
            time.sleep(3)

@engram.method("test-slow")
class Slow(engram.Learner):
    "Takes its time, and says who it is."
    def setup(self):
        (HERE / "pid").write_text(str(os.getpid()))
    def after_step(self, batch):
        if wild():
            time.sleep(0.05)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    place = tmp_path / "wild.py"
    place.write_text(PLUGIN)
    load_plugin(place)
    return place


def small(method: str, **changes: object) -> Experiment:
    planned = experiment("split-digits", method, updates=8, evaluation={"subset": 20})
    return replace(planned, **changes)  # type: ignore[arg-type]


def on_own_data() -> Experiment:
    """An experiment on data that only this process knows."""
    y = np.arange(40) % 4
    noise = np.random.default_rng(0).integers(0, 50, (40, 1, 4, 4))
    x = (noise + 50 * y[:, None, None, None]).astype(np.uint8)
    scenario = split(arrays("mine", x, y, x, y), setting="class")
    return complete(Experiment(scenario, "finetune", batch_size=4, epochs=2))


def same_bits(result: Run) -> bool:
    """Whether a run is, bit for bit, what a run in this process gives."""
    assert result.folder is not None
    return Run.load(result.folder).trace == run(result.experiment).trace


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs limits and signals as Linux has them")
def test_failed_runs_are_returned_others_continue_and_the_next_call_runs_missing_ones(
    plugin: Path, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    wild = experiment("split-digits", "finetune", updates=8, lr=1e9)
    good = [small("finetune"), small("er", seed=1), on_own_data()]
    bad = {
        "diverged": wild,
        "crashed": small("test-crash"),
        "out of memory": small("test-hungry"),
        "killed": small("test-slow"),
    }
    kinds = {name: "crashed" if name == "killed" else name for name in bad}
    experiments = [*good, good[0], *bad.values()]

    class Kill(Watcher):
        def updated(self, step: Step) -> None:
            if step.run.method == "test-slow" and step.step > 0.1 * step.steps:
                os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    def call(jobs: int, *observers: Observer) -> dict[str, Run]:
        where = Where(out=out, jobs=jobs, plugin=plugin, checkpoint_seconds=0.1)
        return {result.id: result for result in Processes(where, observers).run(experiments)}

    first = call(2, Kill())
    assert len(first) == 7
    for planned in good:
        assert first[planned.id].status == "done" and same_bits(first[planned.id])
    reasons = {}
    for name, planned in bad.items():
        failed = first[planned.id]
        assert failed.status == "failed" and failed.failure is not None
        assert failed.failure.kind == kinds[name]
        kept = json.loads((out / planned.id / FAILURE).read_text())
        assert kept["id"] == planned.id and kept["kind"] == kinds[name]
        assert kept["reason"] == failed.failure.reason and "\n" not in kept["reason"]
        reasons[name] = kept
    assert reasons["crashed"]["reason"] == "KeyError: 'gone'"
    assert "after_step" in reasons["crashed"]["details"]
    assert "out of memory" in reasons["out of memory"]["reason"]
    assert "SIGKILL" in reasons["killed"]["reason"]
    assert "try a learning rate smaller" in reasons["diverged"]["reason"]
    assert (out / bad["killed"].id / CHECKPOINT).exists()

    (tmp_path / "calm").touch()
    stamps = {planned.id: (out / planned.id / RESULT).stat().st_mtime_ns for planned in good}
    second = call(1)
    assert {result.id for result in second.values() if result.status == "failed"} == {wild.id}
    for planned in good:
        assert (out / planned.id / RESULT).stat().st_mtime_ns == stamps[planned.id]
    for name in ("crashed", "out of memory", "killed"):
        result = second[bad[name].id]
        assert result.status == "done" and result.folder is not None
        assert not (result.folder / FAILURE).exists() and not (result.folder / CHECKPOINT).exists()
    assert same_bits(second[bad["killed"].id]), "a run that resumes from a checkpoint has the same bits"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_worker_that_dies_at_the_second_attempt_leaves_its_death_as_the_failure(
    plugin: Path, tmp_path: Path
) -> None:
    """The failure of the attempt before, which is gone by then, is not taken for that of this one."""
    planned = small("test-killed")
    write_json(tmp_path / "runs" / planned.id / FAILURE, {"kind": "interrupted", "reason": "Ctrl-C"})
    [run] = Processes(Where(out=tmp_path / "runs", jobs=1, plugin=plugin))([planned])
    assert run.status == "failed" and run.failure is not None and "SIGKILL" in run.failure.reason
    assert json.loads((tmp_path / "runs" / planned.id / FAILURE).read_text())["kind"] == "crashed"


def test_only_a_failure_that_was_written_since_then_is_that_of_this_attempt(tmp_path: Path) -> None:
    planned = small("finetune")
    file = tmp_path / planned.id / FAILURE
    write_json(file, {"kind": "crashed", "reason": "before"})
    before = failure_stamp(file.parent)
    assert not failed_since(Run.find(planned, tmp_path), before)
    file.unlink()
    assert not failed_since(Run.find(planned, tmp_path), before)
    write_json(file, {"kind": "crashed", "reason": "now"})
    os.utime(file, (0, 0))
    assert failed_since(Run.find(planned, tmp_path), before)


def test_a_failure_that_cannot_be_saved_is_told(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(run: Run, folder: Path | None = None) -> Run:
        raise InputError("cannot write failure.json: No space left on device")

    monkeypatch.setattr(Run, "save", full)
    there, here = Pipe()
    with pytest.warns(UserWarning, match="the failure is not recorded: .* No space left"):
        ended = worker._run(small("test-crash"), here, Where(out=tmp_path, plugin=plugin))
    there.close()
    assert ended.failure is not None and ended.failure.reason == "KeyError: 'gone'"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_workers_of_a_killed_process_save_checkpoints_and_end(plugin: Path, tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from engram.core.plugins import load_plugin
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.processes import Processes
from engram.executors.queue import failed_since, failure_stamp

if __name__ == "__main__":
    plugin = Path({str(plugin)!r})
    load_plugin(plugin)
    planned = experiment("split-digits", "test-slow", updates=20)
    Processes(Where(out=Path({str(tmp_path / "runs")!r}), jobs=1, plugin=plugin))([planned])
"""
    script = tmp_path / "script.py"
    script.write_text(program)
    (tmp_path / "data").mkdir()
    process = subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "TMPDIR": str(tmp_path / "data")}
    )
    _until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    worker = int((tmp_path / "pid").read_text())
    assert worker != process.pid
    process.kill()
    process.wait()
    _until(lambda: not _alive(worker) or _is_zombie(worker))
    assert len(list((tmp_path / "runs").glob(f"*/{CHECKPOINT}"))) == 1
    [folder] = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    assert Run.load(folder).status == "unfinished"
    assert list((tmp_path / "data").glob("engram-data-*")) == [], (
        "the shared samples are cleared away as well"
    )


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended, even if its exit code was not read yet."""
    return (
        sys.platform == "linux" and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    )


def _until(happened: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.slow
def test_who_interrupts_a_long_update_gets_its_checkpoint(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(processes, "_SILENT_SECONDS", 0.5)

    class Stop(Watcher):
        def updated(self, step: Step) -> None:
            raise KeyboardInterrupt

    planned = small("test-long")
    where = Where(out=tmp_path / "runs", jobs=1, plugin=plugin, checkpoint_seconds=3600)
    waits = pytest.warns(UserWarning, match="waiting for 1 run to complete an update")
    with waits, pytest.raises(KeyboardInterrupt):
        Processes(where, [Stop()])([planned])
    assert Run.find(planned, where.folder).status == "unfinished"
    assert (where.folder / planned.id / CHECKPOINT).is_file()


class Process:
    """What looks like a process, and is a thread; `kill` is only noted."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.sentinel, self.alive = Pipe()
        self.killed = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(work,))
        self.thread.start()

    def run(self, work: Callable[[], None]) -> None:
        work()
        self.alive.close()

    def is_alive(self) -> bool:
        return self.thread.is_alive() and not self.killed.is_set()

    def kill(self) -> None:
        self.killed.set()

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            self.thread.join(timeout)


def busy_worker(work: Callable[[Any], None]) -> Any:
    """A worker that has a run; its process is given its end of the pipe."""
    made = object.__new__(processes._Worker)
    made.pipe, there = Pipe()
    made.running = Run()
    made.process = Process(lambda: work(there))  # type: ignore[assignment]
    return made


def test_busy_workers_are_waited_for_and_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that still tells more than fits into its pipe."""
    monkeypatch.setattr(processes, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(processes, "_SILENT_SECONDS", 0.01)

    def work(pipe: Any) -> None:
        assert pipe.recv() is None
        time.sleep(0.1)
        for _ in range(4):
            pipe.send(bytes(2**20))
        pipe.close()
        time.sleep(0.1)

    team = [busy_worker(work), busy_worker(work)]
    told = "waiting for 2 runs to complete an update and write a checkpoint; Ctrl-C again ends them at once"
    with pytest.warns(UserWarning, match=told):
        processes._dismiss(team, math.inf)
    assert not any(worker.process.killed.is_set() for worker in team)


@pytest.mark.parametrize("errors", [False, True])
def test_patience_ends(errors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(processes, "_SILENT_SECONDS", 0.01)
    end = threading.Event()
    stuck = busy_worker(lambda _: [end.wait(60)])  # type: ignore[arg-type]
    with warnings.catch_warnings(record=not errors):
        warnings.simplefilter("error" if errors else "always")
        processes._dismiss([stuck], 0.05)
    assert stuck.process.killed.is_set()
    end.set()


@pytest.mark.parametrize(
    ("error", "timeout", "patience"),
    [
        (Stopped(), None, math.inf),
        (GeneratorExit(), None, math.inf),
        (KeyboardInterrupt(), 90.0, 90.0),
        (InputError("no"), None, 60.0),
        (InputError("no"), 3.0, 3.0),
    ],
)
def test_who_asks_to_stop_waits_but_an_error_does_not_for_ever(
    error: BaseException,
    timeout: float | None,
    patience: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[float] = []
    monkeypatch.setattr(processes, "_dismiss", lambda team, patience: seen.append(patience))
    setup = Setup((), tmp_path, Where(out=tmp_path, timeout=timeout))
    with pytest.raises(type(error)), processes._Team(setup, ExperimentQueue((), tmp_path), ()):
        raise error
    assert seen == [patience]


@pytest.mark.slow
def test_a_script_without_a_guard_raises_a_clear_error(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.processes import Processes
from engram.executors.queue import failed_since, failure_stamp

Processes(Where(out=Path({str(tmp_path / "runs")!r}), jobs=1))([experiment("split-digits", "er")])
"""
    script = tmp_path / "script.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert 'under `if __name__ == "__main__":`' in done.stderr.strip().splitlines()[-1]


def test_nothing_starts_if_an_input_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="jobs must be at least 1, got 0"):
        Where(out=tmp_path, jobs=0)
    with pytest.raises(InputError, match="nowhere is not a folder"):
        Processes(Where(out=tmp_path, data=tmp_path / "nowhere"))([experiment("split-kmnist", "er")])
    assert list(tmp_path.iterdir()) == []


# Memory ---------------------------------------------------------------------------------------------

READER = """
import sys
from pathlib import Path
from engram.executors.shared_data import SharedImages

images = SharedImages(Path(sys.argv[1]))
print(int(images.pixels.sum()), flush=True)
sys.stdin.readline()
kilobytes = dict.fromkeys(("Rss", "Pss", "Private_Dirty"), 0)
inside = False
for line in Path("/proc/self/smaps").read_text().splitlines():
    first, *rest = line.split()
    if not first.endswith(":"):
        inside = line.endswith("pixels.npy")
    elif inside and first[:-1] in kilobytes:
        kilobytes[first[:-1]] += int(rest[0])
print(*kilobytes.values(), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the share of memory is read from /proc")
@pytest.mark.slow
def test_processes_share_one_copy_of_the_data(tmp_path: Path) -> None:
    """Two processes that have read everything account for half of it each, and have no private copy."""
    pixels = torch.randint(0, 256, (10_000, 1, 32, 32), dtype=torch.uint8)
    kept = InMemory(pixels.clone(), torch.zeros(10_000))
    shared = SharedImages.of(kept, tmp_path / "train")
    assert kept.pixels.data_ptr() == shared.pixels.data_ptr(), "this process holds no second copy either"
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(shared.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for reader in readers:
        assert reader.stdout is not None
        assert int(reader.stdout.readline()) == int(pixels.sum())
    sizes = []
    for reader in readers:
        assert reader.stdin is not None and reader.stdout is not None
        reader.stdin.write("\n")
        reader.stdin.flush()
        sizes.append([int(size) for size in reader.stdout.readline().split()])
    for reader in readers:
        reader.communicate()
    whole = pixels.numel() / 1024
    for resident, proportional, private in sizes:
        assert resident >= 0.99 * whole and private == 0
        assert proportional <= 0.55 * whole


def test_writing_to_shared_samples_stays_private(tmp_path: Path) -> None:
    images = InMemory(torch.zeros(8, 1, 2, 2, dtype=torch.uint8), torch.arange(8))
    one, other = SharedImages.of(images, tmp_path / "x"), SharedImages(tmp_path / "x")
    one.pixels.fill_(7)
    assert int(other.pixels.sum()) == 0 and int(SharedImages(tmp_path / "x").pixels.sum()) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="files that are mapped cannot be removed there")
def test_data_stay_readable_after_they_were_shared(tmp_path: Path) -> None:
    before = load("digits").train
    assert isinstance(before, InMemory)
    pixels = before.pixels.clone()
    for number in range(2):
        ((_, digits),) = share(["digits"], tmp_path / str(number))
        assert isinstance(digits.train, SharedImages) and torch.equal(digits.train.pixels, pixels)
        shutil.rmtree(tmp_path / str(number))
    after = load("digits").train
    assert isinstance(after, InMemory) and torch.equal(after.pixels, pixels)


def test_a_long_folder_for_temporary_files_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a socket is limited to about a hundred bytes."""
    assert worker_context().get_start_method() == "forkserver"
    monkeypatch.setattr(tempfile, "tempdir", f"/tmp/{'long' * 30}")
    assert worker_context().get_start_method() == "spawn"


def test_a_failure_is_recorded_without_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory is used up, a thread may end before it begins, and who starts it waits forever."""

    def start(thread: threading.Thread) -> None:
        raise AssertionError(f"{thread.name} is started")

    planned = small("finetune")
    found = Run.find(planned, tmp_path)
    monkeypatch.setattr(threading.Thread, "start", start)
    failed = record_failure(found, Failure(FailureKind.OUT_OF_MEMORY, "out of memory"))
    assert failed.folder == tmp_path / planned.id
    assert json.loads((failed.folder / FAILURE).read_text())["kind"] == "out of memory"
    assert not (failed.folder / LEASE).exists()


@pytest.mark.skipif(worker_context().get_start_method() != "forkserver", reason="workers are not forked")
def test_another_process_forks_workers_when_the_first_is_killed(tmp_path: Path) -> None:
    prepare_workers()
    number = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    # It takes the request for a worker, and is killed before it answers.
    os.kill(number, signal.SIGSTOP)
    killer = threading.Timer(1.0, os.kill, (number, signal.SIGKILL))
    killer.start()
    [done] = Processes(Where(out=tmp_path, jobs=1))([experiment("split-digits", "er", updates=2)])
    killer.join()
    assert done.finished
