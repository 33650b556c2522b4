"""The bytes, samples, operations and seconds that a method uses, measured while it runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from engram.engine.failures import OverBudget
from engram.engine.retained import Retained, retained, shapes_of
from engram.methods.base import Method
from engram.methods.state import State
from engram.record.account import Account
from engram.record.experiment import Experiment

_SERIES = ("kept_bytes", "kept_samples", "flops", "phase_seconds", "update_seconds")


class Meter:
    """Counts bytes, samples, operations and seconds, phase by phase.

    Args:
        experiment: The experiment; its budget is enforced.
        network: The network before it learned anything.
        shape: The shape of one input.
    """

    def __init__(self, experiment: Experiment, network: nn.Module, shape: tuple[int, ...]) -> None:
        self.experiment, self.shape = experiment, shape
        self.network_shapes = shapes_of(network)
        self.train_seconds = 0.0
        self.kept_bytes: list[int] = []
        self.kept_samples: list[int] = []
        self.flops: list[int] = []
        self.phase_seconds: list[float] = []
        self.update_seconds: list[float] = []
        self._kept_while_learning = 0

    @contextmanager
    def update(self, *, count: bool) -> Iterator[None]:
        """Time what is inside as one update; with `count`, its operations are counted as well."""
        started = time.perf_counter()
        with FlopCounterMode(display=False) if count else nullcontext() as counter:
            yield
        if counter is not None:
            self.flops.append(counter.get_total_flops())
        seconds = time.perf_counter() - started
        self.train_seconds += seconds
        self.phase_seconds.append(seconds)

    def task_ending(self, method: Method, answering: nn.Module | None) -> None:
        """Measure what the method holds before it is told that its task ended: that counts as kept."""
        self._kept_while_learning = max(self._retained(method, answering).bytes, method.kept_bytes())

    def task_ended(self, method: Method, answering: nn.Module | None) -> None:
        """Measure again afterwards, and close the phase.

        Raises:
            OverBudget: The method keeps more than it may.
        """
        after = self._retained(method, answering)
        # Where several objects share a tensor, less is measured than the method reports.
        kept = max(self._kept_while_learning, after.bytes, method.kept_bytes())
        self.kept_bytes.append(kept)
        self.kept_samples.append(after.samples)
        # The first update of a phase includes one-time work.
        self.update_seconds.append(statistics.median(self.phase_seconds[1:] or self.phase_seconds))
        self.phase_seconds = []
        budget = self.experiment.budget_bytes
        if budget is not None and kept > budget:
            raise OverBudget(
                f"method {self.experiment.method} keeps {kept} bytes after phase {len(self.kept_bytes)}, "
                f"over the budget of {budget}: raise the budget, or use a smaller network or memory"
            )

    def _retained(self, method: Method, answering: nn.Module | None) -> Retained:
        return retained(method, self.shape, network=self.network_shapes, answering=answering)

    def account(self, parameters: int) -> Account:
        """What was measured so far, for a network with this many weights."""
        return Account(
            parameters=parameters,
            kept_bytes=tuple(self.kept_bytes),
            flops=tuple(self.flops),
            kept_samples=tuple(self.kept_samples),
            update_seconds=tuple(self.update_seconds),
        )

    def state_dict(self) -> State:
        """What was measured so far, as plain values."""
        series = {name: list(vars(self)[name]) for name in _SERIES}
        return {"train_seconds": self.train_seconds, **series}

    def load_state_dict(self, state: State) -> None:
        """Continue from what was measured."""
        vars(self).update(state)
