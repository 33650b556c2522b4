"""The loss probe: the cross-entropy of the correct answers."""

from torch import Tensor
from torch.nn import functional

from engram.models.heads import Units, head_masks, mask_scores


def answer_loss(logits: Tensor, y: Tensor, units: Units | None = None) -> Tensor:
    """The cross-entropy of each sample, in which only `units` (all, if None) compete.

    The loss of a label outside `units` is infinite, because the correct answer cannot be given.

    Example:
        >>> import torch
        >>> answer_loss(torch.zeros(1, 4), torch.tensor([1]), units=(0, 1))
        tensor([0.6931])
    """
    if units is not None and len(units) < logits.shape[1]:
        logits = mask_scores(logits, head_masks((units,), logits.shape[1], logits.device)[0])
    return functional.cross_entropy(logits, y, reduction="none")
