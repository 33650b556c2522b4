"""A worker process: runs the experiments that it is sent, and tells how they do."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from engram.core.plugins import load_plugin
from engram.engine.checkpoint import CHECKPOINT, save_checkpoint
from engram.engine.execute import attempt
from engram.engine.observers import Step, Watcher
from engram.engine.where import Where
from engram.executors.shared_data import Shared, adopt
from engram.methods.state import CannotKeep
from engram.record.experiment import Experiment
from engram.record.failure import FailureKind

_NEWS_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Setup:
    """What every worker is told when it starts: data sets in memory, where their files lie, and the rest."""

    datasets: Shared
    place: Path
    where: Where


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker says that it has started."""


@dataclass(frozen=True, slots=True)
class Told:
    """One step of a run, as it crosses the pipe; `began` is the first step that this worker made of it."""

    began: int
    step: int
    steps: int
    learning: int
    loss: float
    accuracies: tuple[tuple[int, float], ...]
    ends_task: bool


@dataclass(frozen=True, slots=True)
class News:
    """A worker says how its run does: every step that was evaluated, and the latest one."""

    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker says that its run ended, and whether it ends itself: nobody knows what a crash left behind."""

    told: tuple[Told, ...]
    fatal: bool


class _Stopped(KeyboardInterrupt):
    """The run was put down, with a checkpoint."""


class _Reporter(Watcher):
    """Tells how far a run is a few times a second, and stops it when that is wanted."""

    def __init__(self, pipe: Connection, folder: Path) -> None:
        self.pipe, self.folder = pipe, folder
        self.said = 0.0
        self.first: int | None = None
        self.waiting: list[Told] = []

    def updated(self, step: Step) -> None:
        """Take note of an update."""
        now = time.monotonic()
        self.first = step.step if self.first is None else self.first
        due = now - self.said >= _NEWS_SECONDS
        if due or step.accuracies or step.ends_task or step.step == self.first:
            self.waiting.append(
                Told(
                    self.first,
                    step.step,
                    step.steps,
                    step.learning,
                    step.loss,
                    tuple(step.accuracies.items()),
                    step.ends_task,
                )
            )
        if not due:
            return
        self.said = now
        # While a run is under way the pipe has but one thing to say: stop, be it because nobody is there now.
        if self.pipe.poll():
            with suppress(CannotKeep):
                save_checkpoint(self.folder / CHECKPOINT, step)
            raise _Stopped
        _say(self.pipe, News(self.flush()))

    def flush(self) -> tuple[Told, ...]:
        """What was not told yet."""
        told, self.waiting = tuple(self.waiting), []
        return told


def work(pipe: Connection, setup: Setup) -> None:
    """Run what the pipe asks for, until it asks to stop."""
    # Results are printed elsewhere: whatever libraries print must not get between them.
    os.dup2(2, 1)
    torch.set_num_threads(1)
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
        # What stopped the run: a wish, or the end of whoever could have one.
        pipe.recv()
    except (EOFError, OSError):
        # Nobody else is left to clear the data away.
        shutil.rmtree(setup.place, ignore_errors=True)


def _run(experiment: Experiment, pipe: Connection, where: Where) -> Ended:
    reporter = _Reporter(pipe, where.folder / experiment.id)
    run = attempt(experiment, where, [reporter])
    crashed = run.failure is not None and run.failure.kind in (FailureKind.CRASHED, FailureKind.OUT_OF_MEMORY)
    return Ended(reporter.flush(), fatal=crashed)


def _say(pipe: Connection, message: Ready | News | Ended) -> None:
    """Send a message; where nobody is there any more, the next order will be missing too."""
    with suppress(OSError):
        pipe.send(message)
