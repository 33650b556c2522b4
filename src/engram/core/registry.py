"""Names that people type, and what they stand for, imported only when they are used.

Methods, models, scenarios, data sets and metrics are all kept in a `Registry`. A registry that has a
`decorator` also tells the plugin loader (`engram.core.plugins`) that users may add to it, and one that has a
`group` finds what installed packages declare in their entry points.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FunctionType
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

from engram.core.errors import InputError, unknown_name

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


class OpenRegistry(Protocol):
    """A registry that users add to with a decorator, whatever it holds.

    Attributes:
        decorator: What users write above their own, as messages show it.
        added: How often something was added that is not engram's own.
    """

    decorator: str
    added: int

    def __iter__(self) -> Iterator[str]: ...

    def remove(self, name: str) -> None:
        """Forget a name."""


OPEN: list[OpenRegistry] = []
"""The registries that users add to; each of them adds itself."""


class Declared(NamedTuple):
    """What an installed package declares, and how it is loaded when it is first looked up."""

    package: str
    load: Callable[[], object]


class Lazy(NamedTuple):
    """Something that is made when it is first looked up."""

    make: Callable[[], object]


def check_name(kind: str, name: str) -> str:
    """The name itself, if it can be typed, and be part of the name of a folder.

    Raises:
        InputError: It has spaces, slashes, two dots in a row, or begins with a sign.

    Example:
        >>> check_name("method", "der++")
        'der++'
        >>> check_name("method", "../mine")
        Traceback (most recent call last):
        engram.core.errors.InputError: '../mine' cannot name a method: use letters, digits, dots, dashes, ...
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or ".." in name:
        raise InputError(
            f"{name!r} cannot name a {kind}: use letters, digits, dots, dashes, plus signs and underscores, "
            "beginning with a letter or digit"
        )
    return name


_TO_LOAD = frozenset({str, Declared, Lazy})
"""The types of entries that stand for a thing that is not there yet."""


