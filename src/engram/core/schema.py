"""Options that are declared once, at the field of a dataclass: type, bounds, choices and meaning.

    lr: Annotated[float, Field(gt=0, description="Learning rate.")] = 0.01

Command line, sweep files, grids, descriptions and the identity of an experiment derive from that. Besides
pydantic's `Field`, a field may carry `Since`, `Called`, `OneOf`, `Flag`, `ZeroMeansAll` or `INTERNAL`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeAlias,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from engram.core.errors import InputError, unknown_name
from engram.core.jsons import Json, JsonMapping, JsonObject

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

Marker = TypeVar("Marker")

Hint: TypeAlias = type[object]
"""A type as an annotation writes it: a class, or a form such as `int | None`; typed as pydantic types it."""

OptionValue: TypeAlias = Any
"""A value of the type that an option declares: a bool, a number, text, a tuple of numbers, a path or None."""

Declaring: TypeAlias = type[object] | Callable[..., object]
"""What declares options: a dataclass by its fields, or a function by its keyword parameters."""


@dataclass(frozen=True, slots=True)
class Since:
    """The field came after format 1: it is written, and hashed, only where it differs from its default.

    So experiments that do not use it keep the identity that they had before it came.
    """

    version: str


@dataclass(frozen=True, slots=True)
class Called:
    """The option's name, where that is not the field's name."""

    name: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """The words that a field of type `str` may be."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Flag:
    """How a boolean field is written on the command line: `--augment/--no-augment`."""

    text: str


@dataclass(frozen=True, slots=True)
class ZeroMeansAll:
    """On the command line and in sweep files, 0 stands for None, which means everything."""


@dataclass(frozen=True, slots=True)
class Internal:
    """The field is set by engram itself, or in Python, and is not an option of the command line."""


INTERNAL = Internal()


