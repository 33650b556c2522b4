"""Files appear whole or not at all: they are written beside their place and then renamed."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engram.core.errors import Damaged, InputError
from engram.core.jsons import Json
from engram.core.owner import is_left_over, unique_name

if TYPE_CHECKING:
    import polars


_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "free some space",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EISDIR: "name a file",
}
_PART = ".part"
_DAY = 24 * 3600
_MOST_LINKS = 40
_unfinished: set[Path] = set()
"""The temporary files that this process is writing."""


@contextmanager
def as_input_error(problem: str, advice: str = "") -> Iterator[None]:
    """Turn an error of the operating system into an `InputError`: the problem, the reason and advice.

    Example:
        >>> with as_input_error("cannot read the notes", "; write some"):
        ...     open("nowhere")
        Traceback (most recent call last):
        engram.core.errors.InputError: cannot read the notes: No such file or directory; write some
    """
    try:
        yield
    except OSError as error:
        better = _ADVICE.get(error.errno or 0)
        advice = f"; {better}" if better and advice else advice
        raise InputError(f"{problem}: {error.strerror or error}{advice}") from error


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist.

    Raises:
        InputError: It cannot be made.
    """
    with as_input_error(f"cannot write to {folder}", "; choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)


def is_file(path: Path) -> bool:
    """Whether a file exists.

    Raises:
        InputError: No file can have this name.

    Example:
        >>> is_file(Path("nowhere"))
        False
    """
    with as_input_error(f"cannot use {path.parent}", "; choose another name"):
        return path.is_file()


def remove_file(path: Path) -> None:
    """Remove a file if it exists.

    Raises:
        InputError: It cannot be removed.
    """
    with as_input_error(f"cannot change {path.parent}", "; choose another folder"):
        path.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[Path], object], *, keep: Path | None = None) -> None:
    """Let `write` make a file beside `path`, then rename it into place; on any failure nothing is left.

    What a killed process left beside this path is removed. A symbolic link stays, and its target is replaced.
    A pipe or a terminal is written to as it is, and so is an open file such as /dev/stdout: what was written
    to it before stays.

    Args:
        path: The file.
        write: Makes it under the name that it is called with.
        keep: Where the file that it replaces is kept; by default it is not.

    Raises:
        InputError: The file cannot be written; the one that was there is as before.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "deep" / "note.txt"
        >>> write_whole(place, lambda beside: beside.write_text("whole"))
        >>> place.read_text(), [p.name for p in place.parent.iterdir()]
        ('whole', ['note.txt'])
    """
    if (descriptor := descriptor_of(path)) is not None:
        _write_to(descriptor, path, write)
        return
    if is_stream(path):
        with _writing_to(path):
            write(path)
        return
    place = Path(os.path.realpath(path)) if path.is_symlink() else path
    make_folder(place.parent)
    remove_left_over(place.parent, of=place.name)
    beside = temporary_path(place)
    _unfinished.add(beside)
    try:
        with as_input_error(f"cannot write {path}", "; choose another folder"):
            write(beside)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
            if keep is not None:
                with suppress(FileNotFoundError):
                    place.replace(keep)
            beside.replace(place)
    finally:
        # What prevented the write may prevent this as well: the first error is the one that matters.
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        _unfinished.discard(beside)


def descriptor_of(path: Path) -> int | None:
    """The open file of this process that a path such as /dev/stdout or /dev/fd/3 stands for, if it does.

    Example:
        >>> descriptor_of(Path("/dev/stdout")), descriptor_of(Path("report.html"))
        (1, None)
    """
    folders = {os.path.realpath(folder) for folder in ("/dev/fd", "/proc/self/fd")}
    with suppress(OSError):
        for _ in range(_MOST_LINKS):
            if path.name.isdecimal() and os.path.lexists(path) and os.path.realpath(path.parent) in folders:
                return int(path.name)
            path = path.parent / path.readlink()
    return None


