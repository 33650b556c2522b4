"""Batches as data loaders make them: which part is the labels, and how one is cut, moved and put together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from engram.core.errors import InputError

Batch: TypeAlias = "Tensor | Mapping[str, object] | Sequence[object]"
"""Some samples: a mapping such as `{"input_ids": …, "labels": …}`, a tuple whose last entry is the labels, or
inputs only."""

LABELS = ("labels", "label", "targets", "target")
"""The keys of a mapping that hold its labels; the first that is there counts."""


def as_batch(batch: object) -> Batch:
    """The batch itself, if it is of a known form.

    Raises:
        InputError: It is not.

    Example:
        >>> as_batch(3)
        Traceback (most recent call last):
        engram.core.errors.InputError: a batch must be a mapping, a tuple or a tensor, got int: ...
    """
    if isinstance(batch, Mapping | tuple | list | Tensor) and len(batch):
        return batch
    kind = "an empty one" if isinstance(batch, Mapping | tuple | list | Tensor) else type(batch).__name__
    raise InputError(
        f"a batch must be a mapping, a tuple or a tensor, got {kind}: "
        "give a DataLoader whose collate_fn returns one"
    )


def labels_of(batch: Batch) -> object | None:
    """The labels of a batch: its entry `labels` or `label`, or the last of a tuple; None without labels.

    Example:
        >>> labels_of({"input_ids": torch.zeros(2, 5), "labels": torch.tensor([0, 1])})
        tensor([0, 1])
        >>> labels_of((torch.zeros(2, 5), torch.zeros(2, 3), torch.tensor([1, 1])))
        tensor([1, 1])
    """
    if isinstance(batch, Mapping):
        return next((batch[key] for key in LABELS if key in batch), None)
    if isinstance(batch, Tensor) or len(batch) < 2:
        return None
    return batch[-1]


def required_labels(batch: Batch) -> object:
    """The labels of a batch.

    Raises:
        InputError: It has none.

    Example:
        >>> required_labels({"input_ids": torch.zeros(2, 5)})
        Traceback (most recent call last):
        engram.core.errors.InputError: a batch has no labels: ...
    """
    labels = labels_of(batch)
    if labels is not None:
        return labels
    parts = f"the keys {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else "inputs only"
    raise InputError(
        "a batch has no labels: give them under the key 'labels', or as the last entry of a tuple; "
        f"got {parts}"
    )


def label_tensor(batch: Batch) -> Tensor:
    """The labels of a batch as one tensor.

    Raises:
        InputError: It has none, or they are of different sizes.
    """
    labels = required_labels(batch)
    try:
        return torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"labels must be one tensor, got {type(labels).__name__} of other things: "
            "say what counts as right with right=, or stack them in collate_fn"
        ) from None


def inputs_of(batch: Batch) -> Batch:
    """The batch without its labels: a mapping, or a tuple of inputs.

    Example:
        >>> list(inputs_of({"input_ids": torch.zeros(2, 5), "labels": torch.tensor([0, 1])}))
        ['input_ids']
    """
    if isinstance(batch, Mapping):
        used = next((key for key in LABELS if key in batch), None)
        return {key: value for key, value in batch.items() if key != used}
    if isinstance(batch, Tensor):
        return (batch,)
    return tuple(batch) if len(batch) < 2 else tuple(batch[:-1])


def samples_in(batch: Batch) -> int:
    """How many samples a batch has.

    Raises:
        InputError: Its inputs and its labels are of different lengths, or it has no tensor or list.

    Example:
        >>> samples_in((torch.zeros(2, 5), torch.tensor([0, 1])))
        2
    """
    inputs, labels = inputs_of(batch), labels_of(batch)
    values = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
    # A tuple may hold its inputs in a mapping.
    first = [
        part for value in values for part in (value.values() if isinstance(value, Mapping) else (value,))
    ]
    sizes = [length for value in first if (length := _length(value)) is not None]
    labelled = _length(labels)
    if not sizes and labelled is None:
        raise InputError(
            "a batch has no samples: none of its parts is a tensor or a list with one per sample"
        )
    if sizes and labelled is not None and sizes[0] != labelled:
        raise InputError(f"a batch has {sizes[0]} inputs but {labelled} labels: give one label per input")
    return sizes[0] if sizes else int(labelled or 0)


def pick(batch: Batch, rows: Tensor | slice, *, of: int) -> Batch:
    """Some samples of a batch; parts that do not have one entry per sample stay as they are.

    Args:
        batch: The batch.
        rows: Which samples: indices, whose tensors are copied, or a slice, whose tensors share memory.
        of: How many samples the batch has.

    Example:
        >>> pick((torch.tensor([5, 6, 7]), ["a", "b", "c"]), torch.tensor([0, 2]), of=3)
        (tensor([5, 7]), ['a', 'c'])
    """
    picked = _picked(batch, rows, of, depth=0)
    assert isinstance(picked, Tensor | Mapping | tuple | list)
    return picked


def move(batch: Batch, device: torch.device | str) -> Batch:
    """The batch with all its tensors on a device.

    Example:
        >>> move({"x": torch.zeros(2), "text": ["a", "b"]}, "cpu")
        {'x': tensor([0., 0.]), 'text': ['a', 'b']}
    """
    moved = _moved(batch, device)
    assert isinstance(moved, Tensor | Mapping | tuple | list)
    return moved


def tensors_in(batch: object) -> list[Tensor]:
    """All tensors of a batch, also those inside its parts.

    Example:
        >>> len(tensors_in({"image": torch.zeros(2), "boxes": [torch.zeros(1), torch.zeros(3)]}))
        3
    """
    if isinstance(batch, Tensor):
        return [batch]
    if isinstance(batch, Mapping):
        return [tensor for value in batch.values() for tensor in tensors_in(value)]
    if isinstance(batch, tuple | list):
        return [tensor for value in batch for tensor in tensors_in(value)]
    return []


def collate(samples: Sequence[object]) -> Batch:
    """A batch of samples that are mappings or tuples, each of numbers, lists of numbers, arrays or text.

    Unlike PyTorch's `default_collate`, a list of numbers is one entry, as in the data sets of Hugging Face.

    Raises:
        InputError: The samples differ in form, or in length.

    Example:
        >>> collate([{"input_ids": [1, 2], "text": "a"}, {"input_ids": [3, 4], "text": "b"}])
        {'input_ids': tensor([[1, 2],
                [3, 4]]), 'text': ['a', 'b']}
    """
    first = samples[0]
    if isinstance(first, Mapping):
        mappings = [sample for sample in samples if isinstance(sample, Mapping)]
        if any(set(sample) != set(first) for sample in mappings) or len(mappings) < len(samples):
            raise InputError(f"all samples must have the keys {', '.join(map(str, first))}; one has others")
        return {key: _stacked([sample[key] for sample in mappings], repr(key)) for key in first}
    if isinstance(first, tuple | list):
        rows = [sample for sample in samples if isinstance(sample, tuple | list)]
        if any(len(sample) != len(first) for sample in rows) or len(rows) < len(samples):
            raise InputError(f"all samples must have {len(first)} entries, as the first has; one has others")
        return tuple(_stacked(entries, f"entry {n}") for n, entries in enumerate(zip(*rows, strict=True)))
    stacked = _stacked(samples, "the samples")
    assert isinstance(stacked, Tensor | Mapping | list)
    return stacked


def as_tensor_or_same(value: object) -> object:
    """Lists and arrays of numbers as a tensor; anything else, such as texts, as it is.

    Example:
        >>> as_tensor_or_same([[1, 2], [3, 4]]).shape, as_tensor_or_same(["a", "b"])
        (torch.Size([2, 2]), ['a', 'b'])
    """
    if not isinstance(value, np.ndarray | list | tuple):
        return value
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        return value


def digest(value: object) -> bytes:
    """A hash of one sample, of the numbers and text in it.

    Example:
        >>> digest({"a": torch.zeros(2), "b": "x"}) == digest({"b": "x", "a": torch.zeros(2)})
        True
        >>> digest((1, 2)) == digest((2, 1))
        False
    """
    made = hashlib.blake2b(digest_size=16)
    _feed(made, value)
    return made.digest()


def _feed(made: hashlib.blake2b, value: object) -> None:
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        made.update(f"{value.dtype} {tuple(value.shape)} ".encode())
        made.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    elif isinstance(value, np.ndarray):
        made.update(f"{value.dtype} {value.shape} ".encode() + value.tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            made.update(f"key {key} ".encode())
            _feed(made, value[key])
    elif isinstance(value, tuple | list):
        made.update(f"{len(value)} items ".encode())
        for item in value:
            _feed(made, item)
    else:
        plain = value is None or isinstance(value, str | bytes | int | float | complex)
        made.update((repr(value) if plain else type(value).__name__).encode())


def _length(value: object) -> int | None:
    """How many entries a value has, one per sample; None for what has none."""
    if isinstance(value, Tensor | np.ndarray):
        return len(value) if value.ndim else None
    return len(value) if isinstance(value, tuple | list) else None


def _picked(value: object, rows: Tensor | slice, of: int, *, depth: int) -> object:
    if isinstance(value, Tensor) and value.ndim and len(value) == of:
        return value[rows if isinstance(rows, slice) else rows.to(value.device)]
    if isinstance(value, np.ndarray) and value.ndim and len(value) == of:
        return value[rows if isinstance(rows, slice) else rows.numpy()]
    if isinstance(value, Mapping):
        return {key: _picked(item, rows, of, depth=depth + 1) for key, item in value.items()}
    # The outermost tuple or list is that of the parts, not of the samples.
    if isinstance(value, tuple | list) and depth == 0:
        return _rebuilt(value, [_picked(item, rows, of, depth=1) for item in value])
    if isinstance(value, tuple | list) and len(value) == of:
        return list(value[rows]) if isinstance(rows, slice) else [value[row] for row in rows.tolist()]
    return value


def _moved(value: object, device: torch.device | str) -> object:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _moved(item, device) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return _rebuilt(value, [_moved(item, device) for item in value])
    return value


def _rebuilt(value: Sequence[object], items: list[object]) -> Sequence[object]:
    """A tuple, a named tuple or a list as `value` is, of other items."""
    if not isinstance(value, tuple):
        return items
    make = getattr(type(value), "_make", None)
    return tuple(items) if make is None else tuple.__new__(type(value), items)


def _stacked(entries: Sequence[object], what: str) -> object:
    """The entries of several samples as one tensor; text and other things as a list, mappings as one."""
    if isinstance(entries[0], Mapping):
        return collate(entries)
    try:
        tensors = [torch.as_tensor(entry) for entry in entries]
    except (TypeError, ValueError, RuntimeError):
        return list(entries)
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        raise InputError(
            f"samples have {what} of different shapes, such as {' and '.join(map(str, sorted(shapes)[:2]))}: "
            "give a DataLoader whose collate_fn pads them, or pad them to one length"
        )
    return torch.stack(tensors)