@dataclass(frozen=True)
class Option:
    """An option, as the field of a dataclass declares it.

    Attributes:
        name: Its name.
        field: The name of the field.
        annotation: Its type, with bounds.
        default: The field's default.
        description: What it means.
        flag: How it is written on the command line, if the field says so.
        zero_means_all: Whether 0 stands for None.
        models: The models that have this option; empty where it belongs to no model.

    Example:
        >>> from engram.core.values import OptimizerSpec
        >>> rate = next(option for option in options_of(OptimizerSpec) if option.name == "lr")
        >>> rate.check("0.5", text=True), rate.words
        (0.5, 'a number')
        >>> rate.check(-1)
        Traceback (most recent call last):
        engram.core.errors.InputError: lr must be above 0, got -1
        >>> rate.check("fast")
        Traceback (most recent call last):
        engram.core.errors.InputError: lr must be a number, got 'fast'
    """

    name: str
    field: str
    annotation: Hint
    default: OptionValue
    description: str = ""
    flag: str = ""
    zero_means_all: bool = False
    models: tuple[str, ...] = ()

    @cached_property
    def kind(self) -> type[object]:
        """The plain type of its values: `bool`, `int`, `float`, `str`, `tuple` or `Path`."""
        return _kind(self.annotation)

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The values that it may have, where these are a few words."""
        return _choices(self.annotation)

    @property
    def words(self) -> str:
        """What its values are, for messages."""
        if self.choices:
            return " or ".join(self.choices)
        return _WORDS.get(self.kind, self.kind.__name__)

    @property
    def help(self) -> str:
        """One line for the command line: meaning, choices, and the models that it belongs to."""
        text = self.description.rstrip(".")
        if self.choices and not all(choice in text for choice in self.choices):
            text += f": {', '.join(self.choices)}"
        if self.models:
            text += f" ({', '.join(self.models)})"
        return f"{text}."

    def check(self, value: object, *, text: bool = False) -> OptionValue:
        """The value, converted to the option's type.

        Args:
            value: A value of the option's type, or its text.
            text: Whether it was typed, so that `"3"` is a whole number and `"400,400"` two of them.

        Raises:
            InputError: It is of another type, out of bounds, or not among the choices.
        """
        from pydantic import ValidationError

        if self.zero_means_all and (value is None or (type(value) is int and value == 0) or value == "0"):
            return None
        read = _widths(value) if self.kind is tuple else value
        if self.choices and not isinstance(read, str | NoneType):
            read = str(read)
        try:
            converted = self._adapter.validate_python(read, strict=not text)
        except ValidationError as error:
            raise self._mistake(error.errors()[0], value) from None
        # A whole number stays one where any number is allowed: hashes distinguish 1 from 1.0.
        return read if type(read) is int and converted == read else converted

    def show(self, value: object) -> str:
        """A value as people would type it.

        Example:
            >>> from engram.models.options import Dense
            >>> options_of(Dense)[0].show((400, 400))
            '400,400'
        """
        if isinstance(value, tuple):
            return ",".join(map(str, value)) or "none"
        return f"{value:g}" if isinstance(value, float) else str(value)

    @cached_property
    def _adapter(self) -> TypeAdapter[object]:
        from pydantic import ConfigDict, TypeAdapter

        if (marked := _marked(self.annotation, OneOf)) is not None:
            return TypeAdapter(Literal[*marked.words])  # type: ignore[arg-type]
        # NaN and infinity are valid floats, and never valid options.
        return TypeAdapter(self.annotation, config=ConfigDict(allow_inf_nan=False))

    def _mistake(self, details: ErrorDetails, value: object) -> InputError:
        kind, context = details["type"], details.get("ctx", {})
        if kind == "literal_error" and get_close_matches(str(value), self.choices):
            return unknown_name(self.name, str(value), self.choices)
        shown = f"{self.show(tuple(value))}" if isinstance(value, list | tuple) else repr(value)
        if kind in _BOUNDS:
            low, high = _bounds(self.annotation)
            return InputError(
                f"{self.name} must be {' and '.join(part for part in (low, high) if part)}, got {shown}"
            )
        if kind == "value_error":
            return InputError(f"{self.name} cannot be {shown}: {context.get('error', details['msg'])}")
        return InputError(f"{self.name} must be {self.words}, got {shown}")


_WORDS: dict[type[object], str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "whole numbers with commas, such as 400,400",
    Path: "the path of a file",
}
_BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")


def options_of(declaring: Declaring) -> tuple[Option, ...]:
    """The options that the fields of a dataclass, or the keyword parameters of a function, declare.

    Fields marked as `INTERNAL` are left out.

    Example:
        >>> from engram.core.values import OptimizerSpec
        >>> [option.name for option in options_of(OptimizerSpec)]
        ['optimizer', 'lr', 'momentum', 'weight_decay', 'reset', 'schedule']
    """
    shown: tuple[Option, ...] = _shown_options(declaring)  # type: ignore[arg-type]
    return shown


@cache
def _shown_options(declaring: Declaring) -> tuple[Option, ...]:
    every: tuple[Option, ...] = _all_options(declaring)  # type: ignore[arg-type]
    return tuple(option for option in every if not _marked(option.annotation, Internal))


@cache
def _all_options(declaring: Declaring) -> tuple[Option, ...]:
    from pydantic.fields import FieldInfo

    hints = get_type_hints(declaring, include_extras=True)
    options = []
    for name, default in _declared(declaring):
        hint = hints.get(name, type(default))
        called, flag = _marked(hint, Called), _marked(hint, Flag)
        info = FieldInfo.from_annotation(hint)
        options.append(
            Option(
                called.name if called else name,
                name,
                hint,
                default,
                info.description or "",
                flag.text if flag else "",
                _marked(hint, ZeroMeansAll) is not None,
            )
        )
    return tuple(options)


def _declared(declaring: Declaring) -> Iterable[tuple[str, object]]:
    """The names that can be set, with their defaults."""
    if is_dataclass(declaring):
        for item in fields(declaring):
            if item.init:
                default = item.default if item.default_factory is MISSING else item.default_factory()
                yield item.name, default
        return
    for parameter in inspect.signature(declaring).parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            yield parameter.name, parameter.default


def _marked(hint: Hint, marker: type[Marker]) -> Marker | None:
    """The marker of a kind that a field carries, or None."""
    if get_origin(hint) is not Annotated:
        return None
    return next((part for part in get_args(hint)[1:] if isinstance(part, marker)), None)


def _bare(hint: Hint) -> Hint:
    """A type without what it is annotated with, and without None."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not NoneType]
        return _bare(parts[0]) if len(parts) == 1 else hint
    return hint


