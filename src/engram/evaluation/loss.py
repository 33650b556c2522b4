"""The loss probe: how sure the network is of the right answers."""

import torch
from torch import Tensor
from torch.nn import functional


def answer_loss(logits: Tensor, y: Tensor, units: tuple[int, ...] | None = None) -> Tensor:
    """Each sample's cross-entropy, with only `units` (all, if None) in the competition.

    A label outside `units` costs infinity: the right answer cannot be given.

    Example:
        >>> answer_loss(torch.zeros(1, 4), torch.tensor([1]), units=(0, 1))
        tensor([0.6931])
    """
    if units is not None and len(units) < logits.shape[1]:
        allowed = torch.zeros(logits.shape[1], dtype=torch.bool, device=logits.device)
        allowed[list(units)] = True
        logits = logits.masked_fill(~allowed, -torch.inf)
    return functional.cross_entropy(logits, y, reduction="none")
