"""Map-style data sets of PyTorch, torchvision and Hugging Face, read as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, SupportsInt, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from engram.core.dataset_info import InputKind
from engram.core.errors import InputError
from engram.datasets.formats import Pixels, as_labels
from engram.datasets.inputs import as_inputs

LABELS = ("label", "labels", "target", "fine_label", "class")
"""The names under which an item that is a mapping has its label, in this order."""

SAMPLES = ("input_ids", "pixel_values", "image", "img", "x", "features", "inputs")
"""The names under which an item that is a mapping has its sample, in this order."""


class MapStyle(Protocol):
    """What PyTorch calls a map-style data set: one item for every index below its length.

    An item is `(sample, label)`, or a mapping that has both by name, as in Hugging Face's data sets.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


@runtime_checkable
class _HasNames(Protocol):
    """A feature that knows the names of its classes, as Hugging Face's `ClassLabel` does."""

    names: Sequence[str]


class Items(TorchDataset[Tensor]):
    """The samples of a map-style data set, as tensors of one shape.

    Args:
        pairs: The data set.
        part: `train` or `test`, for messages.
        x: For items that are mappings, the name of the sample (default: a usual one).
        label: For items that are mappings, the name of the label (default: a usual one).
        kind: What a sample is (default: judged by the first one).

    Example:
        >>> rows = [{"input_ids": [4, 0, 7], "label": 1}, {"input_ids": [2, 2, 1], "label": 0}]
        >>> items = Items(rows, "train")
        >>> items[0], items.labels(), items.kind
        (tensor([4, 0, 7]), tensor([1, 0]), 'tokens')
    """

    def __init__(
        self,
        pairs: MapStyle,
        part: str,
        *,
        x: str | None = None,
        label: str | None = None,
        kind: InputKind | None = None,
    ) -> None:
        self._pairs, self._part = pairs, part
        if len(pairs) == 0:
            raise InputError(f"the {part} set is empty: give at least one sample")
        first = pairs[0]
        self._x: str | int = 0
        self._label: str | int = 1
        if isinstance(first, Mapping):
            names = [str(name) for name in first]
            self._label = _name(names, label, LABELS, f"label of the {part} set", "label")
            others = [name for name in names if name != self._label]
            self._x = _name(others, x, SAMPLES, f"sample of the {part} set", "x")
        self.kind: InputKind = as_inputs(self._array(0), self._what(0), kind)[1]
        self._shape = self._tensor(0).shape

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> Tensor:
        sample = self._tensor(index)
        if sample.shape != self._shape:
            raise InputError(
                f"sample {index} of the {self._part} set has shape {tuple(sample.shape)}, "
                f"the first has {tuple(self._shape)}: resize or pad them to one shape"
            )
        return sample

    def _tensor(self, index: int) -> Tensor:
        samples, _ = as_inputs(self._array(index), self._what(index), self.kind)
        return torch.from_numpy(np.array(samples[0], order="C"))

    def _array(self, index: int) -> Pixels:
        """One sample, with an axis before it."""
        sample = self._item(index, self._x)
        if isinstance(sample, Tensor):
            array: Pixels = sample.detach().cpu().numpy()
        else:
            array = as_array(sample, self._what(index))
            if array.ndim == 3 and array.dtype == np.uint8 and array.shape[0] not in (1, 3):
                # A picture of any number of channels, which PIL puts last.
                array = np.moveaxis(array, -1, 0)
        return array[None]

    def _what(self, index: int) -> str:
        return f"sample {index} of the {self._part} set"

    def _item(self, index: int, where: str | int) -> object:
        item = self._pairs[index]
        if isinstance(where, str):
            if not isinstance(item, Mapping) or where not in item:
                raise InputError(f"item {index} of the {self._part} set has no {where!r}, the first one has")
            value: object = item[where]
            return value
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise InputError(
                f"item {index} of the {self._part} set must be (sample, label), or a mapping of both by name"
            )
        return item[where]

    def _label_of(self, index: int) -> int:
        label = self._item(index, self._label)
        if isinstance(label, SupportsInt) and not (isinstance(label, float) and not label.is_integer()):
            return int(label)
        raise InputError(
            f"the label of item {index} of the {self._part} set must be a whole number, got {label!r}"
        )

    def labels(self) -> Tensor:
        """All labels; `targets` is trusted if its ends agree with the items, which a transform may change."""
        count = len(self)
        targets = getattr(self._pairs, "targets", None)
        what = f"the labels of the {self._part} set"
        if targets is not None and len(targets) == count:
            known = np.asarray(targets)
            if all(int(known[i]) == self._label_of(i) for i in (0, count - 1)):
                return torch.from_numpy(as_labels(known, what, samples=count))
        read = np.array([self._label_of(i) for i in range(count)])
        return torch.from_numpy(as_labels(read, what, samples=count))

    def class_names(self) -> tuple[str, ...]:
        """What the data set calls its classes: Hugging Face's features or torchvision's `classes`."""
        features = getattr(self._pairs, "features", None)
        if isinstance(self._label, str) and isinstance(features, Mapping):
            feature = features.get(self._label)
            if isinstance(feature, _HasNames):
                return tuple(map(str, feature.names))
        classes = getattr(self._pairs, "classes", None)
        return tuple(map(str, classes)) if isinstance(classes, list | tuple) else ()


def as_array(values: object, what: str) -> Pixels:
    """Anything that NumPy understands as an array; ragged lists are an error.

    Example:
        >>> as_array([[1, 2], [3]], "x_train")
        Traceback (most recent call last):
        engram.core.errors.InputError: x_train is ragged: its samples must have one shape
    """
    try:
        array: Pixels = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{what} is ragged: its samples must have one shape") from error
    return array


def _name(names: Sequence[str], chosen: str | None, usual: Sequence[str], what: str, option: str) -> str:
    """The name of the label or of the sample in items that are mappings."""
    if chosen is not None:
        if chosen not in names:
            raise InputError(f"the {what} cannot be {chosen!r}: the items have {', '.join(names)}")
        return chosen
    known = [name for name in usual if name in names]
    if known:
        return known[0]
    if len(names) == 1 and option == "x":
        return names[0]
    raise InputError(f"which is the {what}? Its items have {', '.join(names)}: name one with {option}=…")
