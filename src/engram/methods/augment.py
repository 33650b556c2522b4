"""Data augmentation: images that are cropped and mirrored at random."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from engram.core.values import Batch

Black = tuple[tuple[float, ...], ...]
"""The value of black in each channel, after normalisation: one row for all output units, or one for each."""

BLACK: Black = ((0.0,),)
"""Black where images are not normalised."""


@runtime_checkable
class Crops(Protocol):
    """A method that may crop images: an experiment that augments them tells it what black is."""

    black: Black


def black_of(batch: Batch, black: Black) -> Tensor:
    """The value of black for each sample of a batch and each channel, or one row for all samples.

    Example:
        >>> batch = Batch(torch.zeros(2, 1, 1, 1), torch.tensor([1, 0]), heads=((0, 1),))
        >>> black_of(batch, ((-0.5,), (-2.0,)))
        tensor([[-2.0000],
                [-0.5000]])
    """
    values = torch.tensor(black, device=batch.x.device)
    return values if len(values) == 1 else values[batch.y]


def crop_and_flip(
    x: Tensor, generator: torch.Generator, *, margin: int | None = None, black: Tensor | None = None
) -> Tensor:
    """Images cropped at a random place after padding, and mirrored with probability ½.

    Each image is padded with `margin` black pixels on all sides (default: an eighth of its height, 4 of 32
    pixels), cropped to its size at a place drawn uniformly, and then mirrored left to right with probability
    ½.

    Args:
        x: Samples × channels × height × width.
        generator: Draws places and mirrors.
        margin: The width of the border.
        black: The value of black in each channel, one row per sample or one for all (default: 0).

    Example:
        >>> image = torch.arange(4.0).view(1, 1, 2, 2)
        >>> crop_and_flip(image, torch.Generator().manual_seed(1), margin=0)  # nothing to cut
        tensor([[[[1., 0.],
                  [3., 2.]]]])
    """
    count, channels, height, width = x.shape
    margin = height // 8 if margin is None else margin
    border = torch.zeros(1, 1) if black is None else black
    sides = (height + 2 * margin, width + 2 * margin)
    padded = border.to(x)[:, :, None, None].expand(count, channels, *sides).contiguous()
    padded[:, :, margin : margin + height, margin : margin + width] = x
    down, across = torch.randint(2 * margin + 1, (2, count, 1), generator=generator)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    columns = torch.arange(width).expand(count, -1)
    columns = across + torch.where(mirrored, columns.flip(1), columns)
    rows = down + torch.arange(height)
    samples = torch.arange(count).view(-1, 1, 1)
    # Indices on both sides of a slice put the channels last.
    images = padded[samples, :, rows[:, :, None], columns[:, None, :]]
    return images.permute(0, 3, 1, 2).contiguous()
