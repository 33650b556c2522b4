"""Executors: what runs experiments, one after the other or side by side.

An executor is called with experiments and returns one `Run` per experiment, in their order, whether it
finished or failed. `Serial` runs them in this process, `Processes` in several.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from engram.core.lazy import lazy_package
from engram.record.experiment import Experiment
from engram.record.run import Run

if TYPE_CHECKING:
    from engram.executors.processes import Processes
    from engram.executors.serial import Serial

__all__ = ["Executor", "Processes", "Serial"]

__getattr__, __dir__ = lazy_package(__name__, {".processes": ("Processes",), ".serial": ("Serial",)})


class Executor(Protocol):
    """Runs experiments, in whatever way."""

    def __call__(self, experiments: Sequence[Experiment]) -> Sequence[Run]:
        """One run per experiment, in their order."""
