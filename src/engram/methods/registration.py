"""Checks a class that is registered as a method, and adds what an experiment asks beyond the four verbs."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from typing import Any, Unpack

from torch.optim import Optimizer

from engram.core.errors import InputError
from engram.methods import VERBS
from engram.methods.fields import fields_of
from engram.methods.state import capture, kept_bytes, restore
from engram.methods.traits import Declaration, declare

STATE = ("state_dict", "load_state_dict")


def accepted(name: str, made: Any, **traits: Unpack[Declaration]) -> type[Any]:
    """A class as a method: checked, its traits noted, `state_dict` and the like added where missing.

    Args:
        name: The name that it is registered under.
        made: The class.
        traits: Fields of `engram.methods.traits.Traits`.

    Raises:
        InputError: It cannot be one; everything that is missing is named.

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
        _check(made, merges=traits.get("merges", False))
    except InputError as error:
        raise InputError(f"method {name}: {error}{_place_of(made)}") from error
    if not hasattr(made, STATE[0]):
        made.state_dict, made.load_state_dict = capture, restore
    if not hasattr(made, "kept_bytes"):
        made.kept_bytes = _kept_bytes
    declare(made, **traits)
    return made  # type: ignore[no-any-return]


def _check(made: Any, *, merges: bool) -> None:
    title = made.__name__ if inspect.isroutine(made) or isinstance(made, type) else repr(made)
    if isinstance(made, type):
        _check_decorated(made)
    if missing := _missing(made, merges=merges):
        raise InputError(
            f"{title} is not a valid method; it is missing {', '.join(missing)}. Make it a dataclass below "
            f"Learner, or one with a field network and {', '.join(VERBS)}"
        )
    if made.__dataclass_params__.frozen or not made.__dictoffset__:
        raise InputError(f"{title} cannot change its attributes: remove frozen and slots from @dataclass")
    fields_of(made)


def _check_decorated(made: type[Any]) -> None:
    """Refuse a class whose fields would be ignored, because it is a dataclass only by its parent."""
    for kind in made.__mro__:
        if not is_dataclass(kind) or "__dataclass_fields__" in vars(kind):
            continue
        annotations = inspect.get_annotations(kind).items()
        ignored = [field for field, hint in annotations if "ClassVar" not in str(hint)]
        if ignored:
            raise InputError(
                f"{kind.__name__} has the fields {', '.join(ignored)}, but is not a dataclass itself: "
                "decorate it with @dataclass(kw_only=True, eq=False), below @engram.method"
            )


def _missing(made: Any, *, merges: bool) -> list[str]:
    """What a class lacks and cannot be given."""
    missing = [] if isinstance(made, type) and is_dataclass(made) else ["@dataclass"]
    verbs = (*VERBS, "curve") if merges else VERBS
    missing += [verb for verb in verbs if not callable(getattr(made, verb, None))]
    if not is_dataclass(made) or "network" not in {field.name for field in fields(made) if field.init}:
        missing.append("the field network")
    has = [verb for verb in STATE if hasattr(made, verb)]
    return missing + ([verb for verb in STATE if verb not in has] if has else [])


def _place_of(made: Any) -> str:
    """Where a class is written, for the end of a message; empty where that is unknown."""
    try:
        return f" ({inspect.getsourcefile(made)}, line {inspect.getsourcelines(made)[1]})"
    except (OSError, TypeError):
        return ""


def _kept_bytes(self: Any) -> int:
    """Bytes of all tensors that it holds besides the network and optimisers."""
    attributes = vars(self).items()
    beside = [name for name, value in attributes if value is self.network or isinstance(value, Optimizer)]
    return kept_bytes(self, beside=tuple(beside))
