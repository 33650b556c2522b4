"""What a method keeps, counted from the tensors and arrays that it really holds, whatever it declares."""

from __future__ import annotations

import array
import io
import math
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from engram.core.values import TaskInfo
from engram.methods.state import Stateful

Array = Tensor | np.ndarray[Any, Any]
Shapes = Mapping[str, tuple[int, ...]]
"""The shapes of a network's parameters and buffers, by name."""

SHORT_BYTES = 32
"""Strings of bytes up to this length are names and fingerprints, no data."""
SHORT_INPUT = 16
"""Inputs with fewer values look like anything: they count as samples only where labels lie beside them."""
_PLAIN = (int, float, complex, str, type(None), type, ModuleType, TaskInfo, torch.Generator, torch.device)


class Held(NamedTuple):
    """What was found: bytes beyond the network and its optimiser's state, and samples among them."""

    bytes: int
    samples: int


def shapes_of(network: nn.Module) -> dict[str, tuple[int, ...]]:
    """What a network consists of before it learns."""
    return {name: tuple(tensor.shape) for name, tensor in _state(network)}


def held(
    method: object,
    shape: tuple[int, ...],
    *,
    network: Shapes | None = None,
    answering: nn.Module | None = None,
) -> Held:
    """What a method holds besides its network and its optimiser's state.

    Found by following attributes, containers, closures and the method's class, at the end of a task. Of the
    network that learns, and of the one that answers, what was there before learning is left out, and of an
    optimiser's state what has the size of its parameter. A sample is known by its shape or, where it was
    given another one, by its number of values: see `_samples`.

    Args:
        method: The method.
        shape: The shape of one input.
        network: What its network consisted of before it learned; as it is now unless given.
        answering: The network that answered last, if it is another one.

    Example:
        >>> class Keeper:
        ...     pass
        >>> keeper = Keeper()
        >>> keeper.memory = deque([(torch.zeros(5, 64), torch.zeros(5, dtype=torch.int64))])
        >>> held(keeper, (1, 8, 8))
        Held(bytes=1320, samples=5)
    """
    own = getattr(method, "network", None)
    if network is None:
        network = shapes_of(own) if isinstance(own, nn.Module) else {}
    parameters = set(network.values())
    wide = getattr(own, "width", None) == math.prod(shape)
    kept, samples = 0, 0
    for group in _groups(method, network, answering):
        kept += group.others + sum(_size(each) for each in group.counted)
        samples += _samples(group.arrays, shape, parameters, wide=wide)
    return Held(kept, samples)


def held_samples(method: object, shape: tuple[int, ...]) -> int:
    """How many inputs of this shape a method holds, besides its networks and its optimiser.

    Example:
        >>> class Keeper:
        ...     memory = None
        >>> keeper = Keeper()
        >>> keeper.memory = [{"x": torch.zeros(5, 1, 8, 8), "y": torch.zeros(5, dtype=torch.int64)}]
        >>> held_samples(keeper, (1, 8, 8)), held_samples(keeper, (3, 8, 8))
        (5, 0)
    """
    return held(method, shape).samples


def _samples(
    arrays: list[Array], shape: tuple[int, ...], parameters: set[tuple[int, ...]], *, wide: bool
) -> int:
    """How many samples there are among arrays that lie side by side.

    Images are known by their shape. What has as many values as an input could also be weights of the first
    layer, their importance, or features. It counts where as many labels lie beside it; where several such
    arrays lie together that are not the weights of layer after layer; and alone, where it has several rows,
    is no weight, and features are not as wide as inputs. Masks and whole numbers of more than a byte do not.
    """
    labels = {len(each) for each in arrays if _is_labels(each)}
    sure, unsure = 0, []
    for each in arrays:
        found = tuple(each.shape)
        rows = _rows(found, shape)
        exact = len(shape) > 1 and shape in (found, found[1:])
        if exact or (rows and each.ndim > 1 and found[0] in labels):
            sure += rows
        elif rows and not _is_index(each):
            unsure.append((each, rows))
    if not unsure or math.prod(shape) < SHORT_INPUT:
        return sure
    shapes = {tuple(each.shape) for each in arrays}
    if len(shapes) > 1 and shapes <= parameters:
        return sure
    if len(unsure) > 1:
        return sure + sum(rows for _, rows in unsure)
    [(alone, rows)] = unsure
    return sure + (rows if rows > 1 and not wide and tuple(alone.shape) not in parameters else 0)


