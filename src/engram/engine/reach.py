"""Everything that can be reached from a method: attributes, containers, closures, globals, graphs, frames."""

from __future__ import annotations

import array
import ctypes
import dis
import gc
import io
import mmap
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain
from traceback import walk_tb
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from engram.core.values import TaskInfo
from engram.engine.optimiser_state import beyond_usual

Array: TypeAlias = Tensor | npt.NDArray[np.generic]
Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
"""The shapes of a network's parameters and buffers, by name."""

Names = Sequence[tuple[Mapping[str, object], int]]
"""The names of Python modules, and how many there were."""

SHORT_BYTES = 32
"""Byte strings and integers up to this length are names, fingerprints and numbers, not data."""
SHORT_BYTES_TOGETHER = 1024
"""More bytes than this in short byte strings of one container are data."""
SHORT_TEXT = 256
"""Texts up to this length are names and descriptions."""
SHORT_INPUT = 16
"""Inputs with fewer values could be anything: they count as samples only if labels are stored with them."""
DEEPEST = 32
"""Numbers may lie in so many lists in each other, as many as NumPy's arrays have dimensions at least."""
_PLAIN = (float, complex, type(None), torch.Generator, torch.device, torch.dtype)
_OF_C = (ctypes.Array, ctypes.Structure, ctypes.Union)
_RAW = (
    *(int, str, bytes, bytearray, memoryview, array.array, io.BytesIO, io.StringIO, mmap.mmap),
    *_OF_C,
)
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_WEAK = weakref.ProxyTypes
"""They hold nothing, and cannot be asked what they are once their object is gone."""
_CACHED: type = type(lru_cache(len))
"""What `functools.lru_cache` and `functools.cache` make of a function."""
_HOLDERS = (*_CONTAINERS, *_RAW, _CACHED, Tensor, torch.UntypedStorage, np.ndarray, nn.Module)
_OF_GLOBALS = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
"""The instructions that use a global; those of class bodies may."""
_TEST_TOOLS = frozenset({"pytest", "_pytest", "pluggy", "hypothesis"})
_LIBRARIES = frozenset({"engram", "torch", "numpy", "pydantic"}) | _TEST_TOOLS | sys.stdlib_module_names
"""Their classes, functions and globals are not followed: they are not a method's. An `assert` in a test
module, which pytest rewrites, would lead to all tests."""


class Group(NamedTuple):
    """The contents of one container: arrays, those whose bytes count, and the size of raw byte strings."""

    arrays: list[Array]
    counted: list[Array]
    raw_bytes: int


def groups(method: object, network: Shapes, answering: nn.Module | None, modules: Names) -> Iterator[Group]:
    """Everything that can be reached from a method, one container after the other.

    Args:
        method: The method.
        network: The shapes of its network before it learned; what still has them is left out.
        answering: The network that predicted last: what it holds besides tensors.
        modules: The names of Python modules before (`names_of_modules`): later ones are followed.
    """
    learning = network_of(method)
    # Visited objects are kept alive, so that no two objects have the same id.
    visited: dict[int, object] = {id(value): value for value in (method, sys.modules)}
    initial = initial_tensors(method, network, answering)
    visited |= {id(tensor): tensor for tensor in initial}
    waiting: list[object] = [list(_attributes(method)), _shared(type(method)), _new_names(modules)]
    waiting += [_global_hooks(), *(list(_attached(tensor)) for tensor in initial)]
    while waiting or answering is not None:
        if not waiting:
            # Last, so that what the method holds of it is counted.
            visited |= {id(tensor): tensor for _, tensor in state_of(answering)} if answering else {}
            waiting, answering = [[answering]], None
        container = waiting.pop()
        members = []
        for value in _contents(container):
            if id(value) not in visited and type(value) not in _WEAK and not isinstance(value, _PLAIN):
                visited[id(value)] = value
                members.append(value)
        group, others = _sorted(members, stateful=hasattr(type(container), "load_state_dict"))
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


def initial_tensors(method: object, network: Shapes, answering: nn.Module | None) -> list[Tensor]:
    """The tensors of the networks that learn and predict that have the shapes from before learning."""
    return [
        tensor
        for module in (network_of(method), answering)
        if isinstance(module, nn.Module)
        for name, tensor in state_of(module)
        if network.get(name) == tuple(tensor.shape)
    ]


def names_of_modules() -> Names:
    """The names of each Python module, and how many there are; what is added later comes after these.

    Example:
        >>> (vars(sys.modules["math"]), len(vars(sys.modules["math"]))) in names_of_modules()
        True
    """
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [(names, len(names)) for names in map(vars, modules)]


