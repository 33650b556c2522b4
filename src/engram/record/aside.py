"""A finished run is set aside while it is run again, and restored unless the new one finishes."""

from __future__ import annotations

import shutil
from pathlib import Path

from engram.core.files import is_file
from engram.core.folder import RESULT


def set_aside(folder: Path, *, again: bool) -> Path | None:
    """Prepare a run's folder: with `again`, a finished run moves to a hidden folder, which is returned.

    A run that a killed command left there is restored first. An unfinished run is removed.

    Args:
        folder: The run's folder.
        again: Whether a finished run is to be run again.
    """
    aside = folder.with_name(f".{folder.name}.before")
    if is_file(aside / RESULT):
        restore(folder, aside)
    if not again:
        return None
    for useless in (aside, *([] if is_file(folder / RESULT) else [folder])):
        shutil.rmtree(useless, ignore_errors=True)
    if not folder.exists():
        return None
    folder.replace(aside)
    return aside


def restore(folder: Path, aside: Path) -> None:
    """Put a run back in its place, unless a new one finished there."""
    if is_file(folder / RESULT):
        shutil.rmtree(aside)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        aside.replace(folder)
