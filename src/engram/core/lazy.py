"""Packages that import their public names on first use, and still list them in `dir()`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules

from engram.core.errors import needs_torch


def lazy_package(
    package: str, names: Mapping[str, Sequence[str]], *, list_modules: bool = True
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package that imports its public names on first use.

    `dir(package)` lists these names, those in its `__all__`, and its modules, which are imported on first use
    as well.

    Args:
        package: The package's name, `__name__`.
        names: The public names, by the module that defines them. A module that begins with a dot is below
            the package.
        list_modules: Whether modules are attributes before they are imported, and listed.

    Example:
        >>> names = {"engram.core.errors": ("InputError",), ".trace": ("Trace",)}
        >>> get, listed = lazy_package("engram.core", names)
        >>> get("InputError"), get("Trace")
        (<class 'engram.core.errors.InputError'>, <class 'engram.core.trace.Trace'>)
        >>> {"InputError", "Trace", "errors", "trace"} <= set(listed())
        True
        >>> get("nothing")
        Traceback (most recent call last):
        AttributeError: module 'engram.core' has no attribute 'nothing'
    """
    homes = {name: module for module, defined in names.items() for name in defined}

    def modules() -> set[str]:
        below = iter_modules(sys.modules[package].__path__) if list_modules else ()
        return {module.name for module in below if not module.name.startswith("_")}

    def get(name: str) -> object:
        if name in homes:
            try:
                return getattr(import_module(homes[name], package), name)
            except ModuleNotFoundError as error:
                if advice := needs_torch(error, f"{package}.{name}"):
                    raise ModuleNotFoundError(advice, name=error.name) from error
                raise
        # Python itself looks up names with underscores: they are not worth a look into the folder.
        if not name.startswith("_") and name in modules():
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        exported: Sequence[str] = vars(sys.modules[package]).get("__all__", ())
        return sorted({*homes, *exported, *modules()})

    return get, listed
