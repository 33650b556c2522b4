"""Chains of dense layers computed by oneDNN, which on CPUs is faster than PyTorch's `linear`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

_IDLE = (nn.Flatten, nn.Identity, nn.Dropout)
"""Layers that leave flat samples unchanged in evaluation mode."""


class Dense(NamedTuple):
    """A dense layer, and whether a ReLU follows it."""

    layer: nn.Linear
    rectified: bool


def scorer(network: nn.Module, layers: list[Dense] | None = None) -> Callable[[Tensor], Tensor]:
    """The fastest function that computes a network's scores, without gradients.

    A chain of dense layers and ReLUs in 32 bits on the CPU is computed by oneDNN, each layer fused with its
    ReLU. The products are then summed in another order, so scores differ in their last digits, as they do
    between two batch sizes. In all other cases (other layers, other devices, autocast, hooks,
    `torch.compile`, a PyTorch without the fused function) the network itself is returned.

    Args:
        network: In evaluation mode.
        layers: Its `dense_layers`, if they are known already.

    Example:
        >>> network = nn.Sequential(nn.Linear(50, 20), nn.ReLU(), nn.Linear(20, 3)).eval()
        >>> x = torch.randn(100, 50)
        >>> with torch.inference_mode():
        ...     torch.allclose(scorer(network)(x), network(x), atol=1e-5)
        True
    """
    steps = layers or dense_layers(network)
    if steps is None or not fusing_works():
        return network

    def scores(x: Tensor) -> Tensor:
        if x.dtype is not torch.float32 or not x.is_cpu or torch.is_autocast_enabled("cpu"):
            plain: Tensor = network(x)
            return plain
        x = x.flatten(1)
        for layer, rectified in steps:
            x = fused_linear(x, layer.weight, layer.bias, "relu" if rectified else "none")
        return x

    return scores


def dense_layers(network: nn.Module) -> list[Dense] | None:
    """The dense layers of a network that consists of nothing else; None for any other network."""
    steps: list[Dense] = []
    for layer in _in_order(network):
        if layer is None or watched(layer):
            return None
        if type(layer) is nn.Linear:
            if layer.weight.dtype is not torch.float32 or not layer.weight.is_cpu:
                return None
            steps.append(Dense(layer, rectified=False))
        elif type(layer) is nn.ReLU and steps:
            steps[-1] = Dense(steps[-1].layer, rectified=True)
        elif type(layer) not in _IDLE or (type(layer) is nn.Flatten and steps):
            return None
    return steps or None


def _in_order(network: nn.Module) -> Iterator[nn.Module | None]:
    """The layers in the order in which a sample passes through them; None where that is unknown."""
    parts = parts_of(network)
    if parts is None:
        yield network if next(network.children(), None) is None else None
        return
    if watched(network):
        yield None
    for part in parts:
        yield from _in_order(part)


def parts_of(network: nn.Module) -> tuple[nn.Module, ...] | None:
    """The parts that a sample passes one after the other; None where that is unknown.

    They are those of a plain `nn.Sequential`, and those that the class defining `forward` declares with a
    method `chain`.

    Example:
        >>> parts_of(nn.Sequential(nn.Flatten(), nn.ReLU()))
        (Flatten(start_dim=1, end_dim=-1), ReLU())
    """
    if type(network) is nn.Sequential:
        return tuple(network)
    author = next(kind for kind in type(network).__mro__ if "forward" in vars(kind))
    chain = vars(author).get("chain")
    return None if chain is None or "forward" in vars(network) else tuple(chain(network))


def watched(module: nn.Module) -> bool:
    """Whether the module has hooks or is compiled, so that it must be called itself."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._compiled_call_impl)


def fused_linear(x: Tensor, weight: Tensor, bias: Tensor | None, then: str) -> Tensor:
    """A dense layer and what follows it (`relu` or `none`), computed by oneDNN in one pass."""
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, then, [], "")
    return outputs


@cache
def fusing_works() -> bool:
    """Whether this version of PyTorch has the fused function and it gives the expected result."""
    if not torch.backends.mkldnn.is_available():
        return False
    x, weight, bias = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [-3.0, -4.0]]), torch.ones(2)
    try:
        return torch.equal(fused_linear(x, weight, bias, "relu"), torch.tensor([[12.0, 0.0]]))
    except (AttributeError, RuntimeError, TypeError):
        return False
