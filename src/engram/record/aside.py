"""A finished run is set aside while it is made or saved again, and restored unless the new one finishes.

Its files move to a hidden folder inside its own, so that a folder that is a link stays one. At every moment
either place holds all of them: whoever comes next can tell which one counts, and puts things right.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engram.core.errors import InputError
from engram.core.files import (
    as_input_error,
    is_file,
    make_folder,
    read_json,
    remove_left_over,
    temporary_path,
    write_json,
)
from engram.core.folder import LEASE, RECORD, RESULT
from engram.core.leases import Held, lease
from engram.core.owner import Owner

_ASIDE, _OWNER = ".before", ".owner.json"
_DAMAGED, _REPLACED = ".damaged", ".replaced"
_DAY = 24 * 3600


def set_aside(folder: Path, *, again: bool) -> bool:
    """Prepare a run's folder: with `again`, a finished run is set aside, and an unfinished one is removed.

    A run that a killed command left aside is restored first. One that another process is repeating now is
    left to it.

    Args:
        folder: The run's folder.
        again: Whether a finished run is to be run again.

    Returns:
        Whether a run was set aside, which `restore` or `forget` must follow.

    Raises:
        Held: Another process writes to the folder.
    """
    with as_input_error(f"cannot use {folder}", "; choose another name"):
        if not folder.is_dir() and not _former(folder).is_dir():
            return False
    make_folder(folder)
    with _changing(folder):
        recover(folder)
        if not again or (folder / _ASIDE).is_dir():
            return False
        if is_file(folder / RESULT):
            move_aside(folder)
            return True
        for file in _files(folder):
            file.unlink(missing_ok=True)
    return False


def restore(folder: Path) -> None:
    """Put a run back in its place, unless a new one finished there or another process is making it."""
    with suppress(Held), _changing(folder):
        settle(folder)


def forget(folder: Path) -> None:
    """Remove the run that was set aside: what came after it counts, whatever it is."""
    with suppress(Held), _changing(folder):
        shutil.rmtree(folder / _ASIDE, ignore_errors=True)


@contextmanager
def replacing(folder: Path) -> Iterator[None]:
    """Save a run in here: the finished one in the folder is put back unless the new one is complete.

    Only files of the record are touched: the folder may be the user's own, with other files in it.

    Args:
        folder: The run's folder, which is made if it does not exist.

    Raises:
        Held: Another process writes to the folder.
        InputError: The folder cannot be written to.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with replacing(folder):
        ...     _ = (folder / RESULT).write_text("{}")
        >>> [path.name for path in folder.iterdir()]
        ['result.json']
    """
    make_folder(folder)
    with _changing(folder):
        recover(folder)
        if is_file(folder / RESULT):
            move_aside(folder, to=_REPLACED, only=RECORD)
        try:
            yield
        finally:
            settle(folder, aside=_REPLACED, only=RECORD)


def put_back(folder: Path) -> None:
    """Put a run back in its place that `replacing` moved away before its process was killed, if there is one.

    Example:
        >>> put_back(Path("nowhere"))
    """
    if (folder / _REPLACED).is_dir():
        with _changing(folder):
            recover(folder)


# For who holds the lease ------------------------------------------------------------------------------


def move_aside(folder: Path, *, to: str = _ASIDE, only: Collection[str] | None = None) -> None:
    """Move the files of a run to a hidden folder: all, or those with some names."""
    aside, unfinished = folder / to, temporary_path(folder / to)
    try:
        shutil.rmtree(aside, ignore_errors=True)
        unfinished.mkdir()
        files = _files(folder, only)
        for file in files:
            _link(file, unfinished / file.name)
        write_json(unfinished / _OWNER, Owner.here().as_json())
        # From here on the run is complete in both places, and then in the new one.
        unfinished.rename(aside)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    for file in sorted(files, key=lambda file: file.name != RESULT):
        file.unlink(missing_ok=True)


def move_damaged(folder: Path) -> None:
    """Move all files of a damaged run to a hidden folder, until `remove_damaged`; they are never put back."""
    move_aside(folder, to=_DAMAGED)


def remove_damaged(folder: Path) -> None:
    """Remove the damaged run: a new one has taken its place."""
    shutil.rmtree(folder / _DAMAGED, ignore_errors=True)


def recover(folder: Path) -> None:
    """Put right what a killed command left; what a living process set aside stays there."""
    remove_left_over(folder)
    # Who replaces a run holds the lease all the time, so nobody does now.
    settle(folder, aside=_REPLACED, only=RECORD)
    if _left_aside(folder):
        settle(folder)
    former = _former(folder)
    if is_file(former / RESULT):
        if not is_file(folder / RESULT):
            for file in sorted(_files(former), key=lambda file: file.name == RESULT):
                file.replace(folder / file.name)
        shutil.rmtree(former, ignore_errors=True)


def settle(folder: Path, *, aside: str = _ASIDE, only: Collection[str] | None = None) -> None:
    """Put the run that was set aside back in its place, unless a new one finished there.

    Args:
        folder: The run's folder.
        aside: The hidden folder in it.
        only: The names of the files that are set aside (default: all).
    """
    before = folder / aside
    if not is_file(folder / RESULT) and is_file(before / RESULT):
        for file in _files(folder, only):
            if not (before / file.name).exists():
                file.unlink(missing_ok=True)
        for file in sorted(_files(before), key=lambda file: file.name == RESULT):
            beside = temporary_path(folder / file.name)
            _link(file, beside)
            beside.replace(folder / file.name)
            # Renaming one name of a file to another name of the same file leaves both.
            beside.unlink(missing_ok=True)
    shutil.rmtree(before, ignore_errors=True)


@contextmanager
def _changing(folder: Path) -> Iterator[None]:
    """Hold the lease of a run's folder; errors of the disk are one line."""
    with lease(folder), as_input_error(f"cannot change {folder}", "; choose another folder"):
        yield


def _left_aside(folder: Path) -> bool:
    """Whether a run was set aside by a process that has ended."""
    aside = folder / _ASIDE
    if not aside.is_dir():
        return False
    try:
        alive = Owner.of_json(read_json(aside / _OWNER)).alive
    except (InputError, LookupError, TypeError, ValueError):
        return True
    # A process on another machine may have set aside many runs, to repeat one after the other.
    return time.time() - aside.stat().st_mtime > _DAY if alive is None else not alive


def _former(folder: Path) -> Path:
    """Where earlier versions set a run aside."""
    place = folder.absolute()
    return place.with_name(f".{place.name}.before")


def _files(folder: Path, only: Collection[str] | None = None) -> list[Path]:
    """The files of a run, or those with some names; the lease is not one of them."""
    return [
        file
        for file in folder.iterdir()
        if not file.name.startswith(".") and file.name != LEASE and (file.is_file() or file.is_symlink())
        if only is None or file.name in only
    ]


def _link(file: Path, other: Path) -> None:
    """Give a file a second name; where the disk has no links, copy it.

    Of a symbolic link, that is the file that it leads to: elsewhere, a relative one would lead to nothing.
    """
    if file.is_symlink() and file.exists():
        file = file.resolve()
    with as_input_error(f"cannot write {other.parent}", "; choose another folder"):
        try:
            os.link(file, other)
        except OSError:
            shutil.copy2(file, other)
