"""The executor that runs one experiment after the other in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engram.core.leases import Held
from engram.core.stopping import StopSignals
from engram.datasets import load
from engram.engine.execute import attempt
from engram.engine.observers import Observer
from engram.engine.where import Where
from engram.executors.queue import ExperimentQueue
from engram.executors.shared_data import datasets_of
from engram.executors.survey import survey
from engram.record.experiment import Experiment
from engram.record.run import Run


class Serial:
    """Runs experiments one after the other, each into its folder; finished runs are read, not run again.

    A run that fails is a `Run` with its failure, and the next experiment is run. Several processes may work
    on one folder: each run is made by one of them, and read by the others.

    Args:
        where: Where and how to run.
        observers: Notified of every step.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from engram.engine.recipe import experiment
        >>> execute = Serial(Where(out=Path(tempfile.mkdtemp())))
        >>> planned = experiment("split-digits", "finetune", updates=2, evaluation={"every": 100})
        >>> [run] = execute([planned])
        >>> run.experiment == planned, run.status, run.updates
        (True, 'done', 10)
    """

    def __init__(self, where: Where, observers: Sequence[Observer] = ()) -> None:
        self.where, self.observers = where, observers

    def __call__(self, experiments: Sequence[Experiment]) -> list[Run]:
        """One run per experiment, in their order.

        Raises:
            InputError: A data set is missing; then nothing was started.
        """
        unfinished = [run.experiment for run in survey(experiments, self.where.folder) if not run.finished]
        for name in datasets_of(unfinished):
            load(name, self.where.data)
        with StopSignals(wait=False):
            runs = {run.id: run for run in self._run(ExperimentQueue(experiments, self.where.folder))}
        return [runs[experiment.id] for experiment in experiments]

    def _run(self, queue: ExperimentQueue) -> Iterator[Run]:
        """Run what waits; what another process is running comes last, and is read when it is done."""
        while queue:
            match queue.take():
                case None:
                    queue.wait()
                case Run(finished=False) as failed:
                    for observer in self.observers:
                        observer.ended(failed)
                    yield failed
                case Run() | Experiment() as taken:
                    planned = taken.experiment if isinstance(taken, Run) else taken
                    try:
                        yield attempt(planned, self.where, self.observers)
                    except Held:
                        queue.put_back(planned)
