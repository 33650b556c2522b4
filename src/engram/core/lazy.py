"""Packages whose names are imported when they are first used, and which still say what is in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


def lazy_package(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package that imports its public names when they are first used.

    `dir(package)` lists these names, those in its `__all__`, and its modules; the latter are imported when
    they are first used as well.

    Args:
        package: The package's name, `__name__`.
        names: The public names, by the module that defines them. A module that begins with a dot is below
            the package.

    Example:
        >>> names = {"engram.core.errors": ("InputError",), ".trace": ("Trace",)}
        >>> get, listed = lazy_package("engram.core", names)
        >>> get("InputError").__name__, get("Trace").__name__
        ('InputError', 'Trace')
        >>> {"InputError", "Trace", "errors", "trace"} <= set(listed())
        True
        >>> get("nothing")
        Traceback (most recent call last):
        AttributeError: module 'engram.core' has no attribute 'nothing'
    """
    homes = {name: module for module, defined in names.items() for name in defined}

    def get(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name], package), name)
        if not name.startswith("_") and name in _modules(package):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        own: Sequence[str] = getattr(sys.modules[package], "__all__", ())
        return sorted({*homes, *own, *_modules(package)})

    return get, listed


def _modules(package: str) -> list[str]:
    """The modules and packages directly below a package."""
    return [module.name for module in iter_modules(sys.modules[package].__path__)]
