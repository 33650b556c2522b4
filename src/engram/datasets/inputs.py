"""What samples are, by their type and axes: images, tables, tokens, series or volumes."""

from __future__ import annotations

import numpy as np

from engram.core.dataset_info import INPUT_KINDS, InputKind
from engram.core.errors import InputError, unknown_name
from engram.datasets.formats import Pixels, as_bytes, channels_first

_CHANNELS = (1, 3)


def kind_of(array: Pixels) -> InputKind:
    """What samples are taken for, judged by their type and by the axes of one sample.

    Bytes (uint8) with two axes or three are images. Otherwise one axis is a table, or tokens if the numbers
    are whole and not negative; two are a series (time × channels); three are an image if the first or the
    last of them has length 1 or 3; anything else is a volume.

    Args:
        array: The samples, which are its first axis.

    Example:
        >>> [kind_of(np.zeros(shape)) for shape in [(5, 9), (5, 20, 2), (5, 3, 8, 8), (5, 8, 8, 8)]]
        ['table', 'series', 'image', 'volume']
        >>> kind_of(np.zeros((5, 8, 8), np.uint8)), kind_of(np.zeros((5, 9), np.int64))
        ('image', 'tokens')
    """
    axes = array.ndim - 1
    if array.dtype == np.uint8 and axes in (2, 3):
        return "image"
    if axes == 1:
        whole = np.issubdtype(array.dtype, np.integer) and array.dtype != np.uint8
        return "tokens" if whole and array.size and array.min() >= 0 else "table"
    if axes == 2:
        return "series"
    if axes == 3 and (array.shape[1] in _CHANNELS or array.shape[-1] in _CHANNELS):
        return "image"
    return "volume"


def as_inputs(array: Pixels, what: str, kind: InputKind | None = None) -> tuple[Pixels, InputKind]:
    """Samples in the type that networks get, and what they are.

    Bytes stay bytes (they are scaled to 0 to 1 when a network gets them), tokens become int64, and all other
    numbers float32 with their values. Images get their channels first, and grey ones a channel; nothing else
    gets an axis.

    Args:
        array: The samples, which are its first axis.
        what: What messages call them.
        kind: What they are (default: `kind_of`).

    Raises:
        InputError: They are no numbers, not finite, or cannot be what they are said to be.

    Example:
        >>> samples, kind = as_inputs(np.zeros((5, 20, 2)), "x_train")
        >>> samples.dtype, samples.shape, kind
        (dtype('float32'), (5, 20, 2), 'series')
        >>> as_inputs(np.zeros((5, 9)), "x_train", "image")
        Traceback (most recent call last):
        engram.core.errors.InputError: x_train has samples of shape (9,), which are no images: ...
    """
    if array.dtype == object:
        raise InputError(f"{what} is ragged or holds objects: its samples must be numbers of one shape")
    if not (np.issubdtype(array.dtype, np.integer) or array.dtype.kind in "bf"):
        raise InputError(f"{what} holds {array.dtype}: its samples must be numbers")
    if array.ndim < 2:
        raise InputError(f"{what} has shape {array.shape}: its first axis must be the samples")
    chosen = kind_of(array) if kind is None else kind
    if chosen not in INPUT_KINDS:
        raise unknown_name("kind of input", chosen, INPUT_KINDS)
    if chosen == "image":
        return _images(array, what), chosen
    if chosen == "tokens":
        return _tokens(array, what), chosen
    return array if array.dtype == np.uint8 else _numbers(array, what), chosen


def _images(array: Pixels, what: str) -> Pixels:
    if array.ndim not in (3, 4):
        raise InputError(
            f"{what} has samples of shape {array.shape[1:]}, which are no images: these have two axes or "
            "three"
        )
    whole = np.issubdtype(array.dtype, np.integer)
    return channels_first(as_bytes(array, what) if whole else _numbers(array, what))


def _tokens(array: Pixels, what: str) -> Pixels:
    whole = np.issubdtype(array.dtype, np.integer)
    if not whole or (array.size and array.min() < 0):
        raise InputError(f"{what} holds {array.dtype}: tokens are whole numbers from 0")
    return array.astype(np.int64)


def _numbers(array: Pixels, what: str) -> Pixels:
    numbers = array.astype(np.float32)
    if not np.isfinite(numbers).all():
        raise InputError(f"{what} has values that are not finite: remove them first")
    return numbers
