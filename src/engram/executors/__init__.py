"""Executors: what runs experiments, one after the other or side by side, here or elsewhere.

An executor (`Executor`) is given experiments, yields their runs as they end, and can be cancelled. `Serial`
runs them in this process, `Processes` in several, `Ray` on a Ray cluster, `Slurm` in jobs of a Slurm cluster.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from engram.core.lazy import lazy_package
from engram.record.experiment import Experiment
from engram.record.run import Run

if TYPE_CHECKING:
    from engram.engine.observers import Observer
    from engram.engine.where import Where
    from engram.executors.executor import Executor
    from engram.executors.machines import Machines
    from engram.executors.processes import Processes
    from engram.executors.ray import Ray
    from engram.executors.serial import Serial
    from engram.executors.slurm import Slurm

__all__ = ["Execute", "Executor", "Machines", "Processes", "Ray", "Serial", "Slurm", "executor_for"]

__getattr__, __dir__ = lazy_package(
    __name__,
    {
        ".executor": ("Executor",),
        ".machines": ("Machines",),
        ".processes": ("Processes",),
        ".ray": ("Ray",),
        ".serial": ("Serial",),
        ".slurm": ("Slurm",),
    },
)

Execute: TypeAlias = Callable[[Sequence[Experiment]], Sequence[Run]]
"""What a plan needs: one run per experiment, in their order. Every executor is one."""


def executor_for(where: "Where", observers: "Sequence[Observer]" = (), *, machines: "Machines") -> "Executor":
    """What runs experiments on these machines.

    Args:
        where: Where and how to run them.
        observers: Notified of every step.
        machines: Which machines. With `serial`, a run that must be ended when an update takes too long has a
            process of its own.

    Raises:
        InputError: With `serial`, several jobs are asked for.
    """
    machines.check_jobs(where.jobs)
    from engram.executors.processes import Processes
    from engram.executors.serial import Serial

    if machines.on == "ray":
        from engram.executors.ray import Ray

        return Ray(where, observers, machines=machines)
    if machines.on == "slurm":
        from engram.executors.slurm import Slurm

        return Slurm(where, observers, machines=machines)
    if machines.on == "processes":
        return Processes(where, observers)
    if where.timeout is None:
        return Serial(where, observers)
    import torch

    # As many threads as here: with another number, sums may differ in their last bits.
    return Processes(replace(where, jobs=1, threads=torch.get_num_threads()), observers)
