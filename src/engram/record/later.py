"""Fields of a dataclass whose values are made on first use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Later(Generic[T]):
    """A value that is made when it is first asked for.

    Attributes:
        make: Makes it.
    """

    make: Callable[[], T]


class LazyField(Generic[T]):
    """A field that takes a value, or a `Later` that makes the value when the field is first read.

    Args:
        default: Makes the value of a field that is not set.

    Example:
        >>> @dataclass(frozen=True)
        ... class Record:
        ...     names: LazyField[list[str]] = LazyField(list)
        >>> Record().names, Record(["a"]).names, Record(Later(lambda: ["b"])).names
        ([], ['a'], ['b'])
    """

    def __init__(self, default: Callable[[], T]) -> None:
        self.default = Later(default)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Later[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> T | Later[T]:
        # A dataclass reads the default of a field from the class.
        if instance is None:
            return self.default
        value: T | Later[T] = instance.__dict__[self.name]
        if isinstance(value, Later):
            value = instance.__dict__[self.name] = value.make()
        return value

    def __set__(self, instance: object, value: T | Later[T]) -> None:
        instance.__dict__[self.name] = value


def nothing() -> None:
    """The default of a field that may be None."""
