"""Calls to a method: what it reads is recorded, and NaN or infinite values end the run."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Unpack

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from engram.core.errors import InputError, NonFinite
from engram.core.values import Batch, TaskInfo
from engram.datasets.accounting import Ledger, watched
from engram.datasets.outside import watch_outside
from engram.engine.account import Meter
from engram.engine.reach import may_store
from engram.engine.retained import Known, Retained, retained
from engram.evaluation.evaluator import Routes
from engram.methods.base import Method
from engram.methods.state import State
from engram.record.card import ForbiddenRead, Reader

CACHED = 8
"""A network may hold as much after an evaluation as so many samples: masks and the like, made when needed."""


class Guarded:
    """A method whose every call is recorded in a ledger.

    Args:
        method: The method.
        name: The method's name, for messages.
        network: The network that the method was built with.
        ledger: The account of what it reads.
        meter: The account of what it keeps and what it costs.
    """

    def __init__(
        self, method: Method, *, name: str, network: nn.Module, ledger: Ledger, meter: Meter
    ) -> None:
        self.method, self.name, self.network = method, name, network
        self.ledger, self.meter = ledger, meter
        self.answering: Callable[[], nn.Module | None] = lambda: None
        own = getattr(method, "generator", None)
        self._generator = own if isinstance(own, torch.Generator) else None
        self.listens = False
        self._held_before: int | None = None
        watch_outside()

    def begin_task(self, task: TaskInfo) -> None:
        """Tell the method that a task begins."""
        self.ledger.told += 1
        with self.at_work(), self.meter.at("boundaries"):
            self.method.begin_task(task)

    def observe(self, batch: Batch) -> float:
        """Let the method learn from a batch, and return its loss.

        Raises:
            NonFinite: The loss, a weight or a gradient became NaN or infinite.
        """
        try:
            with self.at_work():
                before = _identity(batch)
                loss = self.method.observe(batch)
                self._compare(batch, before)
        except ValueError as error:
            if len(batch) == 1 and not isinstance(error, InputError) and self._has_batch_norm():
                raise InputError(
                    "batch norm cannot learn from this update's single sample: choose another batch size"
                ) from error
            raise
        try:
            value = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"method {self.name}: observe must return the loss as a number, got {type(loss).__name__}"
            ) from error
        if not math.isfinite(value):
            raise NonFinite("loss", value)
        return value

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Tell the method that its task ended; it may read the task's data once more."""
        with self.at_work(), self.meter.at("boundaries"):
            handed = self.meter.work[-1].handed(self.ledger.handed(batches, "end of task"))
            self.method.end_task(self._unchanged(handed))

    def predictor(self) -> nn.Module:
        """The network that would answer now."""
        with self.at_work(), self.meter.at("answers"):
            network = self.method.predictor()
        if not isinstance(network, nn.Module):
            raise InputError(
                f"method {self.name}: predictor must return the network that answers, "
                f"got {type(network).__name__}"
            )
        self.answering = weakref.ref(network)
        if isinstance(network, Routes):
            self.ledger.note_route()
        return network

    def asked(self) -> AbstractContextManager[None]:
        """Within, the network answers: what its code reads and does is recorded as the method's."""
        if self.listens and self._held_before is None:
            network = self.answering()
            if network is not None and may_store(network):
                self._held_before = self.meter.held(self).bytes
        return self.ledger.reading("method")

    def answered(self) -> None:
        """After an evaluation: note it if the method holds more than before it was asked."""
        if self._held_before is None:
            return
        kept = self.meter.held(self).bytes - self._held_before
        self._held_before = None
        if kept > CACHED * 4 * math.prod(self.meter.shape):
            self.ledger.refuse(ForbiddenRead("questions", note=f"{kept:,} bytes"))

    def kept_bytes(self) -> int:
        """The bytes that the method says it keeps."""
        with self.at_work():
            return int(self.method.kept_bytes())

    def state_dict(self) -> State:
        """The method's state."""
        with self.at_work():
            return self.method.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Restore the method's state."""
        with self.at_work():
            self.method.load_state_dict(state)
            # What was saved is not watched.
            for name, value in list(vars(self.method).items()):
                if type(value) is TaskInfo:
                    setattr(self.method, name, watched(value))

    def held(self, shape: tuple[int, ...], **known: Unpack[Known]) -> Retained:
        """What the method retains, followed from its attributes."""
        with self.at_work():
            return retained(self.method, shape, answering=self.answering(), **known)

    @contextmanager
    def at_work(self, reader: Reader = "method") -> Iterator[None]:
        """Record what is read and done; errors that come from NaN or infinite weights become `NonFinite`."""
        try:
            with self.ledger.reading(reader):
                seeds = self._seeds()
                yield
                if self._seeds() != seeds:
                    self.ledger.refuse(ForbiddenRead("seed"))
                self.ledger.check()
        except InputError:
            raise
        except (ArithmeticError, RuntimeError, ValueError) as error:
            if self._finite():
                raise
            raise NonFinite("weights") from error

    def _seeds(self) -> tuple[int, int | None]:
        """The seeds of the global generator and of the method's own."""
        seed = None if self._generator is None else self._generator.initial_seed()
        return torch.default_generator.initial_seed(), seed

    def _compare(self, batch: Batch, before: _Identity) -> None:
        """Note that a batch is not what it was: other tensors, or tensors that were changed in place."""
        if _identity(batch) != before:
            self.ledger.refuse(ForbiddenRead("batch"))

    def _unchanged(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            before = _identity(batch)
            yield batch
            self._compare(batch, before)

    def _finite(self) -> bool:
        """Whether weights and gradients of the method's network are finite."""
        weights = list(self.network.parameters())
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        return all(bool(tensor.isfinite().all()) for tensor in (*weights, *gradients))

    def _has_batch_norm(self) -> bool:
        return any(isinstance(module, _BatchNorm) for module in self.network.modules())


_Identity = tuple[int, int, int, int]


def _identity(batch: Batch) -> _Identity:
    """Which tensors a batch has, and how often they were changed in place."""
    x, y = batch.x, batch.y
    return id(x), x._version, id(y), y._version