def _write_to(descriptor: int, path: Path, write: Callable[[Path], object]) -> None:
    """Write to an open file what `write` makes; opened by its name, it would be emptied."""
    with tempfile.TemporaryDirectory() as folder:
        beside = Path(folder) / "whole"
        with as_input_error(f"cannot write {path}", "; choose another folder"):
            write(beside)
            content = beside.read_bytes()
    with _writing_to(path):
        if descriptor == 1:
            sys.stdout.flush()
        with os.fdopen(os.dup(descriptor), "wb") as sink:
            sink.write(content)


@contextmanager
def _writing_to(path: Path) -> Iterator[None]:
    """As `as_input_error`, except where a pipe is read no further, which is for commands to deal with."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def is_stream(path: Path) -> bool:
    """Whether a path is an open file, a pipe or a character device such as a terminal: never replaced.

    Raises:
        InputError: It is a folder, or nothing that can be written to.

    Example:
        >>> is_stream(Path("/dev/null")), is_stream(Path("report.html"))
        (True, False)
    """
    if descriptor_of(path) is not None:
        return True
    with as_input_error(f"cannot write {path}", "; choose another folder"):
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        raise InputError(f"cannot write {path}: it must be a file or a pipe; choose another name")
    return not stat.S_ISREG(mode)


def temporary_path(path: Path, *, ending: str = _PART) -> Path:
    """A hidden name beside a path that no other process uses, on any machine; short, whatever the path's is.

    Args:
        path: The path.
        ending: How the name ends.

    Example:
        >>> temporary_path(Path("runs/" + 250 * "x")).name.startswith(".xxx")
        True
    """
    return path.with_name(f".{path.name[:40]}.{unique_name()}{ending}")


def remove_left_over(folder: Path, *, of: str = "", ending: str = _PART) -> None:
    """Remove the temporary files of processes that have ended; on other machines, those older than a day.

    Args:
        folder: The folder.
        of: The name of the file that they are for (default: any).
        ending: How their names end.
    """
    stem = f"{of[:40]}." if of else ""
    with suppress(OSError):
        for entry in folder.iterdir():
            name = entry.name
            if not (name.startswith(f".{stem}") and name.endswith(ending)):
                continue
            with suppress(FileNotFoundError):
                ended = is_left_over(name.removesuffix(ending).rpartition(".")[2])
                if not ended and time.time() - entry.stat().st_mtime < _DAY:
                    continue
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink(missing_ok=True)


def remove_unfinished() -> None:
    """Remove the temporary files that this process is writing, before it ends at once."""
    for beside in list(_unfinished):
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def checksum(content: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hexadecimal digits.

    Example:
        >>> checksum(b"whole")[:12]
        '5d5766cf2d78'
    """
    return hashlib.sha256(content).hexdigest()


def write_parquet(path: Path, frame: polars.DataFrame, *, row_group: int | None = None) -> str:
    """Write a table as Parquet, whole or not at all, and return the file's checksum.

    It is encoded in memory and written by Python, so that a full disk raises the same error as elsewhere.

    Args:
        path: The file.
        frame: The table.
        row_group: So many rows are read together (default: as Polars chooses).
    """
    content = io.BytesIO()
    frame.write_parquet(content, compression="zstd", row_group_size=row_group)
    write_whole(path, lambda beside: beside.write_bytes(content.getbuffer()))
    return checksum(content.getbuffer())


def write_json(path: Path, value: Json) -> None:
    """Write `value` as readable JSON, whole or not at all. JSON has no NaN, so that one is a `ValueError`."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> Json:
    """The JSON value in a file.

    Raises:
        InputError: The file cannot be read.
        Damaged: It is not JSON.
    """
    with as_input_error(f"cannot read {path}"):
        content = path.read_bytes()
    try:
        return json.loads(content.decode("utf-8"))
    except ValueError as error:
        raise Damaged(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise Damaged(f"{path} is nested too deeply: it was not written by engram") from error
