"""What a method retains, measured from the tensors and arrays that it holds, whatever it declares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from engram.engine.reach import (
    SHORT_INPUT,
    Array,
    Names,
    Shape,
    Shapes,
    groups,
    initial_tensors,
    is_index,
    is_labels,
    state_of,
)
from engram.engine.reach import network_of as network_of
from engram.models.network import Network

STATISTICS = 4
"""So many arrays of one container may have a row per class: means, variances, least and largest values."""


class Known(TypedDict):
    """What is known of a run before its method learns.

    Attributes:
        network: The shapes of the network's parameters and buffers.
        modules: The names of Python modules.
        few: So many samples in one place could be means, of all classes or of all data. With 0, nothing is
            doubtful.
    """

    network: Shapes
    modules: NotRequired[Names]
    few: NotRequired[int]


class Retained(NamedTuple):
    """What a method retains: bytes beyond its network and its optimiser's state, and samples among them.

    Attributes:
        bytes: Bytes of storages and byte strings.
        samples: Samples among them.
        doubtful: Arrays that could also be something else, such as means of many samples, or projectors.
    """

    bytes: int
    samples: int
    doubtful: tuple[Array, ...] = ()


def shapes_of(network: nn.Module) -> dict[str, Shape]:
    """The shapes of a network's parameters and buffers, to be taken before it learns."""
    return {name: tuple(tensor.shape) for name, tensor in state_of(network)}


def retained(
    method: object,
    shape: Shape,
    *,
    network: Shapes | None = None,
    answering: nn.Module | None = None,
    modules: Names = (),
    few: int = 0,
) -> Retained:
    """What a method retains besides its network and its optimiser's state.

    Measured at the end of a task by following attributes, containers, closures, running generators, graphs,
    the method's class and the globals that its code uses (`engram.engine.reach`). What the network that
    learns and the network that predicts had before learning does not count, nor does what any optimiser of
    this kind holds. Bytes are those of storages, each counted once. A sample is recognised by its shape or,
    where it was reshaped, by its number of values: see `_samples`.

    Args:
        method: The method.
        shape: The shape of one input.
        network: The shapes of its network before it learned (default: its present shapes).
        answering: The network that predicted last, if it is another one.
        modules: The names of Python modules before: what was added is followed.
        few: Up to so many samples in one place are doubtful: they could be means of many. Whatever has only
            the size of samples is doubtful as well, also with labels if it could be features or weights. With
            0, nothing is.

    Example:
        >>> from collections import deque
        >>> import torch
        >>> class Keeper:
        ...     pass
        >>> keeper = Keeper()
        >>> keeper.memory = deque([(torch.zeros(5, 64), torch.zeros(5, dtype=torch.int64))])
        >>> retained(keeper, (1, 8, 8))
        Retained(bytes=1320, samples=5, doubtful=())
    """
    learning = network_of(method)
    if network is None:
        network = {} if learning is None else shapes_of(learning)
    parameters = set(network.values())
    wide = isinstance(learning, Network) and learning.width == math.prod(shape)
    storages = _Storages()
    size, samples, doubtful = storages.beyond(initial_tensors(method, network, answering)), 0, []
    for group in groups(method, network, answering, modules):
        size += group.raw_bytes + sum(storages.add(values) for values in group.counted)
        certain, possible = _samples(group.arrays, shape, parameters, wide=wide)
        if not few:
            samples += _rows_of(certain + possible, shape)
            continue
        doubtful += possible
        if _could_be_means(certain, shape, few):
            doubtful += certain
        else:
            samples += _rows_of(certain, shape)
    return Retained(size, samples, tuple(doubtful))


# Which arrays are samples ---------------------------------------------------------------------------


