"""Hyper-parameters: the fields of a method's dataclass, described, checked and converted."""

from __future__ import annotations

from dataclasses import MISSING, fields
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

from engram.core.errors import InputError
from engram.methods.traits import Settings

if TYPE_CHECKING:
    from engram.methods.base import Method

SHARED = ("network", "optimizer_spec", "generator")
"""Fields that the experiment fills in; all others are hyper-parameters."""


class HyperParameter(NamedTuple):
    """A hyper-parameter of a method: its name, its type, its default and its description."""

    name: str
    type: str
    default: object
    doc: str


def fields_of(method: type) -> list[HyperParameter]:
    """The hyper-parameters of a method, in the order of its file.

    Example:
        >>> from engram.methods import METHODS
        >>> [f.name for f in fields_of(METHODS["gem"])]
        ['memory', 'margin', 'policy', 'ridge']
    """
    return list(_described(method)[0].values())


def readable_type(annotation: object) -> str:
    """The type of a field as people write it.

    Example:
        >>> readable_type(Annotated[float, "above 0"] | Literal["mean", "sum"])
        'float | mean | sum'
    """
    if get_origin(annotation) is Annotated:
        return readable_type(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(readable_type(part) for part in get_args(annotation))
    return "none" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


def validate_fields(name: str, method: type, values: Settings) -> dict[str, object]:
    """All hyper-parameters of a method: `values` checked and converted, the others at their defaults.

    Text is converted to the field's type, so values may come from a command line.

    Example:
        >>> from engram.methods import METHODS
        >>> validate_fields("gem", METHODS["gem"], {"memory": "10"})["memory"]
        10
        >>> validate_fields("gem", METHODS["gem"], {"memory": 0})
        Traceback (most recent call last):
        engram.core.errors.InputError: method gem: memory must be greater than 0, got 0
    """
    known, model = _described(method)
    valid = ", ".join(known) or "none"
    mistakes = {
        key: f"method {name} has no field {key!r}: its fields are {valid}"
        for key in values
        if key not in known
    }
    try:
        checked = dict(model.model_validate({key: value for key, value in values.items() if key in known}))
    except ValidationError as error:
        for mistake in error.errors():
            where, message = str(mistake["loc"][0]), mistake["msg"]
            rule = message.partition(", unable to parse")[0].replace("Input should", "must", 1)
            mistakes.setdefault(where, f"method {name}: {where} {rule}, got {values[where]!r}")
    if mistakes:
        raise InputError("; ".join(mistakes.values()))
    return checked


def uses_optimizer(kind: type) -> bool:
    """Whether a method is given the optimiser of the experiment; others train by themselves, if at all.

    Example:
        >>> from engram.methods import METHODS
        >>> uses_optimizer(METHODS["er"]), uses_optimizer(METHODS["gdumb"])
        (True, False)
    """
    return any(item.name == "optimizer_spec" and item.init for item in fields(kind))


def build_method(kind: type, settings: Settings, **shared: object) -> Method:
    """An instance of a method, with its hyper-parameters and what it shares with all other methods.

    Args:
        kind: The method's class.
        settings: All of its hyper-parameters.
        shared: What every `Learner` is given: `network`, `optimizer_spec`, `generator`.
    """
    taken = {item.name for item in fields(kind) if item.init}
    method: Method = kind(**{name: part for name, part in shared.items() if name in taken}, **settings)
    return method


_FINITE = ConfigDict(allow_inf_nan=False)
_KNOWN: dict[type, tuple[dict[str, HyperParameter], type[BaseModel]]] = {}


def _described(method: type) -> tuple[dict[str, HyperParameter], type[BaseModel]]:
    """A method's fields by name, and the model that checks them; made once per method."""
    if method not in _KNOWN:
        hints = get_type_hints(method, include_extras=True)
        defaults = {
            item.name: item.default for item in fields(method) if item.name not in SHARED and item.init
        }
        missing = [name for name, default in defaults.items() if default is MISSING]
        if missing:
            raise InputError(
                f"{method.__name__}: the field {missing[0]!r} needs a default value, or field(init=False) "
                "where it is not a hyper-parameter"
            )
        described = {
            name: HyperParameter(
                name,
                readable_type(hints[name]),
                default,
                FieldInfo.from_annotation(hints[name]).description or "",
            )
            for name, default in defaults.items()
        }
        definitions: dict[str, Any] = {name: (hints[name], default) for name, default in defaults.items()}
        _KNOWN[method] = described, create_model("Fields", __config__=_FINITE, **definitions)
    return _KNOWN[method]
