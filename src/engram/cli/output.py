"""What verbs print: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

from engram.core.jsons import Json, JsonObject

if TYPE_CHECKING:
    from engram.results.runs import Runs

INTERRUPTED = 130

stdout = Console(highlight=False)
stderr = Console(stderr=True, highlight=False)

_verbose = False


def print_json(value: Json) -> None:
    """Print one JSON object on stdout; undefined numbers are null."""
    sys.stdout.write(json.dumps(value, allow_nan=False, ensure_ascii=False) + "\n")


def fail(message: str, *, code: int = 2) -> NoReturn:
    """Print an error in one line, and exit.

    Example:
        >>> fail("seeds must be at least 1, got 0")
        Traceback (most recent call last):
        SystemExit: 2
    """
    line = " ".join(message.split())
    sys.stderr.write(f"error: {line}\n")
    sys.exit(code)


def name_incomplete(runs: Runs) -> None:
    """List the runs that are left out because they failed, were killed, are still running or are damaged."""
    from engram.record.incomplete import what_to_do, why_incomplete

    for run in runs.incomplete:
        line = f"left out: {run.folder}: {why_incomplete(run)}; {what_to_do(run)}"
        stderr.print(line, markup=False, soft_wrap=True)


def incomplete_as_json(runs: Runs) -> list[JsonObject]:
    """The same runs as `--json` prints them."""
    from engram.record.incomplete import why_incomplete

    return [
        {"id": run.id, "folder": str(run.folder), "status": run.status, "why": why_incomplete(run)}
        for run in runs.incomplete
    ]


def name_broken(errors: Iterable[str]) -> None:
    """List the plugins of installed packages that are left out because they cannot be loaded."""
    for error in errors:
        stderr.print(f"left out: {error}", markup=False, soft_wrap=True)


def set_verbosity(*, quiet: bool = False, verbose: bool = False) -> None:
    """Print results and errors only (`quiet`), or also where errors and warnings come from (`verbose`)."""
    global _verbose
    stderr.quiet = quiet
    _verbose = verbose


def is_verbose() -> bool:
    """Whether `-v` is set.

    Example:
        >>> is_verbose()
        False
    """
    return _verbose
