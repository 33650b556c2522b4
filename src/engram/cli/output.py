"""How every verb speaks: results on stdout, everything else on stderr."""

import json
import sys
from typing import Any, NoReturn

from rich.console import Console

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
