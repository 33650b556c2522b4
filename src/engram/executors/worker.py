"""A worker process: runs the experiments that it is sent, and reports their progress."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import torch

from engram.core.leases import Held
from engram.core.plugins import load_plugin
from engram.core.stopping import NUMBERS, Stopped
from engram.engine.execute import attempt
from engram.engine.memory import keep_freed_memory
from engram.engine.observers import Step, Watcher
from engram.engine.where import Where
from engram.executors.shared_data import Shared, adopt
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.parallel import Late
from engram.record.run import Run

_NEWS_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker gets when it starts: shared data sets, the folder of their files, and where to run.

    It also gets the environment of the process that asks for it: the one that it is forked from may be older.
    """

    datasets: Shared
    place: Path
    where: Where
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass(frozen=True, slots=True)
class Ready:
    """Message: the worker has started."""


@dataclass(frozen=True, slots=True)
class Told:
    """One step of a run, as it is sent through the pipe."""

    step: int
    steps: int
    learning: int
    loss: float
    accuracies: tuple[tuple[int, float], ...]
    ends_task: bool
    pending: bool = False
    late: tuple[Late, ...] = ()
    lag: int = 0
    resumed: int = 0


def told_of(step: Step) -> Told:
    """A step as it is sent."""
    return Told(
        step.step,
        step.steps,
        step.learning,
        step.loss,
        tuple(step.accuracies.items()),
        step.ends_task,
        step.pending,
        tuple(step.late),
        step.lag,
        step.resumed,
    )


def step_of(told: Told, run: Run) -> Step:
    """A step of a run in another process, as observers are told."""
    return Step(
        run,
        told.step,
        told.steps,
        told.learning,
        told.loss,
        dict(told.accuracies),
        told.ends_task,
        told.pending,
        told.late,
        told.lag,
        told.resumed,
    )


@dataclass(frozen=True, slots=True)
class Began:
    """Message: the worker makes the run that it was sent; no other process does."""


@dataclass(frozen=True, slots=True)
class News:
    """Message: the steps since the last message that were evaluated, and the latest one."""

    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """Message: the run ended; `fatal` if the worker ends as well, because its run crashed.

    It is `held` if it did not begin, because another process is running it. The failure may be one that could
    not be saved, as on a full disk.
    """

    told: tuple[Told, ...]
    fatal: bool
    held: bool = False
    failure: Failure | None = None


Message: TypeAlias = Ready | Began | News | Ended
"""What a worker reports."""


class _Stopped(KeyboardInterrupt):
    """The parent asked to stop."""


class _Reporter(Watcher):
    """Reports the progress of a run a few times per second, and stops it on request."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.reported = 0.0
        self.waiting: list[Told] = []

    def began(self, run: Run) -> None:
        """Report at once that the run is made here."""
        _say(self.pipe, Began())

    def updated(self, step: Step) -> None:
        """Record an update, and report if it is time."""
        now = time.monotonic()
        due = now - self.reported >= _NEWS_SECONDS
        if due or step.accuracies or step.ends_task or step.pending or step.late:
            self.waiting.append(told_of(step))
        if not due:
            return
        self.reported = now
        # During a run the only message in the pipe is to stop; its end, if the parent died, means the same.
        if self.pipe.poll():
            raise _Stopped
        _say(self.pipe, News(self.flush()))

    def flush(self) -> tuple[Told, ...]:
        """The steps that were not reported yet."""
        told, self.waiting = tuple(self.waiting), []
        return told


def work(pipe: Connection, setup: Setup) -> None:
    """Run the experiments that come through the pipe, until None comes."""
    # The parent prints results to stdout: what libraries print here must not mix with them.
    os.dup2(2, 1)
    os.environ.update(setup.environment)
    if hasattr(signal, "pthread_sigmask"):
        # In a terminal Ctrl-C reaches all processes; only the parent handles it. Others end the run here.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, set(NUMBERS) - {signal.SIGINT})
    warnings.showwarning = _warn
    torch.set_num_threads(setup.where.threads or 1)
    keep_freed_memory()
    adopt(setup.datasets)
    if setup.where.plugin is not None:
        load_plugin(setup.where.plugin)
    _say(pipe, Ready())
    try:
        with suppress(_Stopped):
            while (experiment := pipe.recv()) is not None:
                ended = _run(experiment, pipe, setup.where)
                _say(pipe, ended)
                if ended.fatal:
                    raise SystemExit(1)
            return
        # The message that stopped the run; raises if the parent died.
        pipe.recv()
    except Stopped as stopped:
        # A signal reached this process alone, and its run is interrupted: the parent sees how it ended.
        raise SystemExit(stopped.code) from None
    except (EOFError, OSError):
        # The parent is gone: remove the shared data here.
        shutil.rmtree(setup.place, ignore_errors=True)


def _run(experiment: Experiment, pipe: Connection, where: Where) -> Ended:
    reporter = _Reporter(pipe)
    try:
        run = attempt(experiment, where, [reporter])
    except Held:
        return Ended(reporter.flush(), fatal=False, held=True)
    crashed = run.failure is not None and run.failure.kind in (FailureKind.CRASHED, FailureKind.OUT_OF_MEMORY)
    return Ended(reporter.flush(), fatal=crashed, failure=run.failure)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning in one line, as the command line does."""
    sys.stderr.write(f"warning: {' '.join(str(message).split())}\n")


def _say(pipe: Connection, message: Message) -> None:
    """Send a message; if the parent is gone, the next `recv` notices."""
    with suppress(OSError):
        pipe.send(message)
