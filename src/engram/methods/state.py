"""A learner's whole state as tensors and plain values, and back: to the bit."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from engram.core.errors import InputError
from engram.core.values import Batch, TaskInfo

PLAIN = (int, float, str, bool, type(None))
_VALUES = {"batch": Batch, "task": TaskInfo}
_SERIES: dict[str, Callable[[Iterable[Any]], Any]] = {
    each.__name__: each for each in (list, tuple, set, frozenset)
}
_CONFIGURATION = (
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    partial,
    type,
    Path,
    torch.dtype,
    torch.device,
)


class CannotKeep(InputError):
    """Something that a checkpoint has no place for."""


@runtime_checkable
class Stateful(Protocol):
    """Anything that can hand out its state and take it back."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Put it back."""


def capture(owner: object) -> dict[str, Any]:
    """The state of everything that `owner` holds, attribute by attribute.

    Holds tensors, dictionaries, lists and plain values only, so that it can be written and read without
    pickle's dangers. Functions, classes and paths are configuration: a new object has them already.

    Raises:
        CannotKeep: An attribute is something else; it is never left out without a word.
    """
    return {name: _pack(value, f"{type(owner).__name__}.{name}") for name, value in vars(owner).items()}


def restore(owner: Any, state: dict[str, Any]) -> None:
    """Put back what `capture` took, into an object that was made with the same configuration."""
    for name, packed in state.items():
        setattr(owner, name, _unpack(packed, vars(owner).get(name), owner))


def kept_bytes(owner: object, *, beside: tuple[str, ...] = ("network", "optimizer")) -> int:
    """How many bytes of tensors `owner` holds, besides the network that learns and its optimiser.

    Counted from the tensors that are really there: memories, importance, older networks, generators.
    """
    return sum(_bytes(value) for name, value in vars(owner).items() if name not in beside)


def _bytes(value: object) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, nn.Module | Optimizer) or (
        isinstance(value, Stateful) and not isinstance(value, torch.Generator)
    ):
        return _bytes(value.state_dict())
    if isinstance(value, dict):
        return sum(_bytes(item) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset | deque):
        return sum(_bytes(item) for item in value)
    if isinstance(value, Batch):
        return sum(_bytes(getattr(value, name)) for name in Batch.__dataclass_fields__)
    return value.nbytes if isinstance(value, np.ndarray) else 0


def _pack(value: Any, name: str) -> dict[str, Any]:
    kind, kept = _packed(value, name)
    return {"kind": kind, **kept}


def _packed(value: Any, name: str) -> tuple[str, dict[str, Any]]:
    """What kind of thing a value is, and what is kept of it."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        return "array", {"value": torch.from_numpy(np.array(value))}
    if isinstance(value, PLAIN):
        return "plain", {"value": value}
    if isinstance(value, Tensor):
        return "tensor", {"value": value.detach().clone()}
    if isinstance(value, torch.Generator):
        return "generator", {"value": value.get_state()}
    if isinstance(value, np.random.Generator):
        return "numpy generator", {"value": _plain_arrays(value.bit_generator.state)}
    if isinstance(value, random.Random):
        return "python generator", {"value": value.getstate()}
    if isinstance(value, nn.Module):
        modes = [module.training for module in value.modules()]
        grads = [p.requires_grad for p in value.parameters()]
        return "module", {"value": _cloned(value.state_dict()), "modes": modes, "grads": grads}
    if isinstance(value, _CONFIGURATION):
        return "configuration", {"value": None}
    if isinstance(value, Optimizer | Stateful):
        return "stateful", {"value": _cloned(value.state_dict())}
    if is_dataclass(value):
        kind = next((kind for kind, of in _VALUES.items() if isinstance(value, of)), "dataclass")
        parts = [each.name for each in fields(value) if each.init]
        return kind, {"value": {part: _pack(getattr(value, part), f"{name}.{part}") for part in parts}}
    if isinstance(value, dict):
        pairs = [(_pack(key, name), _pack(item, f"{name}[{key!r}]")) for key, item in value.items()]
        return "dict", {"value": pairs}
    if isinstance(value, deque):
        return "deque", {"value": _packs(value, name), "longest": value.maxlen}
    if type(value) in _SERIES.values():
        return type(value).__name__, {"value": _packs(value, name)}
    raise CannotKeep(
        f"{name} is a {type(value).__name__}, which a checkpoint cannot keep: hold tensors, arrays, numbers, "
        "texts, lists, dictionaries and the like, or give it state_dict and load_state_dict"
    )


def _packs(values: Iterable[Any], name: str) -> list[dict[str, Any]]:
    return [_pack(item, f"{name}[{place}]") for place, item in enumerate(values)]


def _unpack(packed: dict[str, Any], present: Any, owner: Any) -> Any:
    kind, value = packed["kind"], packed["value"]
    if kind in _SERIES or kind == "deque":
        filled = [*(present or ()), *[None] * len(value)]
        found = [_unpack(item, old, owner) for item, old in zip(value, filled, strict=False)]
        return deque(found, packed["longest"]) if kind == "deque" else _SERIES[kind](found)
    if kind == "dict":
        present = present or {}
        pairs = [(_unpack(key, None, owner), item) for key, item in value]
        return {key: _unpack(item, present.get(key), owner) for key, item in pairs}
    if kind in _VALUES:
        return _VALUES[kind](**{part: _unpack(item, None, owner) for part, item in value.items()})
    if kind == "tensor":
        return value.clone()
    if kind == "array":
        return value.numpy().copy()[()]
    if kind == "plain":
        return value
    if kind == "module":
        return _loaded(packed, present, owner)
    if present is None:
        raise TypeError(
            f"{type(owner).__name__} cannot be restored: what it held in a list or dictionary does not "
            "exist yet in a new one; hold it in an attribute of its own"
        )
    if kind == "dataclass":
        parts = {part: _unpack(item, getattr(present, part), owner) for part, item in value.items()}
        return replace(present, **parts)
    if kind == "generator":
        present.set_state(value)
    elif kind == "numpy generator":
        present.bit_generator.state = value
    elif kind == "python generator":
        present.setstate(value)
    elif kind == "stateful":
        present.load_state_dict(_cloned(value))
    return present


def _loaded(packed: dict[str, Any], present: Any, owner: Any) -> nn.Module:
    # A network that did not exist yet (a teacher, say) has the shape of the one that learns.
    module = present if isinstance(present, nn.Module) else copy.deepcopy(owner.network)
    module.load_state_dict(packed["value"])
    for part, mode in zip(module.modules(), packed["modes"], strict=True):
        part.training = mode
    for parameter, wanted in zip(module.parameters(), packed["grads"], strict=True):
        parameter.requires_grad_(wanted)
    return module


def _plain_arrays(value: Any) -> Any:
    """NumPy's own description of a generator, its arrays as lists."""
    if isinstance(value, dict):
        return {key: _plain_arrays(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def _cloned(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _cloned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_cloned(item) for item in value)
    return value
