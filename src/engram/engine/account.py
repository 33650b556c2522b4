"""The bytes, samples, operations and seconds that a method uses, measured while it runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Protocol, Unpack

from torch import nn

from engram.engine.failures import OverBudget
from engram.engine.reach import Array, names_of_modules
from engram.engine.retained import Known, Retained, shapes_of
from engram.engine.work import Place, Work
from engram.methods.state import State
from engram.record.account import Account
from engram.record.experiment import Experiment

_SERIES = ("kept_bytes", "kept_samples", "flops", "phase_seconds", "update_seconds", "updates")


class Holder(Protocol):
    """A method whose holdings can be measured."""

    def held(self, shape: tuple[int, ...], **known: Unpack[Known]) -> Retained:
        """What it retains."""

    def kept_bytes(self) -> int:
        """What it says it keeps."""


@cache
def late_updates(steps: int) -> frozenset[int]:
    """The updates of a phase whose operations are counted, from 1.

    Late ones, because some methods do less at first, and several, because some do more in some updates; not
    the last, whose batch may be smaller.

    Example:
        >>> sorted(late_updates(100)), late_updates(1)
        ([50, 75, 99], frozenset({1}))
    """
    return frozenset(max(1, step) for step in (steps // 2, 3 * steps // 4, steps - 1))


class Meter:
    """Counts bytes, samples, operations and seconds, phase by phase.

    Args:
        experiment: The experiment; its budget is enforced.
        network: The network before it learned anything.
        shape: The shape of one input.
        samples_among: How many rows of arrays are samples of tasks up to a phase, for what could also be
            something else, such as means (default: all).
    """

    def __init__(
        self,
        experiment: Experiment,
        network: nn.Module,
        shape: tuple[int, ...],
        samples_among: Callable[[Sequence[Array], int], int] | None = None,
    ) -> None:
        self.experiment, self.shape = experiment, shape
        self.samples_among = samples_among
        self.known: Known = {"network": shapes_of(network), "modules": names_of_modules()}
        if samples_among is not None:
            # One mean per class of every task, and one of all data.
            self.known["few"] = 1 + sum(len(task.units) for task in experiment.scenario.tasks)
        self.train_seconds = 0.0
        self.kept_bytes: list[int] = []
        self.kept_samples: list[int] = []
        self.flops: list[int] = []
        self.phase_seconds: list[float] = []
        self.update_seconds: list[float] = []
        self.updates: list[int] = []
        self.work: list[Work] = []
        self._kept_while_learning = 0

    def begin_phase(self, phase: int) -> None:
        """The work that follows belongs to this phase."""
        if phase == len(self.work):
            self.work.append(Work())
            self.updates.append(0)

    @contextmanager
    def update(self, *, count: bool) -> Iterator[None]:
        """Time what is inside as one update; with `count`, its operations are counted as well."""
        if not self.updates[-1]:
            self.work[-1].begun()
        started = time.perf_counter()
        with self.work[-1].at("updates", count=count):
            yield
        if count:
            self._count_update(self.work[-1].last_update)
        seconds = time.perf_counter() - started
        self.train_seconds += seconds
        self.phase_seconds.append(seconds)
        self.updates[-1] += 1

    def _count_update(self, flops: int) -> None:
        """Of the updates of a phase that are counted, the costliest is recorded."""
        if len(self.flops) < len(self.work):
            self.flops.append(flops)
        else:
            self.flops[-1] = max(self.flops[-1], flops)

    @contextmanager
    def at(self, place: Place) -> Iterator[None]:
        """Time and count what is inside as the method's work, outside of updates."""
        started = time.perf_counter()
        with self.work[-1].at(place):
            yield
        self.train_seconds += time.perf_counter() - started

    def task_ending(self, method: Holder) -> None:
        """Measure what the method holds before it is told that its task ended: that counts as kept."""
        self._kept_while_learning = max(self.held(method).bytes, method.kept_bytes())

    def task_ended(self, method: Holder) -> None:
        """Measure again afterwards, and close the phase.

        Raises:
            OverBudget: The method keeps more than it may.
        """
        after = self.held(method)
        # Where several objects share a tensor, less is measured than the method reports.
        kept = max(self._kept_while_learning, after.bytes, method.kept_bytes())
        self.kept_bytes.append(kept)
        self.kept_samples.append(after.samples + self._samples_in_doubt(after))
        # The first update of a phase includes one-time work.
        self.update_seconds.append(statistics.median(self.phase_seconds[1:] or self.phase_seconds))
        self.phase_seconds = []
        budget = self.experiment.budget_bytes
        if budget is not None and kept > budget:
            raise OverBudget(
                f"method {self.experiment.method} keeps {kept} bytes after phase {len(self.kept_bytes)}, "
                f"over the budget of {budget}: raise the budget, or use a smaller network or memory"
            )

    def held(self, method: Holder) -> Retained:
        """What the method retains now."""
        return method.held(self.shape, **self.known)

    def _samples_in_doubt(self, retained: Retained) -> int:
        """How many samples there are among arrays that could also be something else."""
        if self.samples_among is None:
            return 0
        return self.samples_among(retained.doubtful, len(self.kept_bytes) - 1)

    def account(self, parameters: int) -> Account:
        """What was measured so far, for a network with this many weights."""
        return Account(
            parameters=parameters,
            kept_bytes=tuple(self.kept_bytes),
            flops=tuple(self.flops),
            kept_samples=tuple(self.kept_samples),
            update_seconds=tuple(self.update_seconds),
            work=tuple(
                work.done(updates=updates) for work, updates in zip(self.work, self.updates, strict=True)
            ),
        )

    def state_dict(self) -> State:
        """What was measured so far, as plain values."""
        series = {name: list(vars(self)[name]) for name in _SERIES}
        work = [work.state_dict() for work in self.work]
        return {"train_seconds": self.train_seconds, "work": work, **series}

    def load_state_dict(self, state: State) -> None:
        """Continue from what was measured."""
        vars(self).update(state)
        self.work = [Work.of_state(work) for work in state["work"]]
