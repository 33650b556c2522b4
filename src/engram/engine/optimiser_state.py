"""What an optimiser holds beyond the state that any optimiser of its kind needs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

WIDTH = 3
"""The size of the parameter on which the usual state is found out."""
MOST = 3
"""So many tensors of a parameter's size are usual where the kind of optimiser is unknown, as in AMSGrad."""


def beyond_usual(optimizer: Optimizer) -> Iterator[object]:
    """The entries of an optimiser's state that a plain optimiser with the same settings does not have.

    Example:
        >>> weight = nn.Parameter(torch.zeros(5))
        >>> adam = torch.optim.Adam([weight])
        >>> weight.grad = torch.ones(5)
        >>> adam.step()
        >>> list(beyond_usual(adam))
        []
        >>> adam.state[weight]["more"] = torch.ones(5)
        >>> list(beyond_usual(adam))
        [tensor([1., 1., 1., 1., 1.])]
    """
    owned: set[int] = set()
    for group in optimizer.param_groups:
        usual = _usual(type(optimizer), {name: value for name, value in group.items() if name != "params"})
        for parameter in group["params"]:
            owned.add(id(parameter))
            yield from _more(parameter, optimizer.state.get(parameter, {}), usual)
    for key, state in list(optimizer.state.items()):
        if id(key) not in owned:
            yield from state.values() if isinstance(state, dict) else (state,)


def _more(parameter: Tensor, state: object, usual: dict[str, int] | None) -> Iterator[object]:
    if not isinstance(state, dict):
        yield state
        return
    full = 0
    for name, value in state.items():
        if isinstance(value, Tensor) and not _larger(value, parameter):
            full += value.numel() == parameter.numel() > 1
            if usual is None:
                if value.numel() == 1 or (value.numel() == parameter.numel() and full <= MOST):
                    continue
            elif value.numel() == {1: 1, WIDTH: parameter.numel()}.get(usual.get(name, 0)):
                continue
        yield value


def _larger(value: Tensor, parameter: Tensor) -> bool:
    """Whether a tensor takes more than it needs: a view of a larger storage, or wider numbers."""
    widest = max(parameter.element_size(), 8 if value.numel() == 1 else 0)
    return value.untyped_storage().nbytes() > value.numel() * widest


def _usual(kind: type[Optimizer], options: dict[str, object]) -> dict[str, int] | None:
    """The entries that an optimiser of PyTorch makes for a parameter, with their sizes; None if it is not."""
    ours = "engram.methods.optimizers"
    plain = next(
        (one for one in kind.__mro__ if one.__module__.startswith(("torch.optim.", ours))), Optimizer
    )
    if plain is Optimizer:
        return None
    weight = nn.Parameter(torch.zeros(WIDTH))
    weight.grad = torch.ones(WIDTH)
    try:
        with torch.inference_mode(mode=False):
            optimizer = plain([{"params": [weight], **options}])
            optimizer.step()
    except (TypeError, ValueError, RuntimeError):
        return None
    state = optimizer.state[weight]
    return {name: value.numel() for name, value in state.items() if isinstance(value, Tensor)}
