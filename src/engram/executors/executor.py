"""What an executor is: it is given experiments, yields their runs as they end, and can be cancelled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import final

from engram.core.errors import InputError
from engram.core.files import make_folder
from engram.core.stopping import StopSignals
from engram.datasets import load
from engram.engine.execute import check_existing
from engram.engine.observers import Observer
from engram.engine.where import Where
from engram.executors.shared_data import datasets_of
from engram.record.experiment import Experiment
from engram.record.planned import forget_planned, note_planned
from engram.record.run import Run


class Executor(ABC):
    """Runs experiments, each into its folder; finished runs are read, not run again.

    `run` submits experiments and yields their runs as they end; closing it cancels the rest, which keep their
    checkpoints. A run that fails is a `Run` with its failure, and the others go on. All executors give the
    same results to the bit.

    Any number of executors, in any processes on any machines that share the folder, may do this at the same
    time: each run is made by one of them, and read by the others.

    Args:
        where: Where and how to run.
        observers: Notified of every step of all runs.
    """

    def __init__(self, where: Where, observers: Sequence[Observer] = ()) -> None:
        self.where, self.observers = where, observers

    @final
    def __call__(self, experiments: Sequence[Experiment]) -> list[Run]:
        """One run per experiment, in their order.

        Raises:
            InputError: See `run`.
            Stopped: A signal asked to stop; what was under way has a checkpoint.
        """
        with StopSignals(wait=False), closing(self.run(experiments)) as ending:
            runs = {run.id: run for run in ending}
        return [runs[experiment.id] for experiment in experiments]

    @final
    def run(self, experiments: Sequence[Experiment]) -> Generator[Run, None, None]:
        """Yield runs as they end; those that had finished before come first. `close` cancels the rest.

        Args:
            experiments: The experiments; equal ones are run once.

        Raises:
            InputError: The folder cannot be written to, a data set is missing, or a finished run did not
                keep what is wanted, or does not pass `strict`; then nothing was started.
        """
        where = self.where
        make_folder(where.folder)
        distinct = {experiment.id: experiment for experiment in experiments}
        runs = [Run.find(experiment, where.folder) for experiment in distinct.values()]
        done = [run for run in runs if run.finished]
        waiting = [run.experiment for run in runs if not run.finished]
        for run in done:
            check_existing(run, where)
        for run in done:
            self._ended(run)
            yield run
        if not waiting:
            return
        self.check(waiting)
        # From here on `engram status` knows what is left.
        note_planned(where.folder, distinct.values())
        try:
            yield from self.make_runs(waiting)
        except InputError:
            # A cluster that does not answer, for example: nothing was begun, and nothing is left behind.
            forget_planned(where.folder, distinct)
            raise
        forget_planned(where.folder, distinct)

    def check(self, waiting: Sequence[Experiment]) -> None:
        """Check that the experiments can be run, before any of them is.

        Raises:
            InputError: They cannot, for example because a data set is missing.
        """
        for name in datasets_of(waiting):
            load(name, self.where.data)

    @abstractmethod
    def make_runs(self, waiting: Sequence[Experiment]) -> Generator[Run, None, None]:
        """Run distinct experiments that have no result yet, and yield their runs as they end.

        When the generator is closed, the runs that are under way write a checkpoint and end.
        """

    def _ended(self, run: Run) -> None:
        """Notify observers of a run that ended."""
        for observer in self.observers:
            observer.ended(run)
