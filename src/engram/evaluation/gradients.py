"""The gradient probe: how strongly new samples and earlier tasks each contribute to an update."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def gradient_norms(parameters: Iterable[nn.Parameter], new: Tensor, old: Tensor | None) -> dict[str, float]:
    """The Euclidean norms of the two gradients of an update (De Lange et al. 2023, Eq. 8 and 9).

    For a training loop of your own: call it between the forward and the backward pass. The graph is kept, and
    the gradients of the parameters are not changed. Within `engram run` the methods do this themselves, and
    what a method changes in the gradients (GEM, for example) counts as stability.

    Args:
        parameters: The weights that are trained.
        new: The part of the loss on new samples (plasticity).
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
        gradients = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
        squares = [g.double().square().sum() for g in gradients if g is not None]
        return float(torch.stack(squares).sum().sqrt())

    return {"plasticity-gradient": norm(new), "stability-gradient": norm(old)}
