"""The form of a network: everything about it but the values of its tensors, and these tensors in order."""

from __future__ import annotations

import enum
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, NoneType
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from engram.evaluation.dense import watched

DEPTH = 5
"""How deeply containers and objects in an attribute of a module are looked into."""

ALIGNED = 64
"""Bytes; PyTorch aligns tensors to as many."""

Key: TypeAlias = tuple[object, ...]

_PLAIN: frozenset[type] = frozenset(
    {
        *(int, float, complex, bool, str, bytes, NoneType, range, slice, type, torch.Size),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
        *(BuiltinFunctionType, ModuleType, CodeType),
    }
)
"""Types whose values do not change."""

_CLOSED = (
    "torch",
    "numpy",
    "random",
    "threading",
    "_thread",
    "_io",
    "weakref",
    "itertools",
    "mmap",
    "_random",
)
"""Libraries whose objects hold more than their attributes show."""

_BOOKKEEPING = frozenset(
    {
        *("training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"),
        *("_backward_pre_hooks", "_backward_hooks", "_is_full_backward_hook", "_forward_hooks"),
        *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks"),
        *("_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks"),
        *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_compiled_call_impl"),
    }
)
"""Attributes that every module has; those that matter are looked at by name."""


class Elsewhere(Exception):
    """A network holds something that cannot be copied to another process with its tensors."""


@dataclass(frozen=True)
class Form:
    """What a network is, and its tensors: two networks of one form differ in the values of these only.

    The tensors are parameters, buffers, and tensors in other attributes, each once. Everything else that can
    be found in a module is part of the form and is compared: classes, numbers, texts, functions with what
    they close over, containers and objects.

    Attributes:
        key: The form, to be compared.
        tensors: The tensors, in an order that belongs to the form.

    Example:
        >>> one, other = Form.of(nn.Linear(3, 2)), Form.of(nn.Linear(3, 2))
        >>> one.key == other.key, len(one.tensors), one.key == Form.of(nn.Linear(2, 2)).key
        (True, 2, False)
        >>> noisy = nn.Linear(3, 2)
        >>> noisy.noise = torch.Generator()
        >>> Form.of(noisy)
        Traceback (most recent call last):
        engram.evaluation.parallel.form.Elsewhere: Linear holds a Generator in noise
    """

    key: Key
    tensors: tuple[Tensor, ...]

    @classmethod
    def of(cls, network: nn.Module) -> Form:
        """The form of a network.

        Raises:
            Elsewhere: It holds something that is neither a tensor nor constant.
        """
        reader = _Reader()
        key = reader.network(network)
        return cls((*key, *map(_layout, reader.tensors)), tuple(reader.tensors))

    @contextmanager
    def holding(self, values: tuple[Tensor, ...]) -> Iterator[None]:
        """Within, the tensors of the network are `values`, without a copy; afterwards they are as before."""
        before = [tensor.data for tensor in self.tensors]
        try:
            for tensor, value in zip(self.tensors, values, strict=True):
                tensor.data = value
            yield
        finally:
            for tensor, value in zip(self.tensors, before, strict=True):
                tensor.data = value


class _Reader:
    """Reads modules, and numbers the tensors, modules and objects in them."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.numbers: dict[int, int] = {}
        self.met: dict[int, object] = {}

    def network(self, network: nn.Module) -> Key:
        return tuple(self.module(path, part) for path, part in network.named_modules(remove_duplicate=False))

    def module(self, path: str, module: nn.Module) -> Key:
        if self._meet(module):
            return path, self.numbers[id(module)]
        if watched(module):
            raise Elsewhere(f"{_called(path, module)} has hooks or is compiled")
        attributes = vars(module)
        key: list[object] = [path, type(module)]
        for kind in ("_parameters", "_buffers"):
            for name, tensor in attributes[kind].items():
                key += (name, None if tensor is None else self.tensor(tensor, f"{path}.{name}"))
        for name, value in attributes.items():
            if name not in _BOOKKEEPING:
                key += (name, self.value(value, _called(path, module), name, DEPTH))
        return tuple(key)

    def tensor(self, tensor: Tensor, called: str) -> int:
        if not self._meet(tensor):
            if is_lazy(tensor):
                raise Elsewhere(f"{called} is not initialised yet")
            if tensor.layout is not torch.strided or not _is_dense(tensor):
                raise Elsewhere(f"{called} is sparse, or a view that leaves values out or repeats them")
            self.tensors.append(tensor)
        return self.numbers[id(tensor)]

    def value(self, value: object, holder: str, name: str, depth: int) -> object:
        kind = type(value)
        if kind in _PLAIN:
            return kind, repr(value) if value != value else value
        if isinstance(value, Tensor):
            return self.tensor(value, f"{name} of {holder}")
        if isinstance(value, nn.Module):
            return self.network(value)
        inner = _parts(value)
        if inner is None or not depth:
            raise Elsewhere(f"{holder} holds {_article(kind)} in {name}")
        if self._meet(value):
            return kind, self.numbers[id(value)]
        return kind, *(self.value(part, holder, name, depth - 1) for part in inner)

    def _meet(self, value: object) -> bool:
        """Number a value; returns whether it was met before."""
        if id(value) in self.numbers:
            return True
        self.numbers[id(value)] = len(self.numbers)
        # While it is held, no other object has its identity.
        self.met[id(value)] = value
        return False


def _parts(value: object) -> list[object] | None:
    """What a container, a function or an object holds, in order; None where that cannot be known."""
    kind = type(value)
    if isinstance(value, enum.Enum):
        return [value.name]
    if isinstance(value, weakref.ref):
        return [value()]
    if isinstance(value, FunctionType):
        return [value.__code__, *(cell.cell_contents for cell in value.__closure__ or ())]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if kind in (dict, OrderedDict):
        assert isinstance(value, dict)
        return [*value.keys(), *value.values()]
    if isinstance(value, tuple | list):
        return list(value) if kind in (tuple, list) or hasattr(value, "_fields") else None
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    known = kind.__module__.partition(".")[0] in _CLOSED or hasattr(kind, "__next__")
    return None if known or not hasattr(value, "__dict__") else list(vars(value).items())


def _is_dense(tensor: Tensor) -> bool:
    """Whether the values fill a piece of memory without gaps, each once."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _layout(tensor: Tensor) -> Key:
    # Sums may depend on how memory is aligned.
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, tensor.data_ptr() % ALIGNED


def _called(path: str, module: nn.Module) -> str:
    return f"{path} ({type(module).__name__})" if path else type(module).__name__


def _article(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"