def _kind(hint: Hint) -> type[object]:
    bare = _bare(hint)
    origin = get_origin(bare)
    if origin is Literal:
        return str
    kind = origin or bare
    return kind if isinstance(kind, type) else str


def _choices(hint: Hint) -> tuple[str, ...]:
    if (marked := _marked(hint, OneOf)) is not None:
        return tuple(marked.words)
    bare = _bare(hint)
    return tuple(map(str, get_args(bare))) if get_origin(bare) is Literal else ()


def _widths(value: object) -> object:
    """Whole numbers as they are typed, `400,400` or `400x400`, or as a list."""
    if isinstance(value, str):
        by_x = "," not in value and all(part.strip().isdecimal() for part in value.split("x"))
        parts = [part.strip() for part in value.split("x" if by_x else ",") if part.strip()]
        return tuple(int(part) if part.lstrip("-").isdecimal() else part for part in parts)
    if type(value) is int:
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _bounds(hint: Hint) -> tuple[str, str]:
    """The bounds of a field in words, those of its items where it has several."""
    from pydantic.fields import FieldInfo

    low = high = ""
    for part in FieldInfo.from_annotation(hint).metadata:
        for name, words in (("ge", "at least {}"), ("gt", "above {}")):
            low = words.format(getattr(part, name)) if hasattr(part, name) else low
        for name, words in (("le", "at most {}"), ("lt", "below {}")):
            high = words.format(getattr(part, name)) if hasattr(part, name) else high
    if low or high:
        return low, high
    inner = get_args(_bare(hint))
    return _bounds(inner[0]) if inner and _kind(hint) is tuple else ("a finite number", "")


# Reading and writing ------------------------------------------------------------------------------------


@runtime_checkable
class WritesItself(Protocol):
    """A dataclass that says itself how it is written in `experiment.json`, and reads itself from there."""

    def as_fields(self) -> JsonObject:
        """What is written."""

    @classmethod
    def of_fields(cls, fields: JsonMapping, /) -> WritesItself:
        """What `as_fields` wrote."""


_PLAIN = frozenset({int, float, str, bool, NoneType})


