"""Decoding image files, with Pillow, which is an extra."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from engram.core.errors import InputError
from engram.datasets.formats import Pixels


def pillow() -> ModuleType:
    """Pillow's `Image` module, or one line that says how to get it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("folders of images need Pillow: pip install 'engram-eval[images]'") from error
    return Image


def readable(path: str) -> bool:
    """Whether a file is an image at all (its first bytes say so)."""
    image = pillow()
    try:
        with image.open(path):
            return True
    except (image.UnidentifiedImageError, OSError):
        return False


def shape_of(path: str) -> tuple[int, int, int]:
    """Channels, height and width of an image; anything but grey counts as colour."""
    image = pillow()
    try:
        with image.open(path) as picture:
            return (1 if picture.mode in ("1", "L", "I;16") else 3, picture.height, picture.width)
    except (image.UnidentifiedImageError, OSError) as error:
        raise InputError(f"cannot read the image {path}: {error}; remove or replace it") from error


def decode(path: str, shape: tuple[int, ...]) -> Pixels:
    """An image as uint8 of exactly this shape: channels, height, width.

    Another size is scaled, keeping its proportions, until it just covers the wanted one (bilinear, with
    antialiasing), and cut out at the centre.
    """
    image = pillow()
    channels, height, width = shape
    try:
        with image.open(path) as file:
            picture = file.convert("L" if channels == 1 else "RGB")
    except (image.UnidentifiedImageError, OSError) as error:
        raise InputError(f"cannot read the image {path}: {error}; remove or replace it") from error
    if picture.size != (width, height):
        scale = max(width / picture.width, height / picture.height)
        covering = (max(width, round(picture.width * scale)), max(height, round(picture.height * scale)))
        picture = picture.resize(covering, image.Resampling.BILINEAR)
        left, top = (covering[0] - width) // 2, (covering[1] - height) // 2
        picture = picture.crop((left, top, left + width, top + height))
    return np.array(picture, dtype=np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
