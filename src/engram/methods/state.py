"""A learner's whole state as tensors and plain values, and back: to the bit."""

from __future__ import annotations

import copy
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from engram.core.values import TaskInfo

PLAIN = (int, float, str, bool, type(None))


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
    pickle's dangers. Attributes that are configuration (tuples, frozen values) are left out.
    """
    state = {}
    for name, value in vars(owner).items():
        packed = _pack(value)
        if packed is not None:
            state[name] = packed
    return state


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
    if isinstance(value, list | tuple):
        return sum(_bytes(item) for item in value)
    return 0


def _pack(value: object) -> dict[str, Any] | None:
    if isinstance(value, PLAIN):
        return {"kind": "plain", "value": value}
    if isinstance(value, Tensor):
        return {"kind": "tensor", "value": value.detach().clone()}
    if isinstance(value, torch.Generator):
        return {"kind": "generator", "value": value.get_state()}
    if isinstance(value, nn.Module):
        modes = [module.training for module in value.modules()]
        grads = [p.requires_grad for p in value.parameters()]
        return {"kind": "module", "value": _cloned(value.state_dict()), "modes": modes, "grads": grads}
    if isinstance(value, TaskInfo):
        return {"kind": "task", "value": {n: getattr(value, n) for n in TaskInfo.__dataclass_fields__}}
    if isinstance(value, Optimizer | Stateful):
        return {"kind": "stateful", "value": _cloned(value.state_dict())}
    if isinstance(value, dict):
        return {"kind": "dict", "value": {key: _pack(item) for key, item in value.items()}}
    if isinstance(value, list):
        return {"kind": "list", "value": [_pack(item) for item in value]}
    return None


def _unpack(packed: dict[str, Any], present: Any, owner: Any) -> Any:
    kind, value = packed["kind"], packed["value"]
    if kind == "tensor":
        return value.clone()
    if kind == "generator":
        present.set_state(value)
        return present
    if kind == "module":
        # A network that did not exist yet (a teacher, say) has the shape of the one that learns.
        module = present if isinstance(present, nn.Module) else copy.deepcopy(owner.network)
        module.load_state_dict(value)
        for part, mode in zip(module.modules(), packed["modes"], strict=True):
            part.training = mode
        for parameter, wanted in zip(module.parameters(), packed["grads"], strict=True):
            parameter.requires_grad_(wanted)
        return module
    if kind == "task":
        fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in value.items()}
        return TaskInfo(**fields)
    if kind == "stateful":
        if present is None:
            raise TypeError(
                f"{type(owner).__name__} cannot be restored: what it held in a list or dictionary does not "
                "exist yet in a new one; hold it in an attribute of its own"
            )
        present.load_state_dict(_cloned(value))
        return present
    if kind == "dict":
        present = present or {}
        return {key: _unpack(item, present.get(key), owner) for key, item in value.items()}
    if kind == "list":
        present = present or []
        filled = [*present, *[None] * (len(value) - len(present))]
        return [_unpack(item, old, owner) for item, old in zip(value, filled, strict=False)]
    return value


def _cloned(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _cloned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_cloned(item) for item in value)
    return value