def as_fields(value: object) -> Json:
    """A value as `experiment.json` has it: dataclasses become dictionaries, field by field.

    A field with `Since` is left out where it has its default, and one that is not compared
    (`field(compare=False)`) is left out everywhere. A dataclass that is `WritesItself` decides by itself.

    Example:
        >>> from engram.scenarios.values import Source
        >>> as_fields(Source("mnist", (0, 1)))  # `unused` came later
        {'dataset': 'mnist', 'classes': (0, 1)}
    """
    # Most values are plain, and whole scenarios are written for every id, so these are not looked into.
    if type(value) in _PLAIN or (type(value) is tuple and _PLAIN.issuperset(map(type, value))):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        if _writes_itself(value):
            return value.as_fields()
        return {name: as_fields(item) for name, item in written_items(value)}
    if isinstance(value, dict):
        return {key: as_fields(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(as_fields(item) for item in value)
    return value


def written_items(value: DataclassInstance) -> list[tuple[str, object]]:
    """The fields of a dataclass that `as_fields` writes, with their values.

    Example:
        >>> from engram.scenarios.values import Source
        >>> written_items(Source("mnist", (0, 1)))
        [('dataset', 'mnist'), ('classes', (0, 1))]
    """
    return [
        (name, item)
        for name, since, default in _written(type(value))
        if not ((item := getattr(value, name)) == default and since)
    ]


def _writes_itself(value: DataclassInstance) -> TypeGuard[WritesItself]:
    return _kind_writes_itself(type(value))


@cache
def _kind_writes_itself(kind: type[DataclassInstance]) -> bool:
    # Asking a protocol is slow, and every id asks for every task.
    return issubclass(kind, WritesItself)


@cache
def _written(kind: type[DataclassInstance]) -> tuple[tuple[str, bool, object], ...]:
    """The fields that are written: name, whether they came later, and their default."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        (item.name, _marked(hints[item.name], Since) is not None, item.default)
        for item in fields(kind)
        if item.compare
    )


def later_fields(kind: type[DataclassInstance]) -> JsonObject:
    """The fields of a dataclass that came after format 1, with their defaults.

    Example:
        >>> from engram.scenarios.values import Scenario
        >>> later_fields(Scenario)
        {'held_out': 0.0}
    """
    return {name: default for name, since, default in _written(kind) if since}


def from_fields(hint: Hint, value: Json, *, where: str) -> object:
    """The value that `as_fields` wrote: dictionaries become dataclasses again, field by field.

    Numbers stay exactly what they are in the file (1 does not become 1.0), so that hashes stay as well.

    Args:
        hint: The type of the value.
        value: What is in the file.
        where: Where it is in the file, for messages.

    Raises:
        InputError: A field is missing, unknown, or of another type.

    Example:
        >>> from engram.scenarios.values import Source
        >>> from_fields(Source, {"dataset": "mnist", "classes": [0, 1]}, where="here")
        Source(dataset='mnist', classes=(0, 1), unused=0)
        >>> from_fields(Source, {"dataset": "mnist", "clases": [0, 1]}, where="here")
        Traceback (most recent call last):
        engram.core.errors.InputError: here: unknown field 'clases'; did you mean 'classes'? ...
    """
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _one_of(parts, value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} must be a list, got {value!r}")
        return tuple(from_fields(parts[0], item, where=f"{where}[{i}]") for i, item in enumerate(value))
    if is_dataclass(hint) and isinstance(hint, type):
        return _rebuilt(hint, value, where)
    if origin is Literal:
        if value not in parts:
            raise InputError(f"{where} must be {' or '.join(map(str, parts))}, got {value!r}")
        return value
    plain = origin or hint
    if plain is Any:
        return value
    wanted = (int, float) if plain is float else plain
    if not isinstance(value, wanted) or (plain in (int, float) and type(value) is bool):
        raise InputError(f"{where} must be {_WORDS.get(plain, 'a table')}, got {value!r}")
    return value


def _one_of(parts: tuple[Hint, ...], value: Json, where: str) -> object:
    """A value of one of several types: dataclasses are told apart by their field `kind`."""
    if value is None and NoneType in parts:
        return None
    others = [part for part in parts if part is not NoneType]
    if len(others) == 1:
        return from_fields(others[0], value, where=where)
    kinds = {
        next(item.default for item in fields(part) if item.name == "kind"): part
        for part in others
        if is_dataclass(part)
    }
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in kinds:
        raise InputError(f"{where} must have a kind of {', '.join(map(str, kinds))}, got {value!r}")
    return from_fields(kinds[kind], value, where=where)


def _rebuilt(kind: type[DataclassInstance], value: Json, where: str) -> object:
    """A dataclass from its fields."""
    if not isinstance(value, Mapping):
        raise InputError(f"{where} must be a table, got {value!r}")
    make: Callable[..., object] = kind
    try:
        if issubclass(kind, WritesItself):
            return kind.of_fields(value)
        known = [item.name for item in fields(kind) if item.init]
        for name in value:
            if name not in known:
                raise unknown_name("field", name, known)
        hints = get_type_hints(kind, include_extras=True)
        read = {name: from_fields(hints[name], item, where=name) for name, item in value.items()}
        return make(**read)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    except TypeError as error:
        raise InputError(f"{where}: {error}") from error
