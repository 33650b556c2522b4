"""Optimisers by name."""

import math
from collections.abc import Callable, Iterable
from inspect import unwrap
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch.optim import Optimizer

from engram.core.errors import InputError, unknown_name
from engram.core.values import OPTIMIZERS, OptimizerSpec

__all__ = ["OPTIMIZERS", "SGD", "build_optimizer", "check_optimizer", "cosine_factor"]

_WITH_MOMENTUM = ("sgd", "rmsprop")


_Kind = TypeVar("_Kind", bound=Optimizer)
_WRAPPED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def eager(kind: type[_Kind]) -> type[_Kind]:
    """One of PyTorch's optimisers, without its wrappers for `torch.compile`; what they wrap is the same code.

    The wrappers import PyTorch's compiler, which takes as long as importing PyTorch itself, so that every
    process that trains would start a second later. An optimiser of this kind is not for compiled code.

    Example:
        >>> weight = nn.Parameter(torch.ones(1))
        >>> weight.grad = torch.ones(1)
        >>> eager(torch.optim.SGD)([weight], lr=0.25).step()
        >>> weight.item(), issubclass(SGD, torch.optim.SGD)
        (0.75, True)
    """
    members: dict[str, Any] = {name: unwrap(getattr(kind, name)) for name in _WRAPPED}
    members["step"] = torch.no_grad()(unwrap(kind.step))
    return cast(type[_Kind], type(kind.__name__, (kind,), {**members, "__module__": __name__}))


SGD = eager(torch.optim.SGD)
RMSprop = eager(torch.optim.RMSprop)
Adam = eager(torch.optim.Adam)
AdamW = eager(torch.optim.AdamW)
Adagrad = eager(torch.optim.Adagrad)

_FUSED: dict[str, Callable[..., Optimizer]] = {"adam": Adam, "adamw": AdamW, "adagrad": Adagrad}


def check_optimizer(spec: OptimizerSpec) -> None:
    """Raise an error if the specification is not valid."""
    if spec.name not in OPTIMIZERS:
        raise unknown_name("optimizer", spec.name, OPTIMIZERS)
    if not spec.lr > 0 or not math.isfinite(spec.lr):
        raise InputError(f"lr must be above 0 and finite, got {spec.lr}")
    if not 0 <= spec.momentum < 1:
        raise InputError(f"momentum must be at least 0 and below 1, got {spec.momentum}")
    if spec.momentum and spec.name not in _WITH_MOMENTUM:
        raise InputError(
            f"momentum belongs to {' and '.join(_WITH_MOMENTUM)}, not to {spec.name}: leave it out"
        )
    if not 0 <= spec.weight_decay < math.inf:
        raise InputError(f"weight_decay must be at least 0 and finite, got {spec.weight_decay}")
    if spec.schedule not in ("constant", "cosine"):
        raise unknown_name("schedule", spec.schedule, ("constant", "cosine"))


def build_optimizer(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """A fresh optimiser for these parameters, with PyTorch's own defaults for what the spec leaves open.

    Example:
        >>> net = nn.Linear(2, 1)
        >>> type(build_optimizer(OptimizerSpec("adam", lr=0.001), net.parameters())).__name__
        'Adam'
    """
    check_optimizer(spec)
    weights = list(parameters)
    if spec.name == "sgd":
        # All tensors in one call; the fused kernel fails if a parameter gets its first gradient later.
        together = bool(spec.momentum) or None
        return SGD(
            weights, lr=spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay, foreach=together
        )
    if spec.name == "rmsprop":
        return RMSprop(weights, lr=spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay)
    # One pass over each tensor instead of one per operation, which is twice as fast on CPUs.
    fused = all(parameter.device.type == "cpu" for parameter in weights) or None
    return _FUSED[spec.name](weights, lr=spec.lr, weight_decay=spec.weight_decay, fused=fused)


def cosine_factor(step: int, steps: int) -> float:
    """The factor of the learning rate at `step` of `steps`: a quarter cosine from 1 to 0.

    Source: Chen et al. (2023), who cite a schedule that is a half cosine; their formula, cos(tπ / 2n), is
    this one.

    Example:
        >>> round(cosine_factor(5, 10), 6)
        0.707107
    """
    return math.cos(step * math.pi / (2 * steps))
