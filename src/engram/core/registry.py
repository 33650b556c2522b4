"""Names that people type, and what they stand for, imported only when asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from engram.core.errors import InputError, unknown_name

T = TypeVar("T")


class Registry(Generic[T]):
    """A table from names to things, where a thing may be given as `"module:attribute"`.

    Such a thing is imported when it is first looked up, so listing names costs nothing.

    Example:
        >>> numbers = Registry[float]("constant", {"pi": "math:pi"})
        >>> numbers["pi"]
        3.141592653589793
        >>> numbers["pie"]
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown constant 'pie': did you mean 'pi'? Known: pi
    """

    def __init__(self, kind: str, entries: Mapping[str, str | T] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, str | T] = dict(entries or {})
        self.added = 0

    def add(self, name: str, thing: str | T) -> None:
        """Give `thing` a name; a name that is taken is given anew."""
        self._entries[name] = thing
        self.added += 1

    def add_own(self, name: str, thing: T) -> None:
        """Give a user's thing a name; the names of this package's things are taken.

        Example:
            >>> Registry[object]("thing", {"registry": Registry}).add_own("registry", 3)
            Traceback (most recent call last):
            engram.core.errors.InputError: thing 'registry' is engram's own: choose another name
        """
        if name in self and self.is_ours(name) and not _is_ours(thing):
            raise InputError(f"{self.kind} {name!r} is engram's own: choose another name")
        self.add(name, thing)

    def is_ours(self, name: str) -> bool:
        """Whether a name stands for something of this package.

        Example:
            >>> Registry[float]("constant", {"pi": "math:pi"}).is_ours("pi")
            False
        """
        return _is_ours(self._entries[name])

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise unknown_name(self.kind, name, self._entries)
        thing = self._entries[name]
        if isinstance(thing, str):
            module, _, attribute = thing.partition(":")
            thing = self._entries[name] = cast(T, getattr(import_module(module), attribute))
        return cast(Any, thing)  # type: ignore[no-any-return]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _is_ours(thing: object) -> bool:
    module = thing.partition(":")[0] if isinstance(thing, str) else getattr(thing, "__module__", "")
    return str(module).partition(".")[0] == __name__.partition(".")[0]