def network_of(method: object) -> nn.Module | None:
    """The network that a method trains, if it has one in its attribute `network`."""
    # Not a Protocol: isinstance does not see the submodules of a method that is an nn.Module itself.
    network = getattr(method, "network", None)
    return network if isinstance(network, nn.Module) else None


def state_of(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """A network's parameters and buffers by name; those that are shared come with all their names."""
    yield from network.named_parameters(remove_duplicate=False)
    yield from network.named_buffers(remove_duplicate=False)


def _sorted(members: Iterable[object], *, stateful: bool) -> tuple[Group, list[object]]:
    """The members of a container: arrays and raw bytes as a group, and objects to be followed further."""
    group = Group([], [], 0)
    others: list[object] = []
    short = 0
    for value in members:
        values = _array(value)
        if values is not None:
            group.arrays.append(values)
            # The indices of samples in a store follow from the samples.
            if not (is_labels(values) and stateful):
                group.counted.append(values)
            if isinstance(value, Tensor) and _holds_more(value):
                others.append(_Behind(value))
        elif isinstance(value, _RAW):
            size = _raw_size(value)
            short += len(value) if isinstance(value, bytes) and not size else 0
            group = group._replace(raw_bytes=group.raw_bytes + size)
        else:
            others.append(value)
    if short > SHORT_BYTES_TOGETHER:
        group = group._replace(raw_bytes=group.raw_bytes + short)
    return group, others


def is_labels(values: Array) -> bool:
    """Whether an array could be the labels of samples."""
    return values.ndim == 1 and is_index(values) and "bool" not in str(values.dtype)


def is_index(values: Array) -> bool:
    """Whether an array has masks, or integers of more than one byte."""
    return str(values.dtype).removeprefix("torch.") in ("bool", "int16", "int32", "int64")


# One level ------------------------------------------------------------------------------------------


class _Behind(NamedTuple):
    """What a tensor holds besides its values: attributes, hooks, a gradient, the graph that made it."""

    tensor: Tensor


def _contents(container: object) -> list[object]:
    """The objects that an object holds, also if its own code fails when it is looked into."""
    try:
        return list(_inside(container))
    except Exception:  # noqa: BLE001 - whatever its properties raise, what it holds counts
        return _referents(container)


def _referents(value: object) -> list[object]:
    """What an object refers to, found without any code of its own."""
    return [inner for inner in gc.get_referents(value) if not issubclass(type(inner), type | ModuleType)]


def _inside(value: object) -> Iterable[object]:
    """The objects that an object holds, one level deep."""
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, Optimizer):
        return _of_optimizer(value)
    if isinstance(value, nn.Module):
        return [*_of_module(value), *_of_class(type(value))]
    if isinstance(value, _Behind):
        return [*_attached(value.tensor), *_large_gradient(value.tensor), *_saved_in_graph(value.tensor)]
    if isinstance(value, FunctionType):
        return _of_function(value)
    if isinstance(value, TaskInfo):
        return _of_task(value)
    if isinstance(value, type):
        return _of_class(value)
    if isinstance(value, ModuleType):
        return () if sys.modules.get(value.__name__) is value else list(vars(value).values())
    return [*_items(value), *_attributes(value), *_of_class(type(value))]


def _items(value: object) -> Iterable[object]:
    """The items of a container; what an object that is not made of Python refers to."""
    if isinstance(value, dict):
        return [*value.values(), *value, *_numbers(value.values(), integers=False)]
    if isinstance(value, _CONTAINERS):
        return [*value, *_numbers(value, integers=True)]
    if isinstance(value, np.ndarray):
        return list(value.ravel().tolist())
    if isinstance(value, partial):
        return (value.func, value.args, value.keywords)
    if isinstance(value, BaseException):
        frames = [frame.f_locals for frame, _ in walk_tb(value.__traceback__)]
        kept = [inner for names in frames for inner in names.values()]
        return [*kept, value.args, value.__cause__, value.__context__]
    if isinstance(value, _CACHED) or not hasattr(value, "__dict__"):
        # Running generators, iterators, cells, caches.
        return _referents(value)
    return ()


def _numbers(items: Iterable[object], *, integers: bool) -> list[Array]:
    """The numbers of a container, and of short tuples and lists in it, as one array if they are many."""
    floats: list[object] = []
    whole: list[object] = []
    for item in items:
        if isinstance(item, float):
            floats.append(item)
        elif isinstance(item, int):
            whole.append(item)
        elif isinstance(item, tuple | list) and len(item) < SHORT_INPUT:
            floats += [number for number in item if isinstance(number, float)]
    together = _array(floats + whole if integers else floats)
    return [] if together is None else [together]


