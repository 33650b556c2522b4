"""The gradient probe: how strongly an update is pulled towards the new, and towards the old."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def gradient_norms(parameters: Iterable[nn.Parameter], new: Tensor, old: Tensor | None) -> dict[str, float]:
    """The Euclidean norms of an update's two gradients (000, Eq. 8 and 9), for anybody's loop.

    To be called between the forward and the backward pass; the graph is kept, and no gradient that the
    parameters hold is changed. Within `engram run` the methods do this themselves, so that changes made to
    gradients (GEM) count as pull towards the old.

    Args:
        parameters: The weights that learn.
        new: The part of the loss that is about new samples (plasticity).
        old: The rest: remembered samples, penalties, distillation (stability); None where there is none.

    Example:
        >>> weight = nn.Parameter(torch.tensor([1.0]))
        >>> gradient_norms([weight], (3 * weight).sum(), (-4 * weight).sum())
        {'plasticity-gradient': 3.0, 'stability-gradient': 4.0}
    """
    weights = [p for p in parameters if p.requires_grad]

    def norm(loss: Tensor | None) -> float:
        if loss is None or not loss.requires_grad:
            return 0.0
        found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
        return float(torch.stack([g.double().square().sum() for g in found if g is not None]).sum().sqrt())

    return {"plasticity-gradient": norm(new), "stability-gradient": norm(old)}
