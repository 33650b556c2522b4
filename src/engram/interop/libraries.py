"""Other people's libraries, imported when a module that needs them is."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from engram.core.errors import InputError


class MissingLibrary(InputError, ImportError):
    """A library that is not installed, and the command that installs it."""


def library(name: str, *, user: str, install: str) -> ModuleType:
    """Import a library, or say in one line what to install.

    Args:
        name: The name of the module.
        user: What needs it, to begin the line with.
        install: What to give `pip install`: an extra of engram, or a package.

    Raises:
        MissingLibrary: It is not installed, or something that it needs is not.

    Example:
        >>> library("math", user="this page", install="math").floor(1.5)
        1
        >>> library("no_such_thing", user="this page", install="engram-eval[nothing]")
        Traceback (most recent call last):
        engram.interop.libraries.MissingLibrary: this page needs no_such_thing: pip install ...
    """
    try:
        return import_module(name)
    except ImportError as error:
        missing = "" if find_spec(name.partition(".")[0]) is None else f" ({error})"
        raise MissingLibrary(f"{user} needs {name}: pip install '{install}'{missing}") from None
