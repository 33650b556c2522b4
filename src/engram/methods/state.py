"""The complete state of a method as tensors and plain values, and back, to the bit."""

from __future__ import annotations

import copy
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from engram.core.errors import InputError
from engram.core.values import Batch, TaskInfo
from engram.methods.sharing import CannotKeep as CannotKeep
from engram.methods.sharing import Pack, refer_to_weights, share_memory, shared_view, weights_of
from engram.methods.sharing import State as State

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


_Array: TypeAlias = Tensor | npt.NDArray[Any]


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
    without pickle. Functions, classes and paths are configuration, which a new object already has. An object
    with several names has a single state, and tensors and arrays that share memory share it in the state, so
    that `restore` makes them one again. Weights and buffers of a module, and views of them, are stored as
    such.

    Raises:
        CannotKeep: An attribute is of another kind; nothing is left out silently.
    """
    title, packs = type(owner).__name__, _Packs()
    state = {name: _pack(value, f"{title}.{name}", packs) for name, value in vars(owner).items()}
    refer_to_weights(packs.values())
    share_memory(packs.values())
    return state


def restore(owner: object, state: State) -> None:
    """Restore what `capture` returned, in an object that was made with the same configuration."""
    whole = _Restored(owner, {}, {})
    # Modules first: other attributes may be views of their weights.
    for name, packed in sorted(state.items(), key=lambda item: item[1]["kind"] != "module"):
        setattr(owner, name, _unpack(packed, vars(owner).get(name), whole))


def kept_bytes(owner: object, *, beside: tuple[str, ...] = ("network", "optimizer")) -> int:
    """How many bytes of tensors `owner` holds, without the network that learns and its optimiser.

    Counted from the tensors themselves: memories, importance, older networks, generative models. Views of the
    same memory count once; those of the network's weights do not count.
    """
    parts = vars(owner)
    own = [tensor for name in beside for tensor in _weights(parts.get(name))]
    kept = [array for name, value in parts.items() if name not in beside for array in _arrays(value)]
    uncounted = {_memory(tensor)[0] for tensor in own}
    sizes: dict[int, int] = {}
    for array in kept:
        key, whole = _memory(array)
        if key not in uncounted:
            sizes[key] = min(whole, sizes.get(key, 0) + _size(array))
    return sum(sizes.values())


def _weights(network: object) -> list[_Array]:
    return list(_arrays(network)) if isinstance(network, nn.Module) else []


def _arrays(value: object) -> Iterator[_Array]:
    """The tensors and arrays in a value."""
    if isinstance(value, Tensor | np.ndarray):
        yield value
    elif isinstance(value, nn.Module | Optimizer) or (
        isinstance(value, Stateful) and not isinstance(value, torch.Generator)
    ):
        yield from _arrays(value.state_dict())
    elif isinstance(value, dict | list | tuple | set | frozenset | deque):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _arrays(item)
    elif isinstance(value, Batch):
        for name in Batch.__dataclass_fields__:
            yield from _arrays(getattr(value, name))


def _memory(array: _Array) -> tuple[int, int]:
    """What identifies the memory of an array while it exists, and its size in bytes."""
    if isinstance(array, Tensor) and array.layout == torch.strided:
        storage = array.untyped_storage()
        return storage._cdata, storage.nbytes()
    while isinstance(array, np.ndarray) and isinstance(array.base, np.ndarray):
        array = array.base
    return id(array), _size(array)


def _size(array: _Array) -> int:
    return array.numel() * array.element_size() if isinstance(array, Tensor) else array.nbytes


_Packs = dict[int, Pack]
"""What was packed, by identity."""


def _pack(value: object, name: str, packs: _Packs) -> State:
    if type(value) in PLAIN:
        return {"kind": "plain", "value": value}
    if isinstance(value, _CONFIGURATION):
        return {"kind": "configuration", "value": None}
    if id(value) not in packs:
        pack = packs[id(value)] = Pack(value, name, {})
        pack.state.update(_pack_first(value, name, packs))
    elif not packs[id(value)].state:
        raise CannotKeep(f"{name} contains itself, which a checkpoint cannot keep: hold it in one place")
    return packs[id(value)].state


def _pack_first(value: object, name: str, packs: _Packs) -> State:
    packed = _packed(value, name, packs)
    if packed is None:
        raise CannotKeep(
            f"{name} is a {type(value).__name__}, which a checkpoint cannot keep: hold tensors, arrays, "
            "numbers, texts, lists, dictionaries and the like, or give it state_dict and load_state_dict"
        )
    kind, kept = packed
    return {"kind": kind, **kept}


def _packed(value: object, name: str, packs: _Packs) -> tuple[str, State] | None:
    """The kind of a value and what is stored of it; None if it cannot be stored."""
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
    if isinstance(value, Optimizer | Stateful):
        return "stateful", {"value": _cloned(value.state_dict())}
    if is_dataclass(value) and not isinstance(value, type):
        return _packed_dataclass(value, name, packs)
    return _packed_container(value, name, packs)


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


def _packed_dataclass(value: DataclassInstance, name: str, packs: _Packs) -> tuple[str, State] | None:
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
    return kind, {"value": {part: _pack(item, f"{name}.{part}", packs) for part, item in held.items()}}


def _packed_container(value: object, name: str, packs: _Packs) -> tuple[str, State] | None:
    kind = type(value)
    if isinstance(value, dict) and (kind in _DICTIONARIES.values() or kind is defaultdict):
        pairs = [
            (_pack(key, name, packs), _pack(item, f"{name}[{key!r}]", packs)) for key, item in value.items()
        ]
        return kind.__name__, {"value": pairs}
    if isinstance(value, deque) and kind is deque:
        return "deque", {"value": _pack_all(value, name, packs), "longest": value.maxlen}
    if isinstance(value, Iterable) and kind in _SERIES.values():
        return kind.__name__, {"value": _pack_all(value, name, packs)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "named tuple", {"value": _pack_all(value, name, packs)}
    return None


def _pack_all(values: Iterable[object], name: str, packs: _Packs) -> list[State]:
    return [_pack(item, f"{name}[{place}]", packs) for place, item in enumerate(values)]


class _Restored(NamedTuple):
    """What a state is restored in; objects by the identities of their states; memory by its old address."""

    owner: object
    objects: dict[int, object]
    memory: dict[int, Tensor]


def _unpack(packed: State, present: Any, whole: _Restored) -> Any:
    if packed["kind"] == "plain":
        return packed["value"]
    if packed["kind"] == "configuration":
        return present
    if id(packed) not in whole.objects:
        whole.objects[id(packed)] = _unpack_first(packed, present, whole)
    return whole.objects[id(packed)]


def _unpack_first(packed: State, present: Any, whole: _Restored) -> object:
    kind, value = packed["kind"], packed["value"]
    if kind == "tensor":
        return _tensor(packed, present, whole)
    if kind == "weight":
        return _weight(packed, whole)
    if kind == "array" and packed.get("shared"):
        return shared_view(value, whole.memory).numpy()
    if kind == "array":
        return value.numpy().copy()[()] if packed["scalar"] else value.numpy().copy()
    if kind == "module":
        return _loaded(packed, present, whole.owner)
    if kind in _VALUES:
        return _VALUES[kind](**{part: _unpack(item, None, whole) for part, item in value.items()})
    if kind in _SERIES or kind == "deque":
        items = _unpacked(value, present, whole)
        return deque(items, packed["longest"]) if kind == "deque" else _SERIES[kind](items)
    if kind in _DICTIONARIES:
        return _DICTIONARIES[kind](_pairs(value, present, whole))
    return _into(packed, present, whole)


def _into(packed: State, present: Any, whole: _Restored) -> object:
    """Restore what needs an existing object of the same kind."""
    kind, value = packed["kind"], packed["value"]
    if present is None:
        raise InputError(
            f"the checkpoint does not fit: a new {type(whole.owner).__name__} has nothing to restore a "
            f"{kind} into; create one in setup or __post_init__, and remove the checkpoint"
        )
    if kind == "defaultdict":
        return defaultdict(present.default_factory, _pairs(value, present, whole))
    if kind == "named tuple":
        return type(present)(*_unpacked(value, present, whole))
    if kind == "dataclass":
        parts = {part: _unpack(item, getattr(present, part), whole) for part, item in value.items()}
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


def _unpacked(values: list[State], present: Iterable[object] | None, whole: _Restored) -> list[object]:
    filled = [*(present or ()), *[None] * len(values)]
    return [_unpack(item, old, whole) for item, old in zip(values, filled, strict=False)]


def _pairs(
    values: list[tuple[State, State]], present: Mapping[object, object] | None, whole: _Restored
) -> dict[object, object]:
    pairs = [(_unpack(key, None, whole), item) for key, item in values]
    return {key: _unpack(item, (present or {}).get(key), whole) for key, item in pairs}


def _tensor(packed: State, present: object, whole: _Restored) -> Tensor:
    value: Tensor = packed["value"]
    if packed.get("shared"):
        return shared_view(value, whole.memory).requires_grad_(packed["grad"])
    kind = nn.Parameter if packed["parameter"] else Tensor
    trained = packed["parameter"] or packed["grad"]
    if trained and isinstance(present, kind) and _fits(present, value):
        # In place, because an optimiser may hold it.
        present.data.copy_(value)
        return present.requires_grad_(packed["grad"])
    if packed["parameter"]:
        return nn.Parameter(value.clone(), requires_grad=packed["grad"])
    return value.clone().requires_grad_(packed["grad"])


def _fits(present: Tensor, value: Tensor) -> bool:
    held = isinstance(present, nn.Parameter) or (present.is_leaf and present.requires_grad)
    return held and present.shape == value.shape and present.dtype == value.dtype


def _weight(packed: State, whole: _Restored) -> Tensor:
    """A weight or a buffer of a module, or a view of it."""
    weight = weights_of(_unpack(packed["value"], None, whole)).get(packed["name"])
    if weight is None or packed["view"] is None:
        return _fitting(weight, packed, whole)
    shape, strides, offset = packed["view"]
    with suppress(RuntimeError):
        return weight.detach().as_strided(shape, strides, weight.storage_offset() + offset)
    return _fitting(None, packed, whole)


def _fitting(weight: Tensor | None, packed: State, whole: _Restored) -> Tensor:
    if weight is None:
        raise InputError(
            f"the checkpoint does not fit: {packed['name']} of the network of a new "
            f"{type(whole.owner).__name__} is not as it was; remove the checkpoint"
        )
    return weight


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
