"""Experiments in local processes: one thread each, data held once, and a crash is a row, not the end."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from engram.core.dataset_info import DATASETS, DatasetInfo
from engram.core.errors import InputError
from engram.core.files import make_folder, read_json, remove_file, write_json
from engram.core.folder import RESULT
from engram.core.plugins import load_plugin
from engram.datasets import Dataset, InMemory, load
from engram.datasets.loading import OWN
from engram.datasets.storage import Images
from engram.engine.checkpoint import CHECKPOINT, check_card, execute, save_checkpoint
from engram.engine.experiment import Experiment
from engram.engine.loop import Progress
from engram.engine.threads import WAITING

FAILURE = "failure.json"

_SPAWN = get_context("spawn")
_NEWS_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    **WAITING,
}
"""What a worker's libraries read when they are loaded, which is too early for the worker to say it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run did not come to its end.

    Attributes:
        kind: `input` (it cannot be run as asked, or its loss became no number), `memory` (there was not
            enough), `killed` (its process got a signal), or `crashed` (anything else).
        reason: One line.
        details: The traceback, where there is one.
    """

    kind: Literal["input", "memory", "killed", "crashed"]
    reason: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """An experiment, and what has become of it.

    Attributes:
        experiment: What was asked for.
        folder: Where its run lies or would lie.
        result: What `result.json` says; None where the run is not done.
        failure: Why it failed; None where it did not.
    """

    experiment: Experiment
    folder: Path
    result: dict[str, Any] | None = None
    failure: Failure | None = None

    @property
    def status(self) -> Literal["done", "failed", "missing"]:
        """A failed run is one that will be tried again, as a missing one is."""
        if self.result is not None:
            return "done"
        return "missing" if self.failure is None else "failed"


def find_row(experiment: Experiment, out: Path) -> Row:
    """What has become of an experiment, as its folder in `out` tells.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> find_row(experiment("split-digits", "er"), Path("nowhere")).status
        'missing'
    """
    folder = out / experiment.id
    if (folder / RESULT).is_file():
        return Row(experiment, folder, result=read_json(folder / RESULT))
    if (folder / FAILURE).is_file():
        said = read_json(folder / FAILURE)
        return Row(experiment, folder, failure=Failure(said["kind"], said["reason"], said["details"]))
    return Row(experiment, folder)


def run_in_processes(
    experiments: Sequence[Experiment],
    out: Path,
    *,
    jobs: int | None = None,
    data: Path | None = None,
    device: str = "cpu",
    plugin: Path | None = None,
    strict: bool = False,
    checkpoint_seconds: float = 30.0,
    follow: Callable[[Experiment, float], None] | None = None,
) -> Generator[Row, None, None]:
    """Run experiments side by side, each into its folder of `out`, and yield their rows as they end.

    What is done already comes first and is not run again. A run that raises, is killed or runs out of memory
    yields a row with its failure, which `failure.json` in its folder keeps; the others go on, and the next
    call tries it again. Where the caller stops (Ctrl-C, `close`), every run under way writes a checkpoint and
    ends; the next call goes on from there. Each worker computes with one thread. Data sets are loaded here,
    once, and all workers map the same memory.

    Workers are new interpreters: a script that calls this does so under `if __name__ == "__main__":`, and
    registers methods of its own at its top level, or in a plugin.

    Args:
        experiments: What to run; what is given twice is run once.
        out: Where runs are kept.
        jobs: How many run at a time; None for one a core.
        data: Where data sets are looked for first.
        device: Where to compute.
        plugin: A Python file that registers methods, for every worker to load.
        strict: Whether to stop a method that reads what it should not; where a run that is done already did
            so, nothing is started.
        checkpoint_seconds: How much work a kill may cost.
        follow: Called a few times a second with an experiment under way, and which share of it is done.

    Raises:
        InputError: `jobs` or `out` cannot be used, a data set is nowhere, or a run that is done is not up to
            `strict`; then nothing was started.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs={jobs} cannot be used: give 1 or more")
    make_folder(out)
    rows = [find_row(experiment, out) for experiment in {each.id: each for each in experiments}.values()]
    waiting = deque(row.experiment for row in rows if row.status != "done")
    if strict:
        for row in rows:
            if row.result is not None:
                check_card(row.result, row.experiment, row.folder)
    yield from (row for row in rows if row.status == "done")
    used = {task.source.dataset for planned in waiting for task in planned.scenario.tasks}
    names = sorted(used | {planned.evaluation.upstream for planned in waiting} - {""})
    team: list[_Worker] = []
    with tempfile.TemporaryDirectory(prefix="engram-data-", ignore_cleanup_errors=True) as place:
        datasets = share(names, Path(place), data=data)
        setup = _Setup(datasets, Path(place), out, data, device, plugin, strict, checkpoint_seconds)
        try:
            while waiting or any(worker.busy for worker in team):
                while waiting and len(team) < (jobs or cores()):
                    team.append(_Worker(setup))
                    team[-1].begin(waiting.popleft())
                for worker in _with_news(team):
                    yield from worker.news(follow)
                    if worker.ended:
                        team.remove(worker)
                        _dismiss([worker])
                    elif waiting and not worker.busy:
                        worker.begin(waiting.popleft())
        finally:
            _dismiss(team)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Data that all processes share ----------------------------------------------------------------------


