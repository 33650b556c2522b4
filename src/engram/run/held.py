"""How many samples a method keeps, counted from the tensors that it really holds."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from engram.methods.state import Stateful


def held_samples(method: object, shape: tuple[int, ...]) -> int:
    """How many inputs of this shape a method holds, besides its networks and its optimiser.

    Images are known by their shape. Inputs that are vectors could be weights as well: they count where as
    many labels lie beside them.

    Example:
        >>> class Keeper:
        ...     memory = None
        >>> keeper = Keeper()
        >>> keeper.memory = [{"x": torch.zeros(5, 1, 8, 8), "y": torch.zeros(5, dtype=torch.int64)}]
        >>> held_samples(keeper, (1, 8, 8)), held_samples(keeper, (3, 8, 8))
        (5, 0)
    """
    found = 0
    for tensors in _neighbours(vars(method)):
        lengths = {len(t) for t in tensors if t.dim() == 1 and not t.is_floating_point()}
        found += sum(
            len(t)
            for t in tensors
            if t.dim() > 1 and tuple(t.shape[1:]) == shape and (len(shape) > 1 or len(t) in lengths)
        )
    return found


def _neighbours(value: object) -> Iterator[list[Tensor]]:
    """The tensors that lie side by side, in one container after the other."""
    if isinstance(value, nn.Module | Optimizer | torch.Generator):
        return
    if isinstance(value, dict):
        inside = list(value.values())
    elif isinstance(value, list | tuple):
        inside = list(value)
    elif isinstance(value, Stateful):
        inside = list(value.state_dict().values())
    else:
        return
    yield [item for item in inside if isinstance(item, Tensor)]
    for item in inside:
        yield from _neighbours(item)
