"""The accuracy probe: which samples are answered correctly."""

import torch
from torch import Tensor


def answered_right(logits: Tensor, y: Tensor, units: tuple[int, ...] | None = None) -> Tensor:
    """For each sample, whether the highest score among `units` (all, if None) is that of its label.

    The first of several equally high scores is the answer. A score that is not a number is never right.

    Example:
        >>> answered_right(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([2]))
        tensor([False])
        >>> answered_right(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([2]), units=(1, 2))
        tensor([True])
    """
    if units is None or len(units) == logits.shape[1]:
        best, answer = logits.max(dim=1)
        return (answer == y) & ~best.isnan()
    if units[-1] - units[0] + 1 == len(units):
        best, answer = logits[:, units[0] : units[-1] + 1].max(dim=1)
        return (answer + units[0] == y) & ~best.isnan()
    index = torch.tensor(units, device=logits.device)
    best, answer = logits[:, index].max(dim=1)
    return (index[answer] == y) & ~best.isnan()
