"""The parts of click that typer uses.

Newer typer brings its own click, older typer uses the installed one, so that their classes have no common
name. Those of errors are found among the base classes of typer's.
"""

from typing import Any, TypeAlias

import typer

Click: TypeAlias = Any
"""A context, command, parameter, formatter or error of click."""

_ERRORS: dict[str, type[Click]] = {kind.__name__: kind for kind in typer.BadParameter.__mro__}

ClickException = _ERRORS["ClickException"]
UsageError = _ERRORS["UsageError"]
