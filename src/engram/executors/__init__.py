"""Executors: what runs experiments, one after the other or side by side.

An executor is called with experiments and returns one `Run` per experiment, in their order, whether it
finished or failed. `Serial` runs them in this process, `Processes` in several.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from engram.core.lazy import lazy_package
from engram.record.experiment import Experiment
from engram.record.run import Run

if TYPE_CHECKING:
    from engram.engine.observers import Observer
    from engram.engine.where import Where
    from engram.executors.processes import Processes
    from engram.executors.serial import Serial

__all__ = ["Executor", "Processes", "Serial", "executor_for"]

__getattr__, __dir__ = lazy_package(__name__, {".processes": ("Processes",), ".serial": ("Serial",)})


class Executor(Protocol):
    """Runs experiments, in whatever way."""

    def __call__(self, experiments: Sequence[Experiment]) -> Sequence[Run]:
        """One run per experiment, in their order."""


def executor_for(where: "Where", observers: "Sequence[Observer]" = (), *, serial: bool) -> Executor:
    """What runs experiments one after the other, or several at a time.

    Args:
        where: Where and how to run them.
        observers: Notified of every step.
        serial: Whether to run them one after the other: in this process, or in another one if that
            must be ended when an update takes too long.
    """
    from engram.executors.processes import Processes
    from engram.executors.serial import Serial

    if not serial:
        return Processes(where, observers)
    if where.timeout is None:
        return Serial(where, observers)
    import torch

    # As many threads as here: with another number, sums may differ in their last bits.
    return Processes(replace(where, jobs=1, threads=torch.get_num_threads()), observers)
