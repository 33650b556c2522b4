"""The executor that runs one experiment after the other in this process."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import final

from engram.core.leases import Held
from engram.engine.execute import attempt
from engram.executors.executor import Executor
from engram.executors.queue import ExperimentQueue
from engram.record.experiment import Experiment
from engram.record.run import Run


@final
class Serial(Executor):
    """Runs experiments one after the other in this process.

    Args:
        where: Where and how to run.
        observers: Notified of every step.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from engram.engine.recipe import experiment
        >>> from engram.engine.where import Where
        >>> execute = Serial(Where(out=Path(tempfile.mkdtemp())))
        >>> planned = experiment("split-digits", "finetune", updates=2, evaluation={"every": 100})
        >>> [run] = execute([planned])
        >>> run.experiment == planned, run.status, run.updates
        (True, 'done', 10)
    """

    def make_runs(self, waiting: Sequence[Experiment]) -> Generator[Run, None, None]:
        """Run what waits; what another process is running comes last, and is read when it is done."""
        queue = ExperimentQueue(waiting, self.where.folder)
        while queue:
            match queue.take():
                case None:
                    queue.wait()
                case Run(finished=False) as failed:
                    self._ended(failed)
                    yield failed
                case Run() | Experiment() as taken:
                    planned = taken.experiment if isinstance(taken, Run) else taken
                    try:
                        yield attempt(planned, self.where, self.observers)
                    except Held:
                        queue.put_back(planned)
