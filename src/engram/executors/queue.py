"""Experiments that wait to be run, in a folder that other processes and machines may work on as well."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from engram.core.folder import FAILURE
from engram.core.leases import holder_of
from engram.record.experiment import Experiment
from engram.record.failure import FailureKind
from engram.record.run import Run

POLL_SECONDS = 0.5
"""How often to look after runs that other processes are making."""


class ExperimentQueue:
    """Experiments in the order in which they are run, but those that another process is running come later.

    Args:
        experiments: The experiments; equal ones are run once.
        out: The folder of their runs.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> queue = ExperimentQueue([experiment("split-digits", "er")], Path("nowhere"))
        >>> queue.take().method, queue.take(), len(queue)
        ('er', None, 0)
    """

    def __init__(self, experiments: Iterable[Experiment], out: Path) -> None:
        self.out = out
        distinct = {experiment.id: experiment for experiment in experiments}
        self._waiting = deque(distinct.values())
        self._failed = {name: self._stamp(name) for name in distinct}
        self._told = False

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Experiment | Run | None:
        """The next experiment to run; a run that another process ended; None if others run all the rest."""
        for _ in range(len(self._waiting)):
            experiment = self._waiting.popleft()
            if holder_of(self.out / experiment.id) is not None:
                self._waiting.append(experiment)
                continue
            run = Run.find(experiment, self.out)
            return run if run.finished or self._failed_elsewhere(run) else experiment
        return None

    def put_back(self, experiment: Experiment) -> None:
        """Have an experiment wait again: another process began to run it first."""
        self._waiting.append(experiment)

    def wait(self) -> None:
        """Wait a moment for the runs that other processes are making; the first time, say so."""
        self.announce()
        time.sleep(POLL_SECONDS)

    def announce(self) -> None:
        """Say once that the runs that are left are being made elsewhere."""
        if self._told:
            return
        self._told = True
        holders = {str(holder_of(self.out / experiment.id)) for experiment in self._waiting} - {"None"}
        if holders:
            runs = "1 run" if len(self) == 1 else f"{len(self)} runs"
            warnings.warn(f"waiting for {runs} being made by {', '.join(sorted(holders))}", stacklevel=2)

    def _failed_elsewhere(self, run: Run) -> bool:
        """Whether a run failed in another process since this queue was made: it is not tried once more."""
        if run.failure is None or run.failure.kind in (FailureKind.INTERRUPTED, FailureKind.DAMAGED):
            return False
        return failed_since(run, self._failed[run.id])

    def _stamp(self, name: str) -> int | None:
        return failure_stamp(self.out / name)


def failed_since(run: Run, before: int | None) -> bool:
    """Whether a run failed since the failure in its folder was that of `before`, a `failure_stamp`.

    That a failure is gone says nothing: an attempt begins by removing that of the attempt before it.
    """
    return run.failure is not None and run.folder is not None and failure_stamp(run.folder) != before


def failure_stamp(folder: Path) -> int | None:
    """When the failure in a run's folder was written; None if there is none."""
    try:
        return (folder / FAILURE).stat().st_mtime_ns
    except OSError:
        return None
