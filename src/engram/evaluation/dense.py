"""Chains of dense layers by oneDNN, which on processors is faster than what PyTorch's `linear` calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

_IDLE = (nn.Flatten, nn.Identity, nn.Dropout)
"""Layers that do nothing to flat samples in evaluation mode."""


class _Step(NamedTuple):
    layer: nn.Linear
    rectified: bool


def scorer(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """What computes a network's scores fastest, without gradients.

    A chain of dense layers and rectifiers in 32 bits on the processor is computed by oneDNN, each layer with
    its rectifier at once. The products are summed in another order then: scores differ in their last digits,
    as they do between two batch sizes. Everything else is the network itself: other layers, other devices,
    hooks, `torch.compile`, a PyTorch that has no such function.

    Args:
        network: In evaluation mode.

    Example:
        >>> network = nn.Sequential(nn.Linear(50, 20), nn.ReLU(), nn.Linear(20, 3)).eval()
        >>> x = torch.randn(100, 50)
        >>> with torch.inference_mode():
        ...     torch.allclose(scorer(network)(x), network(x), atol=1e-5)
        True
    """
    steps = _chain(network)
    if steps is None or not _available():
        return network

    def scores(x: Tensor) -> Tensor:
        if x.dtype is not torch.float32 or not x.is_cpu:
            found: Tensor = network(x)
            return found
        x = x.flatten(1)
        for layer, rectified in steps:
            x = _linear(x, layer.weight, layer.bias, "relu" if rectified else "none")
        return x

    return scores


def _chain(network: nn.Module) -> list[_Step] | None:
    """The dense layers of a network that has nothing else; None where it has."""
    steps: list[_Step] = []
    for layer in _in_order(network):
        if layer is None or _watched(layer):
            return None
        if type(layer) is nn.Linear:
            if layer.weight.dtype is not torch.float32 or not layer.weight.is_cpu:
                return None
            steps.append(_Step(layer, rectified=False))
        elif type(layer) is nn.ReLU and steps:
            steps[-1] = _Step(steps[-1].layer, rectified=True)
        elif type(layer) not in _IDLE or (type(layer) is nn.Flatten and steps):
            return None
    return steps or None


def _in_order(network: nn.Module) -> Iterator[nn.Module | None]:
    """The layers that a sample passes, one after the other; None where that is not known."""
    parts = tuple(network) if type(network) is nn.Sequential else _declared(network)
    if parts is None:
        yield network if next(network.children(), None) is None else None
        return
    if _watched(network):
        yield None
    for part in parts:
        yield from _in_order(part)


def _declared(network: nn.Module) -> tuple[nn.Module, ...] | None:
    """What the class that wrote the forward pass says of it by a method `chain`; None where it does not."""
    author = next(kind for kind in type(network).__mro__ if "forward" in vars(kind))
    chain = vars(author).get("chain")
    return None if chain is None or "forward" in vars(network) else tuple(chain(network))


def _watched(module: nn.Module) -> bool:
    """Whether somebody wants to know when it is called, or has compiled it."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or getattr(module, "_compiled_call_impl", None)
    )


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, then: str) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, then, [], "")
    return found


@cache
def _available() -> bool:
    """Whether this PyTorch has the function, and it does what is expected of it."""
    if not torch.backends.mkldnn.is_available():
        return False
    x, weight, bias = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [-3.0, -4.0]]), torch.ones(2)
    try:
        return torch.equal(_linear(x, weight, bias, "relu"), torch.tensor([[12.0, 0.0]]))
    except (AttributeError, RuntimeError, TypeError):
        return False
