"""The accuracy probe: which samples are classified correctly."""

from torch import Tensor

from engram.models.heads import Units, scores_of, units_at


def answered_right(logits: Tensor, y: Tensor, units: Units | None = None) -> Tensor:
    """For each sample, whether the highest score among `units` (all, if None) is that of its label.

    The first of several equally high scores is the answer. A NaN score is never right.

    Example:
        >>> import torch
        >>> answered_right(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([2]))
        tensor([False])
        >>> answered_right(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([2]), units=(1, 2))
        tensor([True])
    """
    best, place = scores_of(logits, units).max(dim=1)
    return (units_at(place, units, logits.shape[1]) == y) & ~best.isnan()
