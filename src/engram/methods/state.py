"""The complete state of a method as tensors and plain values, and back, to the bit."""

from __future__ import annotations

import copy
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from engram.core.errors import InputError
from engram.core.values import Batch, TaskInfo

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PLAIN = (int, float, str, bool, type(None))
_VALUES = {"batch": Batch, "task": TaskInfo}
_SERIES: dict[str, Callable[..., object]] = {
    kind.__name__: kind for kind in (list, tuple, set, frozenset, torch.Size)
}
_DICTIONARIES: dict[str, Callable[..., object]] = {
    kind.__name__: kind for kind in (dict, OrderedDict, Counter)
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


State = dict[str, Any]
"""A complete state, as tensors and plain values."""


class CannotKeep(InputError):
    """A value that cannot be stored in a checkpoint."""


@runtime_checkable
class Stateful(Protocol):
    """An object whose state can be saved and restored."""

    def state_dict(self) -> State:
        """The state."""

    def load_state_dict(self, state: State) -> object:
        """Restore a state."""


def capture(owner: object) -> State:
    """The state of everything that `owner` holds, attribute by attribute.

    It consists of tensors, dictionaries, lists and plain values only, so that it can be written and read
    without pickle. Functions, classes and paths are configuration, which a new object already has.

    Raises:
        CannotKeep: An attribute is of another kind; nothing is left out silently.
    """
    return {name: _pack(value, f"{type(owner).__name__}.{name}") for name, value in vars(owner).items()}


def restore(owner: object, state: State) -> None:
    """Restore what `capture` returned, in an object that was made with the same configuration."""
    for name, packed in state.items():
        setattr(owner, name, _unpack(packed, vars(owner).get(name), owner))


def kept_bytes(owner: object, *, beside: tuple[str, ...] = ("network", "optimizer")) -> int:
    """How many bytes of tensors `owner` holds, without the network that learns and its optimiser.

    Counted from the tensors themselves: memories, importance, older networks, generative models.
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


def _pack(value: object, name: str) -> State:
    packed = _packed(value, name)
    if packed is None:
        raise CannotKeep(
            f"{name} is a {type(value).__name__}, which a checkpoint cannot keep: hold tensors, arrays, "
            "numbers, texts, lists, dictionaries and the like, or give it state_dict and load_state_dict"
        )
    kind, kept = packed
    return {"kind": kind, **kept}


def _packed(value: object, name: str) -> tuple[str, State] | None:
    """The kind of a value and what is stored of it; None if it cannot be stored."""
    if type(value) in PLAIN:
        return "plain", {"value": value}
    if isinstance(value, Tensor):
        flags = {"grad": value.requires_grad, "parameter": isinstance(value, nn.Parameter)}
        return "tensor", {"value": value.detach().clone(), **flags}
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return _packed_array(value)
    if isinstance(value, torch.Generator | np.random.Generator | random.Random):
        return _packed_generator(value)
    if isinstance(value, nn.Module):
        modes = [module.training for module in value.modules()]
        grads = [p.requires_grad for p in value.parameters()]
        return "module", {"value": _cloned(value.state_dict()), "modes": modes, "grads": grads}
    if isinstance(value, _CONFIGURATION):
        return "configuration", {"value": None}
    if isinstance(value, Optimizer | Stateful):
        return "stateful", {"value": _cloned(value.state_dict())}
    if is_dataclass(value) and not isinstance(value, type):
        return _packed_dataclass(value, name)
    return _packed_container(value, name)


def _packed_generator(
    value: torch.Generator | np.random.Generator | random.Random,
) -> tuple[str, State]:
    if isinstance(value, torch.Generator):
        return "generator", {"value": value.get_state()}
    if isinstance(value, np.random.Generator):
        return "numpy generator", {"value": _plain_arrays(value.bit_generator.state)}
    return "python generator", {"value": value.getstate()}


def _packed_array(value: object) -> tuple[str, State] | None:
    try:
        numbers = torch.from_numpy(np.array(value))
    except (TypeError, ValueError):
        return None
    return "array", {"value": numbers, "scalar": isinstance(value, np.generic)}


def _packed_dataclass(value: DataclassInstance, name: str) -> tuple[str, State] | None:
    kind = next((kind for kind, of in _VALUES.items() if isinstance(value, of)), "dataclass")
    parts = [item.name for item in fields(value) if item.init]
    attributes = vars(value) if hasattr(value, "__dict__") else ()
    beyond = {*attributes, *(item.name for item in fields(value))} - {*parts}
    if kind == "dataclass" and beyond:
        # Made again from its fields, it would lose these.
        return None
    if kind in _VALUES:
        # Past what a subclass does when a field is read: saving a task is not reading its identity.
        slots = vars(_VALUES[kind])
        held = {part: slots[part].__get__(value) for part in parts}
    else:
        held = {part: getattr(value, part) for part in parts}
    return kind, {"value": {part: _pack(item, f"{name}.{part}") for part, item in held.items()}}


def _packed_container(value: object, name: str) -> tuple[str, State] | None:
    kind = type(value)
    if isinstance(value, dict) and (kind in _DICTIONARIES.values() or kind is defaultdict):
        pairs = [(_pack(key, name), _pack(item, f"{name}[{key!r}]")) for key, item in value.items()]
        return kind.__name__, {"value": pairs}
    if isinstance(value, deque) and kind is deque:
        return "deque", {"value": _packs(value, name), "longest": value.maxlen}
    if isinstance(value, Iterable) and kind in _SERIES.values():
        return kind.__name__, {"value": _packs(value, name)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "named tuple", {"value": _packs(value, name)}
    return None


def _packs(values: Iterable[object], name: str) -> list[State]:
    return [_pack(item, f"{name}[{place}]") for place, item in enumerate(values)]


def _unpack(packed: State, present: Any, owner: object) -> Any:
    kind, value = packed["kind"], packed["value"]
    if kind == "plain":
        return value
    if kind == "configuration":
        return present
    if kind == "tensor":
        return _tensor(packed, present)
    if kind == "array":
        return value.numpy().copy()[()] if packed["scalar"] else value.numpy().copy()
    if kind == "module":
        return _loaded(packed, present, owner)
    if kind in _VALUES:
        return _VALUES[kind](**{part: _unpack(item, None, owner) for part, item in value.items()})
    if kind in _SERIES or kind == "deque":
        items = _unpacked(value, present, owner)
        return deque(items, packed["longest"]) if kind == "deque" else _SERIES[kind](items)
    if kind in _DICTIONARIES:
        return _DICTIONARIES[kind](_pairs(value, present, owner))
    return _into(packed, present, owner)


def _into(packed: State, present: Any, owner: object) -> object:
    """Restore what needs an existing object of the same kind."""
    kind, value = packed["kind"], packed["value"]
    if present is None:
        raise InputError(
            f"the checkpoint does not fit: a new {type(owner).__name__} has nothing to restore a {kind} "
            "into; create one in setup or __post_init__, and remove the checkpoint"
        )
    if kind == "defaultdict":
        return defaultdict(present.default_factory, _pairs(value, present, owner))
    if kind == "named tuple":
        return type(present)(*_unpacked(value, present, owner))
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


def _unpacked(values: list[State], present: Iterable[object] | None, owner: object) -> list[object]:
    filled = [*(present or ()), *[None] * len(values)]
    return [_unpack(item, old, owner) for item, old in zip(values, filled, strict=False)]


def _pairs(
    values: list[tuple[State, State]], present: Mapping[object, object] | None, owner: object
) -> dict[object, object]:
    pairs = [(_unpack(key, None, owner), item) for key, item in values]
    return {key: _unpack(item, (present or {}).get(key), owner) for key, item in pairs}


def _tensor(packed: State, present: object) -> Tensor:
    value: Tensor = packed["value"]
    if not packed["parameter"]:
        return value.clone().requires_grad_(packed["grad"])
    if isinstance(present, nn.Parameter) and present.shape == value.shape:
        # In place, because an optimiser may hold this parameter.
        present.data.copy_(value)
        return present.requires_grad_(packed["grad"])
    return nn.Parameter(value.clone(), requires_grad=packed["grad"])


def _loaded(packed: State, present: object, owner: object) -> nn.Module:
    # A network that a new method does not have yet (a teacher, for example) has the shape of its network.
    module: nn.Module = present if isinstance(present, nn.Module) else copy.deepcopy(vars(owner)["network"])
    module.load_state_dict(packed["value"])
    for part, mode in zip(module.modules(), packed["modes"], strict=True):
        part.training = mode
    for parameter, wanted in zip(module.parameters(), packed["grads"], strict=True):
        parameter.requires_grad_(wanted)
    return module


def _plain_arrays(value: object) -> object:
    """NumPy's description of a generator, with lists instead of arrays."""
    if isinstance(value, dict):
        return {key: _plain_arrays(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def _cloned(value: object) -> object:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _cloned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_cloned(item) for item in value)
    return value
