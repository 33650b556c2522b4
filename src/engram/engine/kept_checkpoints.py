"""The observer that keeps checkpoints: whole states of a run, from which a stretch of it is learned again."""

from __future__ import annotations

import warnings
from pathlib import Path

from engram.core.errors import InputError
from engram.engine.checkpoint import write_checkpoint
from engram.engine.observers import Step, Watcher
from engram.methods.state import CannotKeep
from engram.record.checkpoints import checkpoint_period, kept_checkpoints, kept_file
from engram.record.run import REPAIR, Run


class CheckpointKeeper(Watcher):
    """Keeps checkpoints of a run in its folder, also after it is finished; the run itself is not changed.

    A checkpoint is kept at the end of every task, and every N updates if that is wanted. The beginning
    needs none: the experiment says it all. A run that resumes keeps those that it has. Where a method holds
    something that cannot be saved, or the disk is full, a warning is issued once, and the run goes on.

    Args:
        folder: The folder of the run.
        keep: `tasks`, or the number of updates between two checkpoints.
    """

    def __init__(self, folder: Path, keep: str | int) -> None:
        self.folder, self.period = folder, checkpoint_period(keep)
        self.problem = ""

    def updated(self, step: Step) -> None:
        """Keep a checkpoint if it is time; the end of a task comes later."""
        if self.period is not None and step.step % self.period == 0 and not step.ends_task:
            self._keep(step)

    def task_ended(self, step: Step) -> None:
        """Keep a checkpoint at the end of a task."""
        self._keep(step)

    def _keep(self, step: Step) -> None:
        if step.snapshot is None or self.problem:
            return
        try:
            write_checkpoint(self.folder / kept_file(step.step), step.snapshot(), previous=False)
        except (CannotKeep, InputError) as reason:
            self.problem = str(reason)
            warnings.warn(f"no checkpoint is kept: {reason}; the run goes on", stacklevel=2)

    def check_finished(self, run: Run) -> None:
        """Refuse a finished run that kept no checkpoint.

        Raises:
            InputError: It kept none.
        """
        if not kept_checkpoints(run.folder):
            raise InputError(
                f"the run {run.folder} is finished and kept no checkpoints: {REPAIR}; without "
                "keep_checkpoints, engram zoom learns from the beginning"
            )
