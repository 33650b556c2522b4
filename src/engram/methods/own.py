"""What a class must have to be a method, and what it is given where it has nothing of its own."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from inspect import get_annotations
from typing import Any

from torch.optim import Optimizer

from engram.core.errors import InputError
from engram.methods import VERBS
from engram.methods.base import fields_of
from engram.methods.state import capture, kept_bytes, restore

STATE = ("state_dict", "load_state_dict")


def accepted(name: str, made: Any) -> type[Any]:
    """A class as a method, which is given defaults for what an experiment asks beyond the four verbs.

    Raises:
        InputError: It cannot be one; everything that it lacks is named.

    Example:
        >>> class Mine:
        ...     def observe(self, batch): ...
        >>> accepted("mine", Mine)
        Traceback (most recent call last):
        engram.core.errors.InputError: method mine: Mine is no method, it lacks @dataclass, begin_task,
        end_task, predictor, the field network: make it a dataclass below Learner, or one that has a field
        network and begin_task, observe, end_task, predictor
    """
    called = getattr(made, "__name__", repr(made))
    if isinstance(made, type):
        _check_decorated(name, made)
    if lacking := _lacking(made):
        raise InputError(
            f"method {name}: {called} is no method, it lacks {', '.join(lacking)}: make it a dataclass below "
            f"Learner, or one that has a field network and {', '.join(VERBS)}"
        )
    if made.__dataclass_params__.frozen or not made.__dictoffset__:
        raise InputError(f"method {name}: {called} cannot change its attributes: leave frozen and slots out")
    try:
        fields_of(made)
    except InputError as error:
        raise InputError(f"method {name}: {error}") from error
    given = {"needs": (), "family": "own", "paper": "", "kept_bytes": _kept_bytes}
    if not hasattr(made, STATE[0]):
        given |= {"state_dict": capture, "load_state_dict": restore}
    for attribute, default in given.items():
        if not hasattr(made, attribute):
            setattr(made, attribute, default)
    return made  # type: ignore[no-any-return]


def _check_decorated(name: str, made: type[Any]) -> None:
    """Refuse a class whose fields are none, because it is a dataclass only by its parent."""
    for kind in made.__mro__:
        if not is_dataclass(kind) or "__dataclass_fields__" in vars(kind):
            continue
        own = [field for field, hint in get_annotations(kind).items() if "ClassVar" not in str(hint)]
        if own:
            raise InputError(
                f"method {name}: {kind.__name__} has the fields {', '.join(own)}, but is no dataclass "
                "itself: decorate it with @dataclass(kw_only=True, eq=False), below @engram.method"
            )


def _lacking(made: Any) -> list[str]:
    """What a class lacks that nobody else can give it."""
    lacking = [] if isinstance(made, type) and is_dataclass(made) else ["@dataclass"]
    lacking += [verb for verb in VERBS if not callable(getattr(made, verb, None))]
    if not is_dataclass(made) or "network" not in {field.name for field in fields(made) if field.init}:
        lacking.append("the field network")
    has = [verb for verb in STATE if hasattr(made, verb)]
    return lacking + ([verb for verb in STATE if verb not in has] if has else [])


def _kept_bytes(self: Any) -> int:
    """Bytes of all tensors that it holds besides the network and optimisers."""
    known = vars(self).items()
    beside = [name for name, value in known if value is self.network or isinstance(value, Optimizer)]
    return kept_bytes(self, beside=tuple(beside))
