"""Data augmentation: images that are cropped and mirrored at random."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def crop_and_flip(x: Tensor, generator: torch.Generator, *, margin: int | None = None) -> Tensor:
    """Images cropped at a random place after padding, and mirrored with probability ½.

    Each image is padded with `margin` zeros on all sides (default: an eighth of its height, 4 of 32 pixels),
    cropped to its size at a place drawn uniformly, and then mirrored left to right with probability ½.

    Example:
        >>> image = torch.arange(4.0).view(1, 1, 2, 2)
        >>> crop_and_flip(image, torch.Generator().manual_seed(1), margin=0)  # nothing to cut
        tensor([[[[1., 0.],
                  [3., 2.]]]])
    """
    count, _, height, width = x.shape
    margin = height // 8 if margin is None else margin
    padded = nn.functional.pad(x, (margin, margin, margin, margin))
    down, across = torch.randint(2 * margin + 1, (2, count, 1), generator=generator)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    columns = torch.arange(width).expand(count, -1)
    columns = across + torch.where(mirrored, columns.flip(1), columns)
    rows = down + torch.arange(height)
    samples = torch.arange(count).view(-1, 1, 1)
    # Indices on both sides of a slice put the channels last.
    images = padded[samples, :, rows[:, :, None], columns[:, None, :]]
    return images.permute(0, 3, 1, 2).contiguous()