def _of_task(task: TaskInfo) -> list[object]:
    """The fields of a task, past the watch: following them is not reading its identity."""
    fields = [vars(TaskInfo)[name].__get__(task) for name in TaskInfo.__dataclass_fields__]
    return [*fields, *getattr(task, "__dict__", {}).values()]


def _attributes(value: object) -> Iterator[object]:
    """The attributes of an object, in its dictionary and in slots, and names that are too long for names."""
    if hasattr(value, "__dict__"):
        yield from list(vars(value).values())
        yield from [name for name in vars(value) if isinstance(name, str) and len(name) > SHORT_TEXT]
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            yield getattr(value, name, None)


def _of_module(module: nn.Module) -> list[object]:
    """The parameters, buffers and parts of a module, and its plain attributes."""
    members: list[object] = []
    for name, value in list(vars(module).items()):
        members += value.values() if name in ("_parameters", "_buffers", "_modules") else [value]
    return members


def _of_optimizer(optimizer: Optimizer) -> list[object]:
    """What an optimiser holds besides what any optimiser of its kind holds for its parameters."""
    members: list[object] = list(beyond_usual(optimizer))
    for group in optimizer.param_groups:
        members += [value for name, value in group.items() if name != "params"]
    attributes = [value for name, value in vars(optimizer).items() if name not in ("state", "param_groups")]
    return members + attributes


def _attached(tensor: Tensor) -> Iterator[object]:
    """The attributes of a tensor, and its hooks."""
    yield from list(vars(tensor).values())
    for hooks in (tensor._backward_hooks, tensor._post_accumulate_grad_hooks):
        yield from (hooks or {}).values()


