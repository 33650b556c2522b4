"""Names that people type, and what they stand for, imported only when asked for."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar, cast

from engram.core.errors import InputError, unknown_name

T = TypeVar("T")


class Declared(NamedTuple):
    """What an installed package declares, and how it is loaded: not before somebody asks for it."""

    package: str
    load: Callable[[], Any]


class Registry(Generic[T]):
    """A table from names to things, where a thing may be given as `"module:attribute"`.

    Such a thing is imported when it is first looked up, so listing names costs nothing.

    Example:
        >>> numbers = Registry[float]("constant", {"pi": "math:pi"})
        >>> numbers["pi"]
        3.141592653589793
        >>> numbers["pie"]
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown constant 'pie'; did you mean 'pi'? Choose from pi
    """

    def __init__(self, kind: str, entries: Mapping[str, str | T] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, str | T | Declared] = dict(entries or {})
        self._taken: dict[str, str] = {}
        self.added = 0

    def add(self, name: str, thing: str | T) -> None:
        """Give `thing` a name; a name that is taken is given anew."""
        # What was known by name only is not new.
        self.added += not isinstance(self._entries.get(name), str)
        self._entries[name] = thing

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

    def declare(self, name: str, package: str, load: Callable[[], Any]) -> None:
        """Give what an installed package declares a name; one that is taken stays what it is.

        Who asks for a name that a package wanted as well is warned; what cannot be loaded is refused then.

        Example:
            >>> numbers = Registry[float]("constant", {"pi": "math:pi"})
            >>> numbers.declare("half", "theirs", lambda: 1 / 2)
            >>> numbers.declare("none", "theirs", lambda: 1 / 0)
            >>> numbers["half"]
            0.5
            >>> numbers["none"]
            Traceback (most recent call last):
            engram.core.errors.InputError: constant 'none' of the package theirs cannot be used:
            ZeroDivisionError: division by zero; mend or uninstall the package
        """
        if name not in self:
            self._entries[name] = Declared(package, load)
            return
        there = self._entries[name]
        owner = f"the package {there.package}" if isinstance(there, Declared) else "engram"
        self._taken[name] = (
            f"the package {package} declares a {self.kind} {name!r}, a name that {owner} has already: "
            f"that of {owner} is used"
        )

    def loaded(self) -> tuple[dict[str, T], list[str]]:
        """Everything that can be used, by name, and a line about each of the rest.

        Example:
            >>> numbers = Registry[float]("constant", {"pi": "math:pi"})
            >>> numbers.declare("none", "theirs", lambda: 1 / 0)
            >>> found, broken = numbers.loaded()
            >>> list(found), len(broken)
            (['pi'], 1)
        """
        found, broken = {}, []
        # What is loaded may register more.
        for name in list(self):
            try:
                found[name] = self[name]
            except InputError as error:
                broken.append(str(error))
        return found, broken

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
        if name in self._taken:
            # Said in one place, it is said once.
            warnings.warn(self._taken[name], stacklevel=1)
        thing = self._entries[name]
        if isinstance(thing, Declared):
            thing = self._entries[name] = cast(T, self._load(name, thing))
        if isinstance(thing, str):
            module, _, attribute = thing.partition(":")
            imported = import_module(module)
            # A module without an attribute registers the thing itself, by its decorator.
            thing = cast(T, getattr(imported, attribute)) if attribute else self._entries[name]
            assert not isinstance(thing, str), f"{module} does not register a {self.kind} {name!r}"
            self._entries[name] = thing
        return cast(Any, thing)  # type: ignore[no-any-return]

    def _load(self, name: str, declared: Declared) -> Any:
        try:
            return declared.load()
        except (Exception, SystemExit) as error:
            # Whatever it is, it is the package that failed, and where is in the exception's cause.
            reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            raise InputError(
                f"{self.kind} {name!r} of the package {declared.package} cannot be used: "
                f"{' '.join(reason.split())}; mend or uninstall the package"
            ) from error

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _is_ours(thing: object) -> bool:
    if isinstance(thing, Declared):
        return False
    module = thing.partition(":")[0] if isinstance(thing, str) else getattr(thing, "__module__", "")
    return str(module).partition(".")[0] == __name__.partition(".")[0]
