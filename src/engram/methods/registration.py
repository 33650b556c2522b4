"""Checks a class that is registered as a method, and adds what an experiment needs beyond the verbs."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, Unpack

from torch import nn
from torch.optim import Optimizer

from engram.core.errors import InputError
from engram.methods import VERBS
from engram.methods.fields import fields_of
from engram.methods.state import capture, kept_bytes, restore
from engram.methods.traits import Declaration, declare

STATE = ("state_dict", "load_state_dict")


def accepted(name: str, kind: Any, **traits: Unpack[Declaration]) -> type:
    """Check a class, declare its traits, and add `state_dict` and the like where they are missing.

    Args:
        name: The name under which it is registered.
        kind: The class.
        traits: Fields of `engram.methods.traits.Traits`.

    Raises:
        InputError: The class is not a valid method; the message names everything that is missing.

    Example:
        >>> class Mine:
        ...     def observe(self, batch): ...
        >>> accepted("mine", Mine)
        Traceback (most recent call last):
        engram.core.errors.InputError: method mine: Mine is not a valid method; it is missing @dataclass,
        begin_task, end_task, predictor, the field network. Make it a dataclass below Learner, or one with a
        field network and begin_task, observe, end_task, predictor
    """
    try:
        _check(kind, merges=traits.get("merges", False))
    except InputError as error:
        raise InputError(f"method {name}: {error}{_place_of(kind)}") from error
    if not hasattr(kind, STATE[0]):
        kind.state_dict, kind.load_state_dict = capture, restore
    if not hasattr(kind, "kept_bytes"):
        kind.kept_bytes = _kept_bytes
    declare(kind, **traits)
    registered: type = kind
    return registered


def _check(kind: Any, *, merges: bool) -> None:
    title = kind.__name__ if inspect.isroutine(kind) or isinstance(kind, type) else repr(kind)
    if isinstance(kind, type):
        _check_decorated(kind)
    if missing := _missing(kind, merges=merges):
        raise InputError(
            f"{title} is not a valid method; it is missing {', '.join(missing)}. Make it a dataclass below "
            f"Learner, or one with a field network and {', '.join(VERBS)}"
        )
    if kind.__dataclass_params__.frozen or not kind.__dictoffset__:
        raise InputError(f"{title} cannot change its attributes: remove frozen and slots from @dataclass")
    fields_of(kind)


def _check_decorated(method: type) -> None:
    """Refuse a class whose fields would be ignored, because it is a dataclass only by its parent."""
    for kind in method.__mro__:
        if not is_dataclass(kind) or "__dataclass_fields__" in vars(kind):
            continue
        annotations = inspect.get_annotations(kind).items()
        ignored = [field for field, hint in annotations if "ClassVar" not in str(hint)]
        if ignored:
            raise InputError(
                f"{kind.__name__} has the fields {', '.join(ignored)}, but is not a dataclass itself: "
                "decorate it with @dataclass(kw_only=True, eq=False), below @engram.method"
            )


def _missing(kind: object, *, merges: bool) -> list[str]:
    """What a class is missing and what cannot be added to it."""
    missing = [] if isinstance(kind, type) and is_dataclass(kind) else ["@dataclass"]
    verbs = (*VERBS, "curve") if merges else VERBS
    missing += [verb for verb in verbs if not callable(getattr(kind, verb, None))]
    if not is_dataclass(kind) or "network" not in {field.name for field in fields(kind) if field.init}:
        missing.append("the field network")
    has = [verb for verb in STATE if hasattr(kind, verb)]
    return missing + ([verb for verb in STATE if verb not in has] if has else [])


def _place_of(kind: Any) -> str:
    """File and line of a class, for the end of a message; empty if they are unknown."""
    try:
        return f" ({inspect.getsourcefile(kind)}, line {inspect.getsourcelines(kind)[1]})"
    except (OSError, TypeError):
        return ""


class _WithNetwork(Protocol):
    network: nn.Module


def _kept_bytes(self: _WithNetwork) -> int:
    """Bytes of all tensors that it holds, without the network and optimisers."""
    attributes = vars(self).items()
    beside = [name for name, value in attributes if value is self.network or isinstance(value, Optimizer)]
    return kept_bytes(self, beside=tuple(beside))
