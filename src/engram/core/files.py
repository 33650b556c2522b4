"""Files appear whole or not at all: they are written beside their place and then renamed."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram.core.errors import InputError

if TYPE_CHECKING:
    import polars


def make_folder(folder: Path) -> None:
    """Make a folder unless it is there; where that cannot be, one clear line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror or error}; choose another folder"
        ) from error


def is_file(path: Path) -> bool:
    """Whether a file is there; a name that no file can have is one clear line.

    Example:
        >>> is_file(Path("nowhere"))
        False
    """
    try:
        return path.is_file()
    except OSError as error:
        raise InputError(
            f"cannot use {path.parent}: {error.strerror or error}; choose another name"
        ) from error


def remove_file(path: Path) -> None:
    """Remove a file if it is there; where that cannot be, one clear line."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot change {path.parent}: {error.strerror or error}; choose another folder"
        ) from error


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file beside `path`, then rename it into place; on any failure nothing is left.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "deep" / "note.txt"
        >>> write_whole(place, lambda beside: beside.write_text("whole"))
        >>> place.read_text(), [p.name for p in place.parent.iterdir()]
        ('whole', ['note.txt'])
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    make_folder(path.parent)
    try:
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; free some space or choose another folder"
        ) from error
    finally:
        beside.unlink(missing_ok=True)


def write_parquet(path: Path, frame: polars.DataFrame) -> None:
    """Write a table as Parquet, whole or not at all.

    It is made in memory and written from here, so that a full disk is an error like any other.
    """
    made = io.BytesIO()
    frame.write_parquet(made, compression="zstd")
    write_whole(path, lambda beside: beside.write_bytes(made.getbuffer()))


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON, whole or not at all; NaN is refused, because JSON has none."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> Any:
    """The JSON value in a file; a missing or broken file is one clear line."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
