"""What the loop tells: progress bars, checkpoints, trackers and live pages are observers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from engram.methods.base import Method
from engram.record.run import Run


@dataclass(frozen=True, slots=True)
class Step:
    """Where a run is, after one update.

    Attributes:
        run: Which run.
        step: Updates done.
        steps: Updates in all.
        learning: The task being learned, counted from 0.
        loss: The loss that the update minimised.
        accuracies: The accuracy of each evaluated task; empty where this update was not evaluated.
        ends_task: Whether this was the task's last update.
        snapshot: Gives the run's whole state, from which it resumes to the same bits; None for a run in
            another process.
        method: The method itself, to look at and not to touch; None for a run in another process.
    """

    run: Run
    step: int
    steps: int
    learning: int
    loss: float
    accuracies: Mapping[int, float] = field(default_factory=dict)
    ends_task: bool = False
    snapshot: Callable[[], dict[str, Any]] | None = None
    method: Method | None = None


@runtime_checkable
class Observer(Protocol):
    """Told what happens in runs, in this process or from worker processes alike.

    `Watcher` has empty versions of all five, to override those that matter.
    """

    def began(self, run: Run) -> None:
        """A run begins, or resumes."""

    def updated(self, step: Step) -> None:
        """An update was made; called very often in this process, a few times a second from workers."""

    def evaluated(self, step: Step) -> None:
        """An update was evaluated."""

    def task_ended(self, step: Step) -> None:
        """The last update of a task was made and evaluated."""

    def ended(self, run: Run) -> None:
        """A run finished or failed, or was found finished: `run.failure` says which."""


class Watcher:
    """An observer that does nothing: a base for those that need only one or two of the calls.

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
        """Ignore it."""

    def updated(self, step: Step) -> None:
        """Ignore it."""

    def evaluated(self, step: Step) -> None:
        """Ignore it."""

    def task_ended(self, step: Step) -> None:
        """Ignore it."""

    def ended(self, run: Run) -> None:
        """Ignore it."""


def tell(observers: Iterable[Observer], step: Step) -> None:
    """Tell observers of an update, in the order of what happened."""
    for observer in observers:
        observer.updated(step)
        if step.accuracies:
            observer.evaluated(step)
        if step.ends_task:
            observer.task_ended(step)
