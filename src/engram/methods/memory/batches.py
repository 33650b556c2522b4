"""Batches of new and remembered samples, and parts of batches."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from engram.core.values import Batch
from engram.models.heads import head_of_each


def select(batch: Batch, rows: Tensor | slice) -> Batch:
    """Some samples of a batch as a new batch, equally weighted.

    Example:
        >>> select(Batch(torch.zeros(3, 1), torch.tensor([4, 5, 6]), heads=()), slice(1, None)).y
        tensor([5, 6])
    """
    head = batch.head[rows] if isinstance(batch.head, Tensor) else batch.head
    return replace(batch, x=batch.x[rows], y=batch.y[rows], head=head, weight=None, fresh=None)


def join(batch: Batch, remembered: Batch, *, weight: float, remembered_weight: float) -> Batch:
    """New and remembered samples in one batch: the two mean losses, each times its weight, are added.

    Example:
        >>> new = Batch(torch.zeros(2, 1), torch.tensor([0, 0]), heads=((0, 1),))
        >>> old = Batch(torch.zeros(1, 1), torch.tensor([1]), heads=((0, 1),))
        >>> join(new, old, weight=0.5, remembered_weight=0.5).weight
        tensor([0.2500, 0.2500, 0.5000])
    """
    head: int | Tensor = batch.head
    one_head = isinstance(batch.head, int) and isinstance(remembered.head, int)
    if not one_head or batch.head != remembered.head:
        head = torch.cat([head_of_each(batch), head_of_each(remembered)])
    new, old = len(batch), len(remembered)
    weights = batch.x.new_empty(new + old, dtype=torch.float32)
    weights[:new] = weight / new
    weights[new:] = remembered_weight / old
    return replace(
        batch,
        x=torch.cat([batch.x, remembered.x]),
        y=torch.cat([batch.y, remembered.y]),
        head=head,
        weight=weights,
        fresh=new,
    )


def pool(batch: Batch, remembered: Batch) -> Batch:
    """New and remembered samples in one batch, whose loss is one mean over both.

    Example:
        >>> new = Batch(torch.zeros(3, 1), torch.tensor([0, 0, 0]), heads=((0, 1),))
        >>> old = Batch(torch.zeros(1, 1), torch.tensor([1]), heads=((0, 1),))
        >>> pool(new, old).weight
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    share = len(batch) / (len(batch) + len(remembered))
    return join(batch, remembered, weight=share, remembered_weight=1 - share)
