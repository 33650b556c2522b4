"""What a method retains, measured from the tensors and arrays that it holds, whatever it declares."""

from __future__ import annotations

import array
import io
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from engram.core.values import TaskInfo
from engram.methods.state import Stateful
from engram.models.network import Network

Array: TypeAlias = Tensor | npt.NDArray[np.generic]
Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
"""The shapes of a network's parameters and buffers, by name."""

SHORT_BYTES = 32
"""Byte strings up to this length are names and fingerprints, not data."""
SHORT_INPUT = 16
"""Inputs with fewer values could be anything: they count as samples only if labels are stored with them."""
_PLAIN = (int, float, complex, str, type(None), type, ModuleType, TaskInfo, torch.Generator, torch.device)
_RAW = (bytes, bytearray, memoryview, array.array, io.BytesIO)


class Retained(NamedTuple):
    """What a method retains: bytes beyond its network and its optimiser's state, and samples among them."""

    bytes: int
    samples: int


def shapes_of(network: nn.Module) -> dict[str, Shape]:
    """The shapes of a network's parameters and buffers, to be taken before it learns."""
    return {name: tuple(tensor.shape) for name, tensor in _state(network)}


def retained(
    method: object,
    shape: Shape,
    *,
    network: Shapes | None = None,
    answering: nn.Module | None = None,
) -> Retained:
    """What a method retains besides its network and its optimiser's state.

    Measured at the end of a task by following attributes, containers, closures and the method's class. What
    the network that learns and the network that predicts had before learning does not count, nor do tensors
    of an optimiser's state with the size of their parameter. A sample is recognised by its shape or, where
    it was reshaped, by its number of values: see `_count_samples`.

    Args:
        method: The method.
        shape: The shape of one input.
        network: The shapes of its network before it learned (default: its present shapes).
        answering: The network that predicted last, if it is another one.

    Example:
        >>> class Keeper:
        ...     pass
        >>> keeper = Keeper()
        >>> keeper.memory = deque([(torch.zeros(5, 64), torch.zeros(5, dtype=torch.int64))])
        >>> retained(keeper, (1, 8, 8))
        Retained(bytes=1320, samples=5)
    """
    learning = network_of(method)
    if network is None:
        network = {} if learning is None else shapes_of(learning)
    parameters = set(network.values())
    wide = isinstance(learning, Network) and learning.width == math.prod(shape)
    size, samples = 0, 0
    for group in _groups(method, network, answering):
        size += group.raw_bytes + sum(_size(values) for values in group.counted)
        samples += _count_samples(group.arrays, shape, parameters, wide=wide)
    return Retained(size, samples)


def retained_samples(method: object, shape: Shape) -> int:
    """How many inputs of this shape a method retains, not counting its networks and its optimiser.

    Example:
        >>> class Keeper:
        ...     memory = None
        >>> keeper = Keeper()
        >>> keeper.memory = [{"x": torch.zeros(5, 1, 8, 8), "y": torch.zeros(5, dtype=torch.int64)}]
        >>> retained_samples(keeper, (1, 8, 8)), retained_samples(keeper, (3, 8, 8))
        (5, 0)
    """
    return retained(method, shape).samples


# Which arrays are samples ---------------------------------------------------------------------------


def _count_samples(arrays: list[Array], shape: Shape, parameters: set[Shape], *, wide: bool) -> int:
    """How many samples there are among the arrays of one container.

    Images are recognised by their shape. An array with as many values as an input could also hold weights of
    the first layer, their importance, or features. It counts as samples if as many labels are stored with
    it; if the container has several such arrays that are not the weights of consecutive layers; and on its
    own, if it has several rows, does not have the shape of a weight, and features are not as wide as inputs
    (`wide`). Masks and integers of more than one byte do not count.
    """
    labels = {len(values) for values in arrays if _is_labels(values)}
    certain, candidates = 0, []
    for values in arrays:
        dimensions = tuple(values.shape)
        rows = _rows(dimensions, shape)
        exact = len(shape) > 1 and shape in (dimensions, dimensions[1:])
        if exact or (rows and values.ndim > 1 and dimensions[0] in labels):
            certain += rows
        elif rows and not _is_index(values):
            candidates.append((dimensions, rows))
    if not candidates or math.prod(shape) < SHORT_INPUT:
        return certain
    shapes = {tuple(values.shape) for values in arrays}
    if len(shapes) > 1 and shapes <= parameters:
        return certain
    if len(candidates) > 1:
        return certain + sum(rows for _, rows in candidates)
    [(dimensions, rows)] = candidates
    return certain + (rows if rows > 1 and not wide and dimensions not in parameters else 0)


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


def _is_labels(values: Array) -> bool:
    return values.ndim == 1 and _is_index(values) and "bool" not in str(values.dtype)


def _is_index(values: Array) -> bool:
    return str(values.dtype).removeprefix("torch.") in ("bool", "int16", "int32", "int64")


# Everything that can be reached from a method -------------------------------------------------------


class _Group(NamedTuple):
    """The contents of one container: arrays, those whose bytes count, and the size of raw byte strings."""

    arrays: list[Array]
    counted: list[Array]
    raw_bytes: int