def _holds_more(tensor: Tensor) -> bool:
    """Whether a tensor may hold anything besides its values."""
    if tensor.grad_fn is not None or tensor.grad is not None:
        return True
    return bool(vars(tensor) or tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


def _large_gradient(tensor: Tensor) -> Iterator[Tensor]:
    """The gradient of a tensor, where it takes more memory: those of networks in training do not."""
    gradient = tensor.grad if tensor.is_leaf else None
    if gradient is None or not tensor.layout == gradient.layout == torch.strided:
        return
    if gradient.untyped_storage().nbytes() > tensor.untyped_storage().nbytes():
        yield gradient


def _saved_in_graph(tensor: Tensor) -> Iterator[object]:
    """The tensors that the graph behind a tensor keeps for its backward pass."""
    nodes, known = [tensor.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in known:
            continue
        known.add(node)
        nodes += [further for further, _ in node.next_functions]
        for attributes in (getattr(node, "__dict__", {}), getattr(node, "metadata", {})):
            yield from list(attributes.values())
        for name in dir(node):
            if name.startswith("_saved_") or name in ("saved_tensors", "variable"):
                with suppress(RuntimeError):  # given up by a backward pass
                    yield from _saved_as(node, name)


def _saved_as(node: object, name: str) -> Iterable[object]:
    """What a node of a graph keeps under a name; what hooks have packed is not unpacked.

    Unpacking runs the hooks: gradient checkpointing would compute everything again, with a graph of its own.
    """
    packed = getattr(node, f"_raw_{name.lstrip('_')}", ())
    several = packed if isinstance(packed, tuple | list) else (packed,)
    # Before PyTorch 2.7 they do not tell.
    hooks = [hook for saved in several if (hook := getattr(saved, "unpack_hook", None)) is not None]
    if hooks:
        return [*hooks, *(saved.data for saved in several)]
    kept = getattr(node, name)
    return kept if isinstance(kept, tuple | list) else (kept,)


# Classes, functions and globals ---------------------------------------------------------------------


def may_store(network: nn.Module) -> bool:
    """Whether a network has code that is not from a library, and could keep what passes through it.

    Example:
        >>> may_store(nn.Linear(2, 2))
        False
    """
    return any(
        not _foreign(type(part).__module__)
        or part._forward_hooks
        or part._forward_pre_hooks
        or "forward" in vars(part)
        for part in network.modules()
    )


def _foreign(module: object) -> bool:
    """Whether something is defined in a library, by the name of its module."""
    return str(module).partition(".")[0] in _LIBRARIES


def _shared(kind: type) -> list[object]:
    """What all instances of a method's class share: containers and tensors, and what its functions use."""
    members = [
        value
        for owner in kind.__mro__
        for name, value in list(vars(owner).items())
        if not name.startswith("__") and isinstance(value, _HOLDERS)
    ]
    return members + _of_class(kind)


def _of_class(kind: type) -> list[object]:
    """What a class holds that is not from a library: containers, tensors, and what its functions use."""
    members: list[object] = []
    for owner in kind.__mro__:
        if _foreign(owner.__module__):
            continue
        for name, value in list(vars(owner).items()):
            if isinstance(value, staticmethod | classmethod):
                members.append(value.__func__)
            elif isinstance(value, property):
                members += [value.fget, value.fset]
            elif isinstance(value, FunctionType) or (
                not name.startswith("__") and isinstance(value, _HOLDERS)
            ):
                members.append(value)
    return members


def _of_function(function: FunctionType) -> Iterator[object]:
    """What a function closes over, its defaults and attributes, and the globals that it uses."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from vars(function).values()
    if _foreign(function.__module__):
        return
    used, names = _names(function.__code__)
    for name in used & function.__globals__.keys():
        value = function.__globals__[name]
        if isinstance(value, ModuleType) and not _foreign(value.__name__):
            inside = [vars(value)[inner] for inner in names & vars(value).keys()]
            yield from (inner for inner in inside if _is_store(inner))
        elif _is_store(value):
            yield value


@lru_cache(maxsize=1024)
def _names(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The globals that code uses, and all its names, with those of attributes: `x` in `batch.x`."""
    used = {step.argval for step in dis.get_instructions(code) if step.opname in _OF_GLOBALS}
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            further = _names(constant)
            used, names = used | further[0], names | further[1]
    return frozenset(used), frozenset(names)


def _is_store(value: object) -> bool:
    """Whether a global can hold data: not a module, nor something that a library defines."""
    if isinstance(value, FunctionType | type | _CACHED):
        return not _foreign(value.__module__)
    if isinstance(value, _HOLDERS):
        return True
    return not isinstance(value, ModuleType) and not _foreign(type(value).__module__)


def _global_hooks() -> list[object]:
    """The hooks that were registered for all modules or all optimizers."""
    return [
        hook
        for module in (nn.modules.module, sys.modules[Optimizer.__module__])
        for name, hooks in vars(module).items()
        if name.startswith("_global_") and isinstance(hooks, dict)
        for hook in hooks.values()
    ]


def _new_names(before: Names) -> list[object]:
    """What was put into Python modules since their names were counted."""
    added = [value for names, size in before if len(names) > size for value in list(names.values())[size:]]
    return [value for value in added if not isinstance(value, FunctionType | type) and _is_store(value)]


# Arrays and raw bytes -------------------------------------------------------------------------------


def _array(value: object) -> Array | None:
    """The value if it is an array, or nested lists of many numbers as one."""
    if isinstance(value, Tensor):
        if value.is_nested:
            return value.detach().values()
        return None if is_lazy(value) else value
    if isinstance(value, torch.UntypedStorage):
        return torch.empty(0, dtype=torch.uint8, device=value.device).set_(value)
    if isinstance(value, np.ndarray):
        return None if value.dtype == object else value
    try:
        return _many_numbers(value) if isinstance(value, list | tuple) else None
    except Exception:  # noqa: BLE001 - whatever a class derived from lists raises
        return None


def _many_numbers(value: Sequence[object]) -> Array | None:
    """The numbers of lists in lists as one array, if they are many."""
    depth, first = 0, value
    while isinstance(first, list | tuple) and first and depth < DEEPEST:
        depth, first = depth + 1, first[0]
    if not depth or not isinstance(first, float | int) or not _all_numbers(value, depth):
        return None
    kind = np.float64 if isinstance(first, float) else np.int64
    numbers = np.asarray(value, dtype=kind)
    # Different integers are classes, sizes or indices.
    plain = kind is np.int64 and len(np.unique(numbers)) == numbers.size
    return numbers if numbers.size >= SHORT_INPUT and not plain else None


def _all_numbers(value: Any, depth: int) -> bool:
    """Whether a list holds numbers only, in so many lists in each other; tensors would be converted."""
    level = [value]
    for _ in range(depth):
        if not all(issubclass(kind, list | tuple) for kind in set(map(type, level))):
            return False
        level = list(chain.from_iterable(level))
    return all(issubclass(kind, float | int | np.number) for kind in set(map(type, level)))


def _raw_size(value: object) -> int:
    """The size of a byte string, a text or an integer; 0 where it is short."""
    if getattr(value, "closed", False):
        return 0
    if isinstance(value, int):
        size = (value.bit_length() + 7) // 8
    elif isinstance(value, str):
        return len(value) if len(value) > SHORT_TEXT else 0
    elif isinstance(value, io.StringIO):
        return _raw_size(value.getvalue())
    elif isinstance(value, io.BytesIO):
        size = len(value.getbuffer())
    else:
        assert isinstance(value, (bytes, bytearray, memoryview, array.array, mmap.mmap, *_OF_C))
        try:
            size = memoryview(value).nbytes
        except ValueError:  # a view that was released
            size = 0
    return size if size > SHORT_BYTES else 0