def _rows(found: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """How many inputs an array of some shape could be.

    Example:
        >>> [_rows(found, (1, 8, 8)) for found in ((5, 1, 8, 8), (5, 64), (2, 5, 8, 8), (8, 8), (5, 7))]
        [5, 5, 10, 1, 0]
    """
    values = math.prod(shape)
    for start in range(1, len(found)):
        if math.prod(found[start:]) == values:
            return math.prod(found[:start])
    return int(math.prod(found) == values)


class _Group(NamedTuple):
    """What lies side by side: arrays, those of them whose bytes count, and the bytes of anything else."""

    arrays: list[Array]
    counted: list[Array]
    others: int


def _groups(method: object, network: Shapes, answering: nn.Module | None) -> Iterator[_Group]:
    """Everything that can be reached from a method, one container after the other."""
    # What was met stays alive while others are followed, so that no two of them have the same number.
    met: dict[int, object] = {id(method): method}
    own = getattr(method, "network", None)
    for module in (own, answering):
        if isinstance(module, nn.Module):
            before = [tensor for name, tensor in _state(module) if network.get(name) == tuple(tensor.shape)]
            met |= {id(tensor): tensor for tensor in before}
    waiting: list[object] = [list(vars(method).values()), _class_attributes(method)]
    while waiting:
        of = waiting.pop()
        group = _Group([], [], 0)
        for value in _inside(of):
            if isinstance(value, _PLAIN) or id(value) in met:
                continue
            met[id(value)] = value
            found = _array(value)
            if found is not None:
                group.arrays.append(found)
                # Places of samples in a store follow from what it stores.
                if not (_is_labels(found) and isinstance(of, Stateful)):
                    group.counted.append(found)
            elif isinstance(value, bytes | bytearray | memoryview | array.array | io.BytesIO):
                size = len(value.getbuffer()) if isinstance(value, io.BytesIO) else memoryview(value).nbytes
                group = group._replace(others=group.others + (size if size > SHORT_BYTES else 0))
            else:
                waiting.append(value)
        if isinstance(of, nn.Module) and of is not own:
            # The weights of an older network are no samples, nor are the statistics of its batch norm.
            group = group._replace(
                arrays=[each for each in group.arrays if each.ndim > 1 and not isinstance(each, nn.Parameter)]
            )
        yield group


def _inside(value: object) -> list[object]:
    """What something holds, one level deep."""
    found: list[object] = []
    if isinstance(value, dict):
        found += value.values()
    elif isinstance(value, list | tuple | set | frozenset | deque):
        found += value
    elif isinstance(value, np.ndarray):
        found += value.ravel().tolist()
    elif isinstance(value, FunctionType):
        found += _closed_over(value)
    elif isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    elif isinstance(value, partial):
        found += [value.func, value.args, value.keywords]
    elif isinstance(value, Optimizer):
        return _of_optimizer(value)
    elif isinstance(value, nn.Module):
        for name, each in vars(value).items():
            found += each.values() if name in ("_parameters", "_buffers", "_modules") else [each]
        return found
    found += getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        found += [getattr(value, name, None) for name in ([slots] if isinstance(slots, str) else slots)]
    return found


def _of_optimizer(optimizer: Optimizer) -> list[object]:
    """What an optimiser holds besides numbers, and tensors of its parameters' sizes."""
    found: list[object] = []
    for parameter, state in optimizer.state.items():
        usual = (1, parameter.numel()) if isinstance(parameter, Tensor) else ()
        kept = list(state.values()) if isinstance(state, dict) else [state]
        found += [each for each in kept if not (isinstance(each, Tensor) and each.numel() in usual)]
    for group in optimizer.param_groups:
        found += [each for name, each in group.items() if name != "params"]
    return found + [each for name, each in vars(optimizer).items() if name not in ("state", "param_groups")]


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
    """The value if it is an array, or many numbers in lists as one."""
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


def _state(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from network.named_parameters(remove_duplicate=False)
    yield from network.named_buffers(remove_duplicate=False)


def _size(each: Array) -> int:
    return each.numel() * each.element_size() if isinstance(each, Tensor) else int(each.nbytes)


def _is_labels(each: Array) -> bool:
    return each.ndim == 1 and _is_index(each) and "bool" not in str(each.dtype)


def _is_index(each: Array) -> bool:
    return str(each.dtype).removeprefix("torch.") in ("bool", "int16", "int32", "int64")