class Registry(Generic[T]):
    """A table from names to things, where a thing may be given as `"module:attribute"`.

    Such a thing is imported when it is first looked up, so listing names costs nothing.

    Args:
        kind: What a thing is called in messages.
        entries: The things that engram brings.
        home: The module whose import registers engram's own things with a decorator, if any; imported when
            the registry is first used.
        group: The entry points in which installed packages declare theirs; looked up when the registry is
            first used.
        decorator: What users write above their own, as messages show it.
        accept: The function that turns a name and what an entry point loads into the thing, or where it is
            written, as `"module:function"`; raises `InputError` for what is not such a thing.

    Example:
        >>> numbers = Registry[float]("constant", {"pi": "math:pi"})
        >>> numbers["pi"]
        3.141592653589793
        >>> numbers["pie"]
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown constant 'pie'; did you mean 'pi'? ...
    """

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, str | T] | None = None,
        *,
        home: str = "",
        group: str = "",
        decorator: str = "",
        accept: str | Callable[..., T] | None = None,
    ) -> None:
        self.kind = kind
        self.decorator = decorator
        self.added = 0
        """How often something was added that is not engram's own."""
        self._entries: dict[str, str | T | Declared | Lazy] = dict(entries or {})
        self._origins: dict[str, str] = {}
        self._taken: dict[str, str] = {}
        self._group = group
        self._accept = accept
        self._home = home
        self._complete = not (home or group)
        if decorator:
            OPEN.append(self)

    def add(self, name: str, thing: str | T | Lazy, *, origin: str = "") -> None:
        """Give `thing` a name; a name that is taken stands for the new thing from then on.

        Args:
            name: Its name.
            thing: What it stands for; `Lazy` where it is made when it is first looked up.
            origin: The module in which it is written (default: the thing's `__module__`).
        """
        if not _is_ours(origin or thing):
            check_name(self.kind, name)
        self._entries[name] = thing
        self._origins.pop(name, None)
        if origin:
            self._origins[name] = origin
        if not self.is_ours(name):
            self.added += 1

    def add_own(self, name: str, thing: T | Lazy, *, origin: str = "") -> None:
        """Give a user's thing a name; the names of engram's own things are taken.

        Example:
            >>> Registry[object]("thing", {"registry": Registry}).add_own("registry", 3)
            Traceback (most recent call last):
            engram.core.errors.InputError: thing 'registry' is engram's own: choose another name
        """
        if name in self and self.is_ours(name) and not _is_ours(origin or thing):
            raise InputError(f"{self.kind} {name!r} is engram's own: choose another name")
        self.add(name, thing, origin=origin)

    def remove(self, name: str) -> None:
        """Forget a name; an unknown one is ignored."""
        self._entries.pop(name, None)
        self._origins.pop(name, None)

    def declare(self, name: str, package: str, load: Callable[[], object]) -> None:
        """Give what an installed package declares a name; a name that is taken keeps its meaning.

        Looking up a name that a package declares as well warns about it. What cannot be loaded is an
        `InputError` when it is looked up.

        Example:
            >>> numbers = Registry[float]("constant", {"pi": "math:pi"})
            >>> numbers.declare("half", "theirs", lambda: 1 / 2)
            >>> numbers.declare("none", "theirs", lambda: 1 / 0)
            >>> numbers["half"]
            0.5
            >>> numbers["none"]
            Traceback (most recent call last):
            engram.core.errors.InputError: constant 'none' of the package theirs cannot be used:
            ZeroDivisionError: division by zero; fix or uninstall the package
        """
        check_name(self.kind, name)
        if name not in self:
            self._entries[name] = Declared(package, load)
            return
        entry = self._entries[name]
        owner = f"the package {entry.package}" if isinstance(entry, Declared) else "engram"
        self._taken[name] = (
            f"the package {package} declares a {self.kind} {name!r}, a name that {owner} has already: "
            f"that of {owner} is used"
        )

    def find_declared(self) -> None:
        """Add what installed packages declare as entry points of this registry's group."""
        for point in entry_points(group=self._group):
            package = point.module if point.dist is None else point.dist.name
            self.declare(point.name, package, partial(self._loaded_from, point))

    def _fill(self) -> None:
        """Add what is registered elsewhere: engram's own, and what installed packages declare."""
        # First, because the decorators in that module look up names here.
        self._complete = True
        if self._home:
            import_module(self._home)
        if self._group:
            self.find_declared()

    def loaded(self) -> tuple[dict[str, T], list[str]]:
        """Everything that can be used, by name, and one error message per thing that cannot.

        Example:
            >>> numbers = Registry[float]("constant", {"pi": "math:pi"})
            >>> numbers.declare("none", "theirs", lambda: 1 / 0)
            >>> usable, broken = numbers.loaded()
            >>> list(usable), len(broken)
            (['pi'], 1)
        """
        if self._complete and not self._taken and _TO_LOAD.isdisjoint(map(type, self._entries.values())):
            # The usual case: thousands of runs ask which metrics there are.
            return dict(cast("dict[str, T]", self._entries)), []
        usable, broken = {}, []
        # What is loaded may register more.
        for name in list(self):
            try:
                usable[name] = self[name]
            except InputError as error:
                broken.append(str(error))
        return usable, broken

    def is_ours(self, name: str) -> bool:
        """Whether a name stands for one of engram's own things.

        Example:
            >>> Registry[float]("constant", {"pi": "math:pi"}).is_ours("pi")
            False
        """
        return _is_ours(self._origins.get(name) or self._entries[name])

    def name_of(self, thing: object) -> str | None:
        """The name that a thing is registered under, or None; nothing is imported to find out.

        Example:
            >>> from decimal import Decimal
            >>> numbers = Registry[object]("number", {"decimal": "decimal:Decimal"})
            >>> numbers.name_of(Decimal), numbers.name_of(float)
            ('decimal', None)
        """
        place = f"{thing.__module__}:{thing.__qualname__}" if isinstance(thing, type | FunctionType) else None
        for name in self:
            if self._entries[name] is thing or self._entries[name] == place:
                return name
        return None

    def code_of(self, name: str) -> str:
        """The first twelve digits of a hash of the file in which a user's own thing is written.

        An edited file is another experiment. Where there is no file, as in a notebook, the source text is
        hashed. Empty for what engram brings, and where no source is known.

        Example:
            >>> Registry[object]("thing", {"registry": Registry}).code_of("registry")
            ''
        """
        if name not in self or self.is_ours(name):
            return ""
        thing = self[name]
        return code_of(self._origins.get(name) or _module_of(thing), thing)

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise unknown_name(self.kind, name, self._entries)
        if name in self._taken:
            # Python shows a warning once per place where it arises: this is the only one.
            warnings.warn(self._taken[name], stacklevel=1)
        thing = self._entries[name]
        if isinstance(thing, Declared):
            thing = self._load(name, thing)
            self._entries[name] = thing
        if isinstance(thing, Lazy):
            thing = self._entries[name] = cast(T, thing.make())
        if isinstance(thing, str):
            thing = self._entries[name] = cast(T, self._imported(name, thing))
        return thing

    def _imported(self, name: str, place: str) -> object:
        """What a place stands for; a module without an attribute registers the thing itself."""
        if ":" in place:
            return _attribute(place)
        import_module(place)
        thing = self._entries[name]
        assert not isinstance(thing, str), f"{place} does not register a {self.kind} {name!r}"
        return thing

    def _load(self, name: str, declared: Declared) -> T:
        try:
            thing = declared.load()
        except (Exception, SystemExit) as error:
            # Whatever the error, the package failed; where is in the exception's cause.
            reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            raise InputError(
                f"{self.kind} {name!r} of the package {declared.package} cannot be used: "
                f"{' '.join(reason.split())}; fix or uninstall the package"
            ) from error
        return cast(T, thing)

    def _loaded_from(self, point: EntryPoint) -> object:
        loaded = point.load()
        registered = self._entries.get(point.name)
        if registered is not None and not isinstance(registered, Declared):
            # The module has a decorator, which registered it under this name.
            return registered
        self._origins[point.name] = _module_of(loaded, default=point.module)
        accept = _attribute(self._accept) if isinstance(self._accept, str) else self._accept
        return accept(point.name, loaded) if callable(accept) else loaded

    def __contains__(self, name: object) -> bool:
        if not self._complete:
            self._fill()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        if not self._complete:
            self._fill()
        return iter(self._entries)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def code_of(module: str, thing: object = None) -> str:
    """The first twelve digits of a hash of a module's file, or else of a thing's source text.

    Example:
        >>> len(code_of("json")), code_of("nowhere")
        (12, '')
    """
    file = vars(sys.modules[module]).get("__file__") if module in sys.modules else None
    if file is not None and Path(file).is_file():
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
    if not callable(thing):
        return ""
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def _attribute(place: str) -> object:
    """What `"module:attribute"` stands for."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _module_of(thing: object, *, default: str = "") -> str:
    """The module in which a class, a function or the class of a value is written; some values have none."""
    return str(getattr(thing, "__module__", None) or default)


def _is_ours(thing: object) -> bool:
    """Whether a thing, or the module or `"module:attribute"` that it is named by, is engram's."""
    if isinstance(thing, Declared):
        return False
    module = thing.partition(":")[0] if isinstance(thing, str) else _module_of(thing)
    return module.partition(".")[0] == __name__.partition(".")[0]
