"""Calls to a method: what it reads is recorded, and NaN or infinite values end the run."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from engram.core.errors import InputError, NonFinite
from engram.core.values import Batch, TaskInfo
from engram.datasets.accounting import Ledger
from engram.evaluation.evaluator import Routes
from engram.methods.base import Method
from engram.record.card import Reader


class Guarded:
    """A method whose every call is recorded in a ledger.

    Args:
        method: The method.
        name: The method's name, for messages.
        network: The network that the method was built with.
        ledger: The account of what it reads.
    """

    def __init__(self, method: Method, *, name: str, network: nn.Module, ledger: Ledger) -> None:
        self.method, self.name, self.network, self.ledger = method, name, network, ledger
        self.answering: Callable[[], nn.Module | None] = lambda: None

    def begin_task(self, task: TaskInfo) -> None:
        """Tell the method that a task begins."""
        self.ledger.told += 1
        with self.at_work():
            self.method.begin_task(task)

    def observe(self, batch: Batch) -> float:
        """Let the method learn from a batch, and return its loss.

        Raises:
            NonFinite: The loss, a weight or a gradient became NaN or infinite.
        """
        try:
            with self.at_work():
                loss = self.method.observe(batch)
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
        with self.at_work():
            self.method.end_task(self.ledger.handed(batches, "end of task"))

    def predictor(self) -> nn.Module:
        """The network that would answer now."""
        with self.at_work():
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

    @contextmanager
    def at_work(self, reader: Reader = "method") -> Iterator[None]:
        """Record what is read inside; errors that come from NaN or infinite weights become `NonFinite`."""
        try:
            with self.ledger.reading(reader):
                yield
        except InputError:
            raise
        except (ArithmeticError, RuntimeError, ValueError) as error:
            if self._finite():
                raise
            raise NonFinite("weights") from error

    def _finite(self) -> bool:
        """Whether weights and gradients of the method's network are finite."""
        weights = list(self.network.parameters())
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        return all(bool(tensor.isfinite().all()) for tensor in (*weights, *gradients))

    def _has_batch_norm(self) -> bool:
        return any(isinstance(module, _BatchNorm) for module in self.network.modules())