class SharedImages(InMemory):
    """Samples in files that processes map into their memory, so that all of them together hold one copy.

    Whoever writes to them gets a copy of the pages written to; the others notice nothing. Pickled, they are a
    path.

    Example:
        >>> import pickle, tempfile
        >>> place = tempfile.TemporaryDirectory()
        >>> images = InMemory(torch.arange(4, dtype=torch.uint8).view(2, 1, 1, 2), torch.tensor([0, 1]))
        >>> shared = pickle.loads(pickle.dumps(SharedImages.of(images, Path(place.name) / "test")))
        >>> shared.pixels.flatten().tolist(), shared.labels.tolist()
        ([0, 1, 2, 3], [0, 1])
        >>> place.cleanup()
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(_mapped(folder / "pixels.npy"), _mapped(folder / "labels.npy"))

    @classmethod
    def of(cls, images: InMemory, folder: Path) -> SharedImages:
        """Write samples to a new folder and map them; `images` lets go of its own copy and holds the map."""
        folder.mkdir(parents=True)
        np.save(folder / "pixels.npy", images.pixels.numpy())
        np.save(folder / "labels.npy", images.labels.numpy())
        shared = cls(folder)
        images.pixels, images.labels = shared.pixels, shared.labels
        return shared

    def __reduce__(self) -> tuple[type[SharedImages], tuple[Path]]:
        return type(self), (self.folder,)


def _mapped(path: Path) -> torch.Tensor:
    # Mode "c" is copy on write: one worker cannot change what the others read.
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


Shared = tuple[tuple[DatasetInfo, Dataset], ...]


def share(names: Iterable[str], place: Path, *, data: Path | None = None) -> Shared:
    """Load data sets, and write their samples where other processes can map them instead of copying them.

    Those that are read from disk anyway are left out, because every process finds them there; except a
    user's own, which only this process knows.

    Args:
        names: The data sets.
        place: Where their samples are written; needed as long as processes are started.
        data: Where data sets are looked for first.

    Example:
        >>> with tempfile.TemporaryDirectory() as place:
        ...     ((info, digits),) = share(["digits"], Path(place))
        >>> info.name, type(digits.test).__name__
        ('digits', 'SharedImages')
    """
    found = []
    for name in names:
        loaded = load(name, data)
        parts: dict[str, Images] = {
            part: SharedImages.of(images, place / name / part) if isinstance(images, InMemory) else images
            for part, images in (("train", loaded.train), ("test", loaded.test))
        }
        if name in OWN or all(isinstance(images, InMemory) for images in parts.values()):
            found.append((DATASETS[name], replace(loaded, train=parts["train"], test=parts["test"])))
    return tuple(found)


# This side ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Setup:
    """What every worker is told when it starts."""

    datasets: Shared
    place: Path
    out: Path
    data: Path | None
    device: str
    plugin: Path | None
    strict: bool
    checkpoint_seconds: float


@dataclass(frozen=True, slots=True)
class _Ready:
    """A worker says that it has started."""


@dataclass(frozen=True, slots=True)
class _Share:
    """A worker says how much of its run is done."""

    done: float


@dataclass(frozen=True, slots=True)
class _Done:
    """A worker says that its run has a result."""


class _Worker:
    """A process that runs one experiment after the other, seen from here."""

    def __init__(self, setup: _Setup) -> None:
        self.out = setup.out
        self.running: Experiment | None = None
        self.started = False
        self.ended = False
        self.pipe, theirs = _SPAWN.Pipe()
        # Not a daemon, because daemons may not have the processes that read data from disk ahead.
        self.process = _SPAWN.Process(target=_work, args=(theirs, setup))
        with _surroundings():
            self.process.start()
        theirs.close()

    @property
    def busy(self) -> bool:
        """Whether a run is under way in it."""
        return self.running is not None

    def begin(self, experiment: Experiment) -> None:
        """Let it run an experiment."""
        self.running = experiment
        remove_file(self.out / experiment.id / FAILURE)
        self.tell(experiment)

    def tell(self, order: Experiment | None) -> None:
        """Send an experiment, or None to stop; one that is dead does not hear it, which shows later."""
        with suppress(OSError):
            self.pipe.send(order)

    def news(self, follow: Callable[[Experiment, float], None] | None) -> Iterator[Row]:
        """Take note of what it says; where that ends its run, the run's row."""
        assert self.running is not None
        match self._message():
            case _Ready():
                self.started = True
            case _Share(done):
                if follow is not None:
                    follow(self.running, done)
            case _Done():
                yield self._row(None)
            case Failure() as failure:
                self.ended = failure.kind != "input"
                yield self._row(failure)
            case None:
                self.ended = True
                self.process.join(_PATIENCE_SECONDS)
                code = self.process.exitcode or 0
                if not self.started and code > 0:
                    raise InputError(
                        f"a worker process did not start (it ended with code {code}): if this is a script, "
                        'start the sweep under `if __name__ == "__main__":`'
                    )
                yield self._row(_death(code))

    def _message(self) -> _Ready | _Share | _Done | Failure | None:
        """What it says next; None where it died."""
        try:
            # A process that it started may hold its end of the pipe open beyond its death.
            if not self.pipe.poll() and not self.process.is_alive() and not self.pipe.poll():
                return None
            said: _Ready | _Share | _Done | Failure = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return said

    def _row(self, failure: Failure | None) -> Row:
        """The row of the run that ended; what failed is written down."""
        assert self.running is not None
        ended, self.running = self.running, None
        folder = self.out / ended.id
        # A process that is killed after it wrote the result has done its work.
        if failure is not None and not (folder / RESULT).is_file():
            kept = {"id": ended.id, "label": ended.label, "kind": failure.kind, "reason": failure.reason}
            write_json(folder / FAILURE, {**kept, "details": failure.details})
        return find_row(ended, self.out)


