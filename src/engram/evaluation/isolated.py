"""Check that evaluating a network of a user's own does not change how it is trained."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from engram.core.errors import InputError
from engram.evaluation.evaluator import Evaluator
from engram.evaluation.guard import SelfChange, same_randomness
from engram.evaluation.snapshot import Change, Snapshot


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """A network that is trained to the same bits with and without evaluation.

    Attributes:
        model: The network's class.
        updates: How many updates were made with and without evaluation.
        changes: What its modules change in evaluation, and an evaluator restores; empty if nothing.

    Example:
        >>> print(IsolationReport("Net", 4, (Change("pool", "RunningMax", "n"),)))
        Net passed: 4 updates with and without evaluation gave equal bits, after restoring what it changes
          pool (RunningMax)  n
    """

    model: str
    updates: int
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        compared = f"{self.updates} updates with and without evaluation gave equal bits"
        lines = [f"{self.model} passed: {compared}"]
        if self.changes:
            lines[0] += ", after restoring what it changes"
        width = max((len(change.module) for change in self.changes), default=0)
        return "\n".join([*lines, *(f"  {change.module:<{width}}  {change.part}" for change in self.changes)])

    def __repr__(self) -> str:
        return str(self)


def check_isolation(
    model: nn.Module | Callable[[], nn.Module],
    batch: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
    *,
    updates: int = 4,
) -> IsolationReport:
    """Check that evaluating a network does not change how it is trained, to the bit.

    Two copies of the network are trained on the batch, one of them evaluated before the first update and
    after every update. All losses, weights and buffers are compared, and so is the next random number.

    Args:
        model: The network, which is copied; or a function that makes it, for networks that cannot be.
        batch: Inputs, or inputs and labels; the loss is the cross-entropy of the labels, or without labels
            the mean square of the scores.
        updates: The number of updates.

    Returns:
        What the network changes in evaluation, and an evaluator restores.

    Raises:
        AssertionError: Training differs, or the network changes something that cannot be restored.
        InputError: The network cannot be copied.

    Example:
        >>> check_isolation(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), torch.randn(8, 3))
        Sequential passed: 4 updates with and without evaluation gave equal bits
        >>> check_isolation(nn.Embedding(5, 2, max_norm=0.1), torch.tensor([0, 1])).changes[0].part
        'weight'
    """
    make = _copier(model) if isinstance(model, nn.Module) else model
    name = type(model).__name__ if isinstance(model, nn.Module) else type(make()).__name__
    x, y = batch if isinstance(batch, tuple) else (batch, None)
    evaluator = Evaluator([(x, torch.zeros(len(x)) if y is None else y)], losses=y is not None)
    try:
        watched = _training(make, x, y, updates=updates, evaluator=evaluator)
    except InputError as reason:
        raise AssertionError(str(reason)) from reason
    unwatched = _training(make, x, y, updates=updates, evaluator=None)
    for what, value in unwatched.items():
        assert watched.get(what) == value, f"{name}: evaluation changed {what}"
    return IsolationReport(name, updates, evaluator.self_changes)


def _copier(model: nn.Module) -> Callable[[], nn.Module]:
    try:
        first = copy.deepcopy(model)
    except (TypeError, RuntimeError) as error:
        raise InputError(
            f"{type(model).__name__} cannot be copied: give a function that makes it, such as lambda: Net()"
        ) from error
    return lambda: copy.deepcopy(first)


def _training(
    make: Callable[[], nn.Module],
    x: torch.Tensor,
    y: torch.Tensor | None,
    *,
    updates: int,
    evaluator: Evaluator | None,
) -> dict[str, object]:
    """A few updates, by name: all losses, then the bits of all weights and buffers, and a random number."""
    with same_randomness(), warnings.catch_warnings(action="ignore", category=SelfChange):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        network = make()
        # Copies share classes and functions; what training changes there must not reach the next copy.
        start = Snapshot(network)
        if evaluator is not None:
            evaluator.before(network)
        weights = list(network.parameters())
        optimizer = torch.optim.SGD(weights, lr=0.01, momentum=0.9) if weights else None
        outcome: dict[str, object] = {}
        for update in range(1, updates + 1):
            scores = network(x)
            loss = scores.float().square().mean() if y is None else functional.cross_entropy(scores, y)
            if optimizer is not None and loss.requires_grad:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            outcome[f"the loss of update {update}"] = float(loss.detach()).hex()
            if evaluator is not None:
                evaluator(network, learning=0)
        outcome["the global random states"] = float(torch.rand(())), np.random.rand(), random.random()  # noqa: NPY002
        for name, tensor in network.state_dict().items():
            outcome[name] = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        with suppress(InputError):
            start.restore()
        return outcome
