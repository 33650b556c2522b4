"""Observers of runs: progress bars, checkpoints, trackers and live pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from engram.methods.base import Method
from engram.methods.state import State
from engram.record.parallel import Late
from engram.record.run import Run


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of a run after one update.

    Attributes:
        run: The run.
        step: Updates done.
        steps: Updates in all.
        learning: The task being learned, counted from 0.
        loss: The loss that the update minimised.
        accuracies: The accuracy of each evaluated task; empty if there was no evaluation after this update,
            or its result is not known yet.
        ends_task: Whether this was the task's last update.
        pending: Whether this update is evaluated by an evaluator process, and the result comes later.
        late: Evaluations of earlier updates, by evaluator processes, whose results came since the last step.
        lag: By how many updates evaluator processes are behind.
        resumed: Updates that were made before the run resumed from a checkpoint; 0 if it did not.
        snapshot: Returns the run's whole state, from which it resumes to the same bits; None for a run in
            another process.
        method: The method itself, for reading only; None for a run in another process.
    """

    run: Run
    step: int
    steps: int
    learning: int
    loss: float
    accuracies: Mapping[int, float] = field(default_factory=dict)
    ends_task: bool = False
    pending: bool = False
    late: Sequence[Late] = ()
    lag: int = 0
    resumed: int = 0
    snapshot: Callable[[], State] | None = None
    method: Method | None = None


@runtime_checkable
class Observer(Protocol):
    """Notified of what happens in runs, in this process or in worker processes.

    `Watcher` has empty versions of all five methods, to override the ones that are needed.
    """

    def began(self, run: Run) -> None:
        """A run starts or resumes."""

    def updated(self, step: Step) -> None:
        """An update was made; called for every update in this process, a few times per second for workers."""

    def evaluated(self, step: Step) -> None:
        """An evaluation followed an update, maybe an earlier one: `step.step` says which."""

    def task_ended(self, step: Step) -> None:
        """The last update of a task was made and evaluated."""

    def ended(self, run: Run) -> None:
        """A run finished or failed, or had finished before: `run.failure` says which."""


class Watcher:
    """An observer that does nothing: a base class for observers that need only some of the calls.

    Example:
        >>> class Counting(Watcher):
        ...     updates = 0
        ...     def updated(self, step):
        ...         self.updates += 1
        >>> counting = Counting()
        >>> isinstance(counting, Observer)
        True
    """

    def began(self, run: Run) -> None:
        """Do nothing."""

    def updated(self, step: Step) -> None:
        """Do nothing."""

    def evaluated(self, step: Step) -> None:
        """Do nothing."""

    def task_ended(self, step: Step) -> None:
        """Do nothing."""

    def ended(self, run: Run) -> None:
        """Do nothing."""


def tell(observers: Iterable[Observer], step: Step) -> None:
    """Notify observers of an update, its evaluation and the end of its task, in this order.

    Before that come evaluations of earlier updates whose results are known now.
    """
    late = [
        replace(
            step, step=result.step, learning=result.learning, accuracies=result.accuracies, ends_task=False
        )
        for result in step.late
    ]
    for observer in observers:
        for earlier in late:
            observer.evaluated(earlier)
        observer.updated(step)
        if step.accuracies:
            observer.evaluated(step)
        if step.ends_task:
            observer.task_ended(step)