def _with_news(team: Sequence[_Worker]) -> list[_Worker]:
    """Wait until busy workers have something to say, or died."""
    signs: dict[Any, _Worker] = {}
    for worker in team:
        if worker.busy:
            signs |= {worker.pipe: worker, worker.process.sentinel: worker}
    return list(dict.fromkeys(signs[sign] for sign in wait(list(signs))))


def _dismiss(team: Sequence[_Worker]) -> None:
    """Let all workers write their checkpoints and end; those that do not are killed."""
    for worker in team:
        worker.tell(None)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    try:
        for worker in team:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for worker in team:
            if worker.process.is_alive():
                worker.process.kill()
            worker.process.join()
            worker.pipe.close()


def _death(code: int) -> Failure:
    """What the exit code of a process that died without a word says.

    Example:
        >>> _death(-9).reason
        'its process was killed by SIGKILL, as the system does when memory runs out'
    """
    if code < 0:
        name = signal.Signals(-code).name
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return Failure("killed", f"its process was killed by {name}{hint}")
    return Failure("crashed", f"its process ended by itself with code {code}")


@contextmanager
def _surroundings() -> Iterator[None]:
    """What a process inherits that is started here: one thread that waits by sleeping, and no Ctrl-C.

    In a terminal Ctrl-C reaches all processes; only this one decides what it means.
    """
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    masks = hasattr(signal, "pthread_sigmask")
    if masks:
        # Started later, it would take the mask away before the worker starts.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# A worker's side ------------------------------------------------------------------------------------


