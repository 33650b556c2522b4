"""What a scenario's transforms do to images."""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engram.core.errors import InputError
from engram.scenarios.values import Colour, Grey, Normalise, Pad, Permute, Resize, Rotate, Transform


def prepare(x: Tensor, transforms: Iterable[Transform]) -> Tensor:
    """Images as a network gets them: transformed in order, float32, contiguous.

    Bytes that no `Normalise` scales become fractions of 255; inputs that are numbers already stay, and tokens
    (int64) stay whole numbers.

    Args:
        x: Samples first; images are samples × channels × height × width.
        transforms: What is done to them.

    Example:
        >>> prepare(torch.full((1, 1, 1, 1), 255, dtype=torch.uint8), [Pad(1)])
        tensor([[[[0., 0., 0.],
                  [0., 1., 0.],
                  [0., 0., 0.]]]])
    """
    for transform in transforms:
        if not isinstance(transform, Permute) and x.dim() != 4:
            raise InputError(
                f"{transform.kind} needs images, but the samples have the shape {tuple(x.shape[1:])}"
            )
        x = _apply(x, transform)
    if x.dtype == torch.int64:
        return x.contiguous()
    if x.dtype == torch.uint8:
        x = x.float().div_(255)
    return x.float().contiguous()


def prepared_shape(shape: tuple[int, ...], transforms: Iterable[Transform]) -> tuple[int, ...]:
    """The shape of one sample after the transforms."""
    return tuple(prepare(torch.zeros(1, *shape, dtype=torch.uint8), transforms).shape[1:])


def only_scales(transforms: Iterable[Transform]) -> bool:
    """Whether images are prepared value by value, which takes no longer than copying them.

    Example:
        >>> only_scales([Normalise((0.5,), (0.25,))]), only_scales([Pad(2), Normalise()])
        (True, False)
    """
    return all(isinstance(transform, Normalise) for transform in transforms)


def _apply(x: Tensor, transform: Transform) -> Tensor:
    match transform:
        case Pad(pixels):
            return functional.pad(x, (pixels,) * 4)
        case Grey():
            return x if x.shape[1] == 1 else _as_bytes(_luma(x), x)
        case Colour():
            return x if x.shape[1] == 3 else x.expand(-1, 3, -1, -1)
        case Resize(size):
            if x.shape[2:] == (size, size):
                return x
            scaled = functional.interpolate(x.float(), (size, size), mode="bilinear", antialias=True)
            return _as_bytes(scaled, x)
        case Permute(seed):
            order = pixel_order(seed, x[0].numel())
            return x.flatten(1)[:, order].view(x.shape)
        case Rotate(degrees):
            return _rotated(x, degrees)
        case Normalise(mean, std):
            return _normalised(x, mean, std)
    raise InputError(f"unknown transform {transform!r}")


@lru_cache(maxsize=128)
def pixel_order(seed: int, size: int) -> Tensor:
    """The order of pixels that a permutation's seed stands for."""
    return torch.from_numpy(np.random.RandomState(seed).permutation(size))


def _as_bytes(x: Tensor, like: Tensor) -> Tensor:
    return x.round().clamp(0, 255).to(torch.uint8) if like.dtype == torch.uint8 else x


def _luma(x: Tensor) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    return (x.float() * weights).sum(dim=1, keepdim=True)


def _rotated(x: Tensor, degrees: float) -> Tensor:
    if degrees % 360 == 0:
        return x
    angle = torch.tensor(np.deg2rad(degrees))
    cos, sin, zero = torch.cos(angle), torch.sin(angle), torch.tensor(0.0)
    # The matrix takes a place of the result to the place it comes from; y points down in images.
    turn = torch.stack([torch.stack([cos, -sin, zero]), torch.stack([sin, cos, zero])]).float()
    grid = functional.affine_grid(turn.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    turned = functional.grid_sample(x.float(), grid, mode="nearest", align_corners=False)
    return _as_bytes(turned, x)


def _normalised(x: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    channels = x.shape[1]
    if len(mean) not in (1, channels) or len(std) not in (1, channels):
        raise InputError(
            f"normalise needs one mean and one deviation, or one per channel ({channels}), got {len(mean)} "
            f"and {len(std)}"
        )
    factor, shift = _scaling(mean, std)
    return x.to(torch.float32, copy=True).mul_(factor).add_(shift)


@lru_cache(maxsize=128)
def _scaling(mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """(x / 255 − mean) / std as one factor and one shift, each a single pass over the images."""
    spread = torch.tensor(std, dtype=torch.float64).view(1, -1, 1, 1)
    shift = -torch.tensor(mean, dtype=torch.float64).view(1, -1, 1, 1) / spread
    return (1 / (255 * spread)).float(), shift.float()
