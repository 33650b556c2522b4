"""The executor that runs one experiment after the other in this process."""

from __future__ import annotations

from collections.abc import Sequence

from engram.datasets import load
from engram.engine.execute import attempt
from engram.engine.observers import Observer
from engram.engine.where import Where
from engram.executors.shared_data import datasets_of
from engram.executors.survey import survey
from engram.record.experiment import Experiment
from engram.record.run import Run


class Serial:
    """Runs experiments one after the other, each into its folder; finished runs are read, not run again.

    A run that fails is a `Run` with its failure, and the next experiment is run.

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
        return [attempt(experiment, self.where, self.observers) for experiment in experiments]