def _samples(
    arrays: list[Array], shape: Shape, parameters: set[Shape], *, wide: bool
) -> tuple[list[Array], list[Array]]:
    """Which arrays of one container hold samples, and which others could.

    Images are recognised by their shape, and others if as many labels are stored with them. Another array
    with as many values as an input could also hold weights of the first layer, their importance, or features.
    It is possible that it holds samples if the container has several such arrays that are not the weights of
    consecutive layers; and on its own, if it has several rows, does not have the shape of a weight, and
    features are not as wide as inputs (`wide`). With labels it is always possible: these could also be counts
    per unit beside an importance, or the labels of features. Masks and integers of more than one byte do not
    count.
    """
    labels = {len(values) for values in arrays if is_labels(values)}
    square = (math.prod(shape),) * 2
    certain: list[Array] = []
    labelled: list[Array] = []
    possible: list[Array] = []
    for values in arrays:
        dimensions = tuple(values.shape)
        rows = _rows(dimensions, shape)
        exact = len(shape) > 1 and shape in (dimensions, dimensions[1:])
        if exact:
            certain.append(values)
        elif rows and values.ndim > 1 and dimensions[0] in labels:
            other = wide or dimensions == square or dimensions in parameters
            (labelled if other else certain).append(values)
        elif rows and not is_index(values):
            possible.append(values)
    if not possible or math.prod(shape) < SHORT_INPUT:
        return certain, labelled
    shapes = {tuple(values.shape) for values in arrays}
    if len(shapes) > 1 and shapes <= parameters:
        return certain, labelled
    dimensions = tuple(possible[0].shape)
    alone = _rows(dimensions, shape) > 1 and not wide and dimensions not in parameters
    return certain, labelled + (possible if len(possible) > 1 or alone else [])


def _could_be_means(arrays: list[Array], shape: Shape, few: int) -> bool:
    """Whether arrays have so few rows that these could be means, or a few statistics of each class."""
    most = max((_rows(tuple(values.shape), shape) for values in arrays), default=0)
    return _rows_of(arrays, shape) <= few or (len(arrays) <= STATISTICS and most <= few)


def _rows_of(arrays: list[Array], shape: Shape) -> int:
    return sum(_rows(tuple(values.shape), shape) for values in arrays)


def _rows(dimensions: Shape, shape: Shape) -> int:
    """How many inputs an array with these dimensions could hold.

    Example:
        >>> [_rows(shape, (1, 8, 8)) for shape in ((5, 1, 8, 8), (5, 64), (2, 5, 8, 8), (8, 8), (5, 7))]
        [5, 5, 10, 1, 0]
    """
    values = math.prod(shape)
    for start in range(1, len(dimensions)):
        if math.prod(dimensions[start:]) == values:
            return math.prod(dimensions[:start])
    return int(math.prod(dimensions) == values)


# Bytes ----------------------------------------------------------------------------------------------


class _Storages:
    """The storages of arrays: each counts once and as a whole, however many views of it there are."""

    def __init__(self) -> None:
        self._known: dict[object, object] = {}

    def add(self, values: Array) -> int:
        """The bytes of an array's storage; 0 if it was added before."""
        key, size, owner = _storage(values)
        if key in self._known:
            return 0
        self._known[key] = owner
        return size

    def beyond(self, tensors: Iterable[Tensor]) -> int:
        """The bytes of storages that are larger than the tensors of a network that lie in them."""
        needed: dict[object, int] = {}
        for tensor in {id(tensor): tensor for tensor in tensors}.values():
            key, _, _ = _storage(tensor)
            needed[key] = needed.get(key, 0) - tensor.numel() * tensor.element_size()
            self._known.setdefault(key, tensor)
        sizes = {_storage(tensor)[0]: _storage(tensor)[1] for tensor in tensors}
        return sum(max(0, size + needed[key]) for key, size in sizes.items())


_COMPRESSED_ROWS, _COMPRESSED_COLUMNS = (
    ("values", "crow_indices", "col_indices"),
    ("values", "ccol_indices", "row_indices"),
)
_SPARSE = {
    torch.sparse_coo: ("_values", "_indices"),
    torch.sparse_csr: _COMPRESSED_ROWS,
    torch.sparse_bsr: _COMPRESSED_ROWS,
    torch.sparse_csc: _COMPRESSED_COLUMNS,
    torch.sparse_bsc: _COMPRESSED_COLUMNS,
}
"""The methods that give the tensors which a sparse tensor consists of."""


def _storage(values: Array) -> tuple[object, int, object]:
    """What identifies an array's storage, its size in bytes, and an object that keeps it alive."""
    if isinstance(values, np.ndarray):
        root: object = values
        while isinstance(root, np.ndarray) and root.base is not None:
            root = root.base
        if isinstance(root, Tensor):
            return _storage(root)
        size = int(root.nbytes) if isinstance(root, np.ndarray) else int(values.nbytes)
        return id(root), size, root
    parts = _SPARSE.get(values.layout)
    if parts is not None:
        of_parts = [_storage(getattr(values, name)()) for name in parts]
        return of_parts[0][0], sum(size for _, size, _ in of_parts), values
    try:
        storage = values.untyped_storage()
    except NotImplementedError:
        # What PyTorch raises for layouts that show no memory, such as oneDNN's own.
        return id(values), values.numel() * values.element_size(), values
    return ("torch", storage._cdata), storage.nbytes(), values
