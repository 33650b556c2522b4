"""One run on another machine: what it is sent, what it does, and what it sends back."""

from __future__ import annotations

import json
import shutil
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engram.core.cache import cache_folder
from engram.core.errors import InputError
from engram.core.files import as_input_error, checksum, make_folder, remove_file, write_whole
from engram.core.folder import CHECKPOINT, FAILURE, LEASE, PREVIOUS, PROGRESS, RESULT, versions
from engram.core.leases import Held, lease
from engram.engine.execute import attempt
from engram.engine.memory import keep_freed_memory
from engram.engine.observers import Step, Watcher
from engram.engine.where import Where
from engram.executors.cargo import Cargo, Fetch
from engram.executors.worker import Told, told_of
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run

_DAY = 24 * 3600
_NEWS_SECONDS = 0.5
_STAYS = (LEASE, PROGRESS, CHECKPOINT, PREVIOUS)
"""The files of a run's folder that are of no use elsewhere."""

Tell = Callable[[bool, Sequence[Told]], None]
"""Tells the process that asked for the run whether its folder is seen here, and the latest steps."""


@dataclass(frozen=True, slots=True)
class Order:
    """A run to be made on another machine.

    Attributes:
        experiment: The experiment as `experiment.json` has it.
        where: Where and how to run it; its folders are absolute paths of the machine that asks.
        cargo: The files that it needs.
        mark: The name of a file in the folder of runs: who sees it, shares the folder.
        versions: The versions of what computes the numbers on the machine that asks.
    """

    experiment: str
    where: Where
    cargo: Cargo
    mark: str
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run on another machine ended.

    Attributes:
        host: The name of that machine.
        held: Whether it did not begin, because another process is running it.
        files: The files of the run's folder, where the folder of runs is not shared; else None.
        failure: Why it could not begin; None otherwise.
    """

    host: str
    held: bool = False
    files: tuple[tuple[str, bytes], ...] | None = None
    failure: Failure | None = None


def order_for(experiment: Experiment, where: Where, cargo: Cargo, mark: str) -> Order:
    """The order for an experiment."""
    return Order(json.dumps(experiment.as_json()), where, cargo, mark, tuple(_computing().items()))


def carry_out(order: Order, fetch: Fetch, tell: Tell, *, shared: bool | None = None) -> Outcome:
    """Make a run: in the folder of runs if this machine sees it, else in this machine's cache.

    In the folder of runs it resumes from its checkpoint, whichever machine wrote that. In the cache it
    resumes if this machine wrote one; its files are returned, and a finished run is removed there.

    Args:
        order: The run.
        fetch: Gets the files that it needs.
        tell: Told what happens, twice per second.
        shared: Whether this machine sees the folder of runs (default: look).
    """
    host = socket.gethostname()
    try:
        _prepare(order, fetch)
        written = json.loads(order.experiment)
        experiment = Experiment.of_json(written, weights=Path("weights"))
        if experiment.id != written["id"]:
            there = f"{host} reads the experiment {written['id']} as {experiment.id}"
            raise InputError(f"{there}: install the same version of engram there")
        experiment = order.cargo.start_of(experiment, fetch)
    except KeyError:
        return Outcome(host, failure=Failure(FailureKind.BAD_INPUT, "the file of its weights cannot be read"))
    except InputError as error:
        return Outcome(host, failure=Failure(FailureKind.BAD_INPUT, str(error)))
    if shared is None:
        shared = (order.where.folder / order.mark).is_file()
    where = order.where if shared else replace(order.where, out=_scratch(order.where.folder))
    try:
        run = attempt(experiment, where, [_News(tell, shared=shared)])
    except Held:
        return Outcome(host, held=True)
    if shared:
        return Outcome(host)
    assert run.folder is not None
    files = _files(run.folder)
    if run.finished:
        # Else this machine would return it once more when it is to be run again.
        shutil.rmtree(run.folder, ignore_errors=True)
    return Outcome(host, files=files, failure=None if run.finished else run.failure)


def receive(experiment: Experiment, files: Sequence[tuple[str, bytes]], out: Path) -> Run:
    """Write the files of a run that was made elsewhere, the result last, unless there is one by now.

    Raises:
        Held: Another process is running it.
        InputError: They cannot be written.
    """
    folder = out / experiment.id
    make_folder(folder)
    with lease(folder):
        run = Run.find(experiment, out)
        if run.finished:
            return run
        remove_file(folder / FAILURE)
        for name, content in sorted(files, key=lambda file: file[0] == RESULT):
            write_whole(folder / name, lambda beside, content=content: beside.write_bytes(content))  # type: ignore[misc]
    return Run.find(experiment, out)


class _News(Watcher):
    """Passes on what happens in a run, at most twice per second."""

    def __init__(self, tell: Tell, *, shared: bool) -> None:
        self.tell, self.shared = tell, shared
        self.told = 0.0
        self.waiting: list[Told] = []

    def began(self, run: Run) -> None:
        """Say at once that it begins."""
        self.tell(self.shared, ())

    def updated(self, step: Step) -> None:
        """Note an update, and pass it on if it is time."""
        now = time.monotonic()
        due = now - self.told >= _NEWS_SECONDS
        if due or step.accuracies or step.ends_task or step.pending or step.late:
            self.waiting.append(told_of(step))
        if due:
            self.told = now
            self.flush()

    def ended(self, run: Run) -> None:
        """Pass on what is left."""
        self.flush()

    def flush(self) -> None:
        """Pass on everything."""
        self.tell(self.shared, tuple(self.waiting))
        self.waiting = []


_installed: list[Cargo] = []
"""What this process has registered last: workers make many runs of one sweep."""


def _prepare(order: Order, fetch: Fetch) -> None:
    """Compute as the machine that asks does, with the same data, methods and networks."""
    here = _computing()
    for package, version in order.versions:
        if here.get(package) != version:
            raise InputError(
                f"{socket.gethostname()} has {package} {here.get(package, '(none)')}, and the sweep was "
                f"started with {version}: install the same version, so that results are the same"
            )
    # As many as in local processes: with another number, sums may differ in their last bits.
    torch.set_num_threads(order.where.threads or 1)
    keep_freed_memory()
    if order.cargo not in _installed:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            order.cargo.install(fetch)
        _installed[:] = [order.cargo]


def _computing() -> dict[str, str]:
    """The versions of engram and torch."""
    return {name: version for name, version in versions().items() if name in ("engram", "torch")}


def _scratch(out: Path) -> Path:
    """This machine's own folder for the runs of a folder that it does not see."""
    place = cache_folder() / "runs" / checksum(str(out).encode())[:16]
    with suppress(OSError):
        for folder in place.iterdir():
            # The machine that asked for it has it, or will ask again.
            result = folder / RESULT
            if result.is_file() and time.time() - result.stat().st_mtime > _DAY:
                shutil.rmtree(folder, ignore_errors=True)
    return place


def _files(folder: Path) -> tuple[tuple[str, bytes], ...]:
    with as_input_error(f"cannot read {folder}"):
        return tuple(
            (file.name, file.read_bytes())
            for file in sorted(folder.iterdir())
            if file.is_file() and not file.name.startswith(".") and file.name not in _STAYS
        )
