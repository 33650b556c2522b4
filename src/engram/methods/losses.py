"""Losses of a batch, in which only the units of each sample's head compete."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional

from engram.core.values import Batch
from engram.models.heads import head_masks, mask_scores, places_among, scores_of


class Terms(NamedTuple):
    """The two parts of a loss: that of the new samples, and what protects earlier tasks.

    Example:
        >>> import torch
        >>> terms = Terms(torch.tensor(1.0)).plus(torch.tensor(0.5))
        >>> terms.old, terms.total()
        (tensor(0.5000), tensor(1.5000))
    """

    new: Tensor
    old: Tensor | None = None

    def plus(self, old: Tensor) -> Terms:
        """The same with one more term that protects earlier tasks."""
        return Terms(self.new, old if self.old is None else self.old + old)

    def total(self) -> Tensor:
        """The sum, which is minimised."""
        return self.new if self.old is None else self.new + self.old


def batch_loss(logits: Tensor, batch: Batch) -> Terms:
    """Cross-entropy of a batch, separately for new and remembered samples.

    Without weights it is the plain mean, otherwise the weighted sum of the samples' losses.

    Example:
        >>> import torch
        >>> weights = torch.tensor([0.5, 0.5])
        >>> batch = Batch(torch.zeros(2, 1), torch.tensor([0, 1]), heads=((0, 1),), weight=weights, fresh=1)
        >>> batch_loss(torch.zeros(2, 2), batch).old
        tensor(0.3466)
    """
    if batch.weight is None:
        return Terms(cross_entropy(logits, batch))
    losses = cross_entropy(logits, batch, reduction="none") * batch.weight
    if batch.fresh is None or batch.fresh == len(batch):
        return Terms(losses.sum())
    return Terms(losses[: batch.fresh].sum(), losses[batch.fresh :].sum())


def cross_entropy(logits: Tensor, batch: Batch, *, reduction: str = "mean") -> Tensor:
    """Cross-entropy in which only the units of each sample's head compete.

    Example:
        >>> import torch
        >>> batch = Batch(torch.zeros(1, 1), torch.tensor([3]), heads=((0, 1), (2, 3)), head=1)
        >>> round(float(cross_entropy(torch.zeros(1, 4), batch)), 6)  # two units compete: ln 2
        0.693147
    """
    n_units = logits.shape[1]
    if isinstance(batch.head, Tensor):
        allowed = head_masks(batch.heads, n_units, logits.device)[batch.head]
        return functional.cross_entropy(mask_scores(logits, allowed), batch.y, reduction=reduction)
    units = batch.heads[batch.head]
    targets = places_among(batch.y, units, n_units)
    return functional.cross_entropy(scores_of(logits, units), targets, reduction=reduction)
