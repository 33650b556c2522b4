"""What a function remembers from call to call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import FunctionType, NoneType

_FIXED = (int, float, complex, bool, str, bytes, NoneType)


def shared_variables(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The variables that a function shares with the function in which it was defined, by name.

    Example:
        >>> def outer(x):
        ...     return lambda: x
        >>> list(shared_variables(outer(3)))
        [('x', 3)]
    """
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            yield name, cell.cell_contents


def defaults_of(function: FunctionType) -> Iterator[object]:
    """The default values of a function's parameters.

    Example:
        >>> list(defaults_of(lambda x, y=1, *, z=2: x))
        [1, 2]
    """
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def function_in(value: object) -> object:
    """The function in an attribute of a class, as it was written; other values as they are.

    Example:
        >>> function_in(staticmethod(len)) is function_in(property(len)) is len
        True
    """
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return value.fget if isinstance(value, property) else value


def remembers(value: object) -> bool:
    """Whether a method has attributes, or defaults that may change.

    Example:
        >>> remembers(lambda x, y=1: x), remembers(lambda x, seen=[]: x)
        (False, True)
    """
    if not isinstance(value, FunctionType):
        return isinstance(value, partial)
    return bool(vars(value)) or not all(isinstance(default, _FIXED) for default in defaults_of(value))
