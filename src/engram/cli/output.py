"""How every verb speaks: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console

if TYPE_CHECKING:
    from engram.results.runs import Runs

INTERRUPTED = 130

stdout = Console(highlight=False)
stderr = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """Print one JSON object on stdout; undefined numbers are null."""
    sys.stdout.write(json.dumps(value, allow_nan=False, ensure_ascii=False) + "\n")


def fail(message: str, *, code: int = 2) -> NoReturn:
    """Say in one line what is wrong, and exit."""
    line = " ".join(message.split())
    sys.stderr.write(f"error: {line}\n")
    sys.exit(code)


def name_incomplete(runs: Runs) -> None:
    """Name the runs that are left out, because they failed, were killed or are under way."""
    for run in runs.incomplete:
        why = "it is not finished" if run.failure is None else f"it failed: {run.failure.reason}"
        stderr.print(f"left out, because {why}: {run.folder}", markup=False, soft_wrap=True)
