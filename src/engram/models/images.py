"""What all networks that look at images ask of their input."""

import torch
from torch import Tensor, nn

from engram.core.errors import InputError


def image_shape(model: str, shape: tuple[int, ...], *, smallest: int = 1) -> tuple[int, int, int]:
    """Channels, height and width, if samples are images that are large enough.

    Example:
        >>> image_shape("cnn", (64,))
        Traceback (most recent call last):
        engram.core.errors.InputError: model cnn needs images, not samples of shape (64,): use mlp
    """
    if len(shape) != 3:
        raise InputError(f"model {model} needs images, not samples of shape {shape}: use mlp")
    channels, height, width = shape
    if min(height, width) < smallest:
        raise InputError(
            f"model {model} needs images of at least {smallest}×{smallest} pixels, not {height}×{width}: "
            "enlarge them, or use mlp"
        )
    return channels, height, width


def output_shape(layers: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what comes out of `layers` for one sample; asking neither learns nor draws anything.

    Example:
        >>> output_shape(nn.MaxPool2d(2), (3, 8, 8))
        (3, 4, 4)
    """
    training = layers.training
    with torch.no_grad():
        out: Tensor = layers.eval()(torch.zeros(1, *shape))
    layers.train(training)
    return tuple(out.shape[1:])