class _Stopped(Exception):
    """The run was put down, with a checkpoint."""


class _Follower:
    """Tells how far a run is, and stops it when that is wanted."""

    def __init__(self, pipe: Connection, folder: Path) -> None:
        self.pipe, self.folder = pipe, folder
        self.told = 0.0

    def __call__(self, progress: Progress) -> None:
        """Take note of an update."""
        now = time.monotonic()
        if now - self.told < _NEWS_SECONDS:
            return
        self.told = now
        # While a run is under way the pipe has but one thing to say: stop, be it because nobody is there now.
        if self.pipe.poll():
            save_checkpoint(self.folder / CHECKPOINT, progress)
            raise _Stopped
        _say(self.pipe, _Share(progress.step / progress.steps))


def _work(pipe: Connection, setup: _Setup) -> None:
    """Run what the pipe asks for, until it asks to stop."""
    # Results are printed elsewhere: whatever libraries print must not get between them.
    os.dup2(2, 1)
    torch.set_num_threads(1)
    for info, dataset in setup.datasets:
        DATASETS.add(info.name, info)
        OWN[info.name] = partial(_the_same, dataset)
    if setup.plugin is not None:
        load_plugin(setup.plugin)
    _say(pipe, _Ready())
    try:
        with suppress(_Stopped):
            while (experiment := pipe.recv()) is not None:
                _say(pipe, _attempt(experiment, pipe, setup))
            return
        # What stopped the run: a wish, or the end of whoever could have one.
        pipe.recv()
    except (EOFError, OSError):
        # Nobody else is left to clear the data away.
        shutil.rmtree(setup.place, ignore_errors=True)


def _the_same(dataset: Dataset, _limit: int) -> Dataset:
    return dataset


def _attempt(experiment: Experiment, pipe: Connection, setup: _Setup) -> _Done | Failure:
    """Run an experiment; after a crash the process ends, because nobody knows what it left behind."""
    folder = setup.out / experiment.id
    try:
        execute(
            experiment,
            folder,
            data=setup.data,
            device=setup.device,
            checkpoint_seconds=setup.checkpoint_seconds,
            strict=setup.strict,
            follow=_Follower(pipe, folder),
        )
    except _Stopped:
        raise
    except InputError as error:
        return Failure("input", _one_line(error))
    except BaseException as error:
        _say(pipe, failure_of(error))
        raise SystemExit(1) from error
    return _Done()


def failure_of(error: BaseException) -> Failure:
    """What an exception says about a run.

    Example:
        >>> failure_of(MemoryError()).kind, failure_of(KeyError("gone")).reason
        ('memory', "KeyError: 'gone'")
    """
    text = _one_line(error)
    scarce = isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and ("allocate memory" in text or "not enough memory" in text)
    )
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    details = "".join(traceback.format_exception(error))
    if scarce:
        return Failure("memory", f"out of memory ({reason})", details)
    return Failure("crashed", reason, details)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _say(pipe: Connection, message: _Ready | _Share | _Done | Failure) -> None:
    """Send a message; where nobody is there any more, the next order will be missing too."""
    with suppress(OSError):
        pipe.send(message)