def _groups(method: object, network: Shapes, answering: nn.Module | None) -> Iterator[_Group]:
    """Everything that can be reached from a method, one container after the other."""
    learning = network_of(method)
    # Visited objects are kept alive, so that no two objects have the same id.
    visited: dict[int, object] = {id(method): method}
    for module in (learning, answering):
        if isinstance(module, nn.Module):
            initial = [tensor for name, tensor in _state(module) if network.get(name) == tuple(tensor.shape)]
            visited |= {id(tensor): tensor for tensor in initial}
    waiting: list[object] = [list(vars(method).values()), _class_attributes(method)]
    while waiting:
        container = waiting.pop()
        members = []
        for value in _inside(container):
            if not isinstance(value, _PLAIN) and id(value) not in visited:
                visited[id(value)] = value
                members.append(value)
        group, others = _sorted(members, stateful=isinstance(container, Stateful))
        waiting += others
        if isinstance(container, nn.Module) and container is not learning:
            # The weights of an older network are not samples, nor are the statistics of its batch norm.
            group = group._replace(
                arrays=[
                    values
                    for values in group.arrays
                    if values.ndim > 1 and not isinstance(values, nn.Parameter)
                ]
            )
        yield group


def _sorted(members: Iterable[object], *, stateful: bool) -> tuple[_Group, list[object]]:
    """The members of a container: arrays and raw bytes as a group, and objects to be followed further."""
    group, others = _Group([], [], 0), []
    for value in members:
        values = _array(value)
        if values is not None:
            group.arrays.append(values)
            # The indices of samples in a store follow from the samples.
            if not (_is_labels(values) and stateful):
                group.counted.append(values)
        elif isinstance(value, _RAW):
            group = group._replace(raw_bytes=group.raw_bytes + _raw_size(value))
        else:
            others.append(value)
    return group, others


def _inside(value: object) -> list[object]:
    """The objects that an object holds, one level deep."""
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, Optimizer):
        return _of_optimizer(value)
    if isinstance(value, nn.Module):
        return _of_module(value)
    return [*_items(value), *_attributes(value)]


def _items(value: object) -> Iterable[object]:
    """The items of a container; the closure of a function."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset | deque):
        return value
    if isinstance(value, np.ndarray):
        return list(value.ravel().tolist())
    if isinstance(value, FunctionType):
        return _closed_over(value)
    if isinstance(value, partial):
        return (value.func, value.args, value.keywords)
    return ()


def _attributes(value: object) -> Iterator[object]:
    """The attributes of an object, in its dictionary and in slots."""
    if hasattr(value, "__dict__"):
        yield from vars(value).values()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            yield getattr(value, name, None)


def _of_module(module: nn.Module) -> list[object]:
    """The parameters, buffers and parts of a module, and its plain attributes."""
    members: list[object] = []
    for name, value in vars(module).items():
        members += value.values() if name in ("_parameters", "_buffers", "_modules") else [value]
    return members


def _of_optimizer(optimizer: Optimizer) -> list[object]:
    """What an optimiser holds besides numbers and tensors of its parameters' sizes."""
    members: list[object] = []
    for parameter, state in optimizer.state.items():
        usual = (1, parameter.numel()) if isinstance(parameter, Tensor) else ()
        values = list(state.values()) if isinstance(state, dict) else [state]
        members += [value for value in values if not (isinstance(value, Tensor) and value.numel() in usual)]
    for group in optimizer.param_groups:
        members += [value for name, value in group.items() if name != "params"]
    attributes = [value for name, value in vars(optimizer).items() if name not in ("state", "param_groups")]
    return members + attributes


def _closed_over(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _class_attributes(method: object) -> list[object]:
    """Containers and tensors that all instances of the method share."""
    kinds = (dict, list, set, deque, Tensor, np.ndarray, nn.Module)
    return [
        value
        for kind in type(method).__mro__
        for name, value in vars(kind).items()
        if not name.startswith("__") and isinstance(value, kinds)
    ]


def _array(value: object) -> Array | None:
    """The value if it is an array, or nested lists of many numbers as one."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        return None if value.dtype == object else value
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if first is value or not isinstance(first, float):
        return None
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return numbers if numbers.size >= SHORT_INPUT else None


def network_of(method: object) -> nn.Module | None:
    """The network that a method trains, if it has one in its attribute `network`."""
    # Not a Protocol: isinstance does not see the submodules of a method that is an nn.Module itself.
    network = getattr(method, "network", None)
    return network if isinstance(network, nn.Module) else None


def _state(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from network.named_parameters(remove_duplicate=False)
    yield from network.named_buffers(remove_duplicate=False)


def _size(values: Array) -> int:
    return values.numel() * values.element_size() if isinstance(values, Tensor) else int(values.nbytes)


def _raw_size(
    value: bytes
    | bytearray
    | memoryview
    | array.array[int]
    | array.array[float]
    | array.array[str]
    | io.BytesIO,
) -> int:
    """The size of a byte string; 0 where it is short."""
    size = len(value.getbuffer()) if isinstance(value, io.BytesIO) else memoryview(value).nbytes
    return size if size > SHORT_BYTES else 0
