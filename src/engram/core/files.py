"""Files appear whole or not at all: they are written beside their place and then renamed."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engram.core.errors import InputError
from engram.core.jsons import Json

if TYPE_CHECKING:
    import polars


@contextmanager
def _as_input_error(problem: str, advice: str = "") -> Iterator[None]:
    """Turn an error of the operating system into an `InputError`: the problem, the reason and advice."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{problem}: {error.strerror or error}{advice}") from error


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist.

    Raises:
        InputError: It cannot be made.
    """
    with _as_input_error(f"cannot write to {folder}", "; choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)


def is_file(path: Path) -> bool:
    """Whether a file exists.

    Raises:
        InputError: No file can have this name.

    Example:
        >>> is_file(Path("nowhere"))
        False
    """
    with _as_input_error(f"cannot use {path.parent}", "; choose another name"):
        return path.is_file()


def remove_file(path: Path) -> None:
    """Remove a file if it exists.

    Raises:
        InputError: It cannot be removed.
    """
    with _as_input_error(f"cannot change {path.parent}", "; choose another folder"):
        path.unlink(missing_ok=True)


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
        with _as_input_error(f"cannot write {path}", "; free some space or choose another folder"):
            write(beside)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_parquet(path: Path, frame: polars.DataFrame) -> None:
    """Write a table as Parquet, whole or not at all.

    It is encoded in memory and written by Python, so that a full disk raises the same error as elsewhere.
    """
    content = io.BytesIO()
    frame.write_parquet(content, compression="zstd")
    write_whole(path, lambda beside: beside.write_bytes(content.getbuffer()))


def write_json(path: Path, value: Json) -> None:
    """Write `value` as readable JSON, whole or not at all. JSON has no NaN, so that one is a `ValueError`."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> Json:
    """The JSON value in a file.

    Raises:
        InputError: The file is missing, or is not JSON.
    """
    with _as_input_error(f"cannot read {path}"):
        content = path.read_bytes()
    try:
        return json.loads(content.decode("utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deeply: it was not written by engram") from error
