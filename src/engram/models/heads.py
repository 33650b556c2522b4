"""Heads: which output units compete for a sample, and the scores of these units.

A network has one linear layer with units for all classes. A head is a set of these units, and an unknown
number of classes is a mask over them. Losses, distillation, replay and evaluation all use the functions
below.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from engram.core.values import Batch, Heads

Units = tuple[int, ...]
"""Output units in ascending order."""


@lru_cache(maxsize=256)
def head_masks(heads: Heads, n_units: int, device: torch.device) -> Tensor:
    """One row per head: which of the output units compete in it.

    Example:
        >>> head_masks(((0,), (1, 2)), 3, torch.device("cpu")).int()
        tensor([[1, 0, 0],
                [0, 1, 1]], dtype=torch.int32)
    """
    # Masks are cached, and must be usable in training even if an evaluation asks for them first.
    with torch.inference_mode(mode=False):
        masks = torch.zeros(len(heads), n_units, dtype=torch.bool)
        for row, units in enumerate(heads):
            masks[row, list(units)] = True
        return masks.to(device)


def head_of_each(batch: Batch) -> Tensor:
    """The head of each sample, even if the batch has a single one for all.

    Example:
        >>> head_of_each(Batch(torch.zeros(2, 1), torch.tensor([2, 3]), heads=((0, 1), (2, 3)), head=1))
        tensor([1, 1])
    """
    if isinstance(batch.head, Tensor):
        return batch.head
    return torch.full_like(batch.y, batch.head)


def allowed_units(batch: Batch, n_units: int) -> Tensor:
    """One row per sample: which of the output units compete for it.

    Example:
        >>> batch = Batch(torch.zeros(2, 1), torch.tensor([0, 1]), heads=((0, 1), (2,)), head=0)
        >>> allowed_units(batch, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 0]], dtype=torch.int32)
    """
    masks = head_masks(batch.heads, n_units, batch.x.device)
    if isinstance(batch.head, Tensor):
        return masks[batch.head]
    return masks[batch.head].expand(len(batch), -1)


def mask_scores(scores: Tensor, allowed: Tensor) -> Tensor:
    """The scores with −∞ for every unit that does not compete.

    Args:
        scores: Samples × units.
        allowed: Which units compete: one row per sample, or one row for all.

    Example:
        >>> mask_scores(torch.tensor([[3.0, 1.0]]), torch.tensor([False, True]))
        tensor([[-inf, 1.]])
    """
    return scores.masked_fill(~allowed, -torch.inf)


def scores_of(scores: Tensor, units: Units | None) -> Tensor:
    """The scores of some units alone: a view where they are adjacent, all of them where `units` is None.

    Example:
        >>> scores_of(torch.arange(4.0)[None], (1, 3))
        tensor([[1., 3.]])
    """
    if units is None or len(units) == scores.shape[1]:
        return scores
    if _adjacent(units):
        return scores[:, units[0] : units[-1] + 1]
    return scores[:, torch.tensor(units, device=scores.device)]


def copied_scores(scores: Tensor, units: Sequence[int]) -> Tensor:
    """The scores of some units, in the order given, as a new tensor.

    Example:
        >>> copied_scores(torch.arange(4.0)[None], (3, 0))
        tensor([[3., 0.]])
    """
    return scores[:, list(units)]


def places_among(y: Tensor, units: Units, n_units: int) -> Tensor:
    """Labels as positions among the units of a head, in the order of `scores_of`.

    Example:
        >>> places_among(torch.tensor([3]), (1, 3), 4)
        tensor([1])
    """
    if len(units) == n_units:
        return y
    if _adjacent(units):
        return y - units[0] if units[0] else y
    return torch.searchsorted(torch.tensor(units, device=y.device), y)


def units_at(places: Tensor, units: Units | None, n_units: int) -> Tensor:
    """The inverse of `places_among`: from positions among the units of a head to output units.

    Example:
        >>> units_at(torch.tensor([1]), (1, 3), 4)
        tensor([3])
    """
    if units is None or len(units) == n_units:
        return places
    if _adjacent(units):
        return places + units[0]
    return torch.tensor(units, device=places.device)[places]


def _adjacent(units: Units) -> bool:
    return units[-1] - units[0] + 1 == len(units)
