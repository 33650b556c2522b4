"""What verbs print: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

from engram.core.errors import InputError
from engram.core.files import descriptor_of
from engram.core.folder import EXPERIMENT
from engram.core.jsons import Json, JsonObject

if TYPE_CHECKING:
    from engram.results.runs import Runs

INTERRUPTED = 130

stdout = Console(highlight=False)
stderr = Console(stderr=True, highlight=False)

_verbose = False


def print_json(value: Json) -> None:
    """Print one JSON object on stdout; undefined numbers are null."""
    # Other encodings lack characters, for which JSON has escapes of its own.
    ascii_only = (sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")
    sys.stdout.write(json.dumps(value, allow_nan=False, ensure_ascii=ascii_only) + "\n")


def check_output(out: Path | None, *inputs: str | Path | None) -> None:
    """Refuse to write over what a command reads, or into the folder of a run.

    Args:
        out: The file that is to be written, if there is one.
        inputs: The files, runs and stores that are read.

    Raises:
        InputError: It is one of these, or belongs to a store, or lies in the folder of a run.

    Example:
        >>> check_output(Path("report.html"), "runs")
        >>> check_output(None, "runs")
    """
    if out is None:
        return
    # Path.resolve would raise RuntimeError for links that lead to themselves.
    place = Path(os.path.realpath(out))
    if (place.parent / EXPERIMENT).is_file():
        folder = place.parent if out.is_symlink() else out.parent
        raise InputError(f"cannot write {out}: {folder} is the folder of a run; name a file elsewhere")
    if place.is_file() and any(_belongs(place, Path(read)) for read in inputs if read is not None):
        raise InputError(f"cannot write {out}: this command reads it; name another file")


def _belongs(place: Path, read: Path) -> bool:
    """Whether a file is the one that is read, or one of lm-eval's or of a compact store in what is read."""
    from engram.results.store.layout import INDEX

    if read.is_file():
        return place.samefile(read)
    if place.match("samples_*.jsonl") and Path(os.path.realpath(read)) in place.parents:
        return True
    store = read if read.is_dir() else read.parent
    return (store / INDEX).is_file() and place.suffix == ".parquet" and store.resolve() in place.parents


def print_written(out: Path) -> None:
    """Print the path of a file on stdout; nothing for a pipe or /dev/stdout, which has the content."""
    if descriptor_of(out) is None and out.is_file():
        sys.stdout.write(f"{out}\n")


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
    from engram.record.incomplete import place_of, what_to_do, why_incomplete

    for run in runs.incomplete:
        line = f"left out: {place_of(run)}: {why_incomplete(run)}; {what_to_do(run)}"
        stderr.print(line, markup=False, soft_wrap=True)


def incomplete_as_json(runs: Runs) -> list[JsonObject]:
    """The same runs as `--json` prints them."""
    from engram.record.incomplete import why_incomplete

    return [
        {
            "id": run.id,
            "folder": None if run.folder is None else str(run.folder),
            "status": run.status,
            "why": why_incomplete(run),
        }
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
