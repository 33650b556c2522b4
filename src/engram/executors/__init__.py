"""Executors: what runs experiments, one after the other or side by side.

An executor is called with experiments and gives one `Run` per experiment, in their order, whether it finished
or failed. `Serial` runs them in this process, `Processes` in several.
"""

from collections.abc import Sequence
from typing import Protocol

from engram.record.experiment import Experiment
from engram.record.run import Run


class Executor(Protocol):
    """Runs experiments, in whatever way."""

    def __call__(self, experiments: Sequence[Experiment]) -> Sequence[Run]:
        """One run per experiment, in their order."""
