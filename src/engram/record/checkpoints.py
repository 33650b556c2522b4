"""Checkpoints as files: their seal, and the names of those that a run keeps. Nothing here needs torch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engram.core.errors import Damaged, InputError
from engram.core.files import as_input_error, checksum
from engram.core.words import counted

SEAL: Final = b"\nengram checkpoint, sha256 "
_SEALED: Final = len(SEAL) + 64
_KEPT: Final = re.compile(r"checkpoint-step-(\d+)\.pt")


def checkpoint_period(keep: str | int) -> int | None:
    """The updates between two checkpoints that are kept besides those at task ends; None for `tasks`.

    Raises:
        InputError: It is neither `tasks` nor a number from 1 on.

    Example:
        >>> checkpoint_period("tasks"), checkpoint_period("100")
        (None, 100)
        >>> checkpoint_period("often")
        Traceback (most recent call last):
        engram.core.errors.InputError: checkpoints are kept at the end of all tasks or every N updates: ...
    """
    if keep == "tasks":
        return None
    try:
        period = int(keep)
    except ValueError:
        period = 0
    if period < 1 or isinstance(keep, bool):
        raise InputError(
            f"checkpoints are kept at the end of all tasks or every N updates: write tasks or a number from "
            f"1 on, got {keep}"
        )
    return period


def kept_file(step: int) -> str:
    """The file of the checkpoint that a run keeps after so many updates.

    Example:
        >>> kept_file(120)
        'checkpoint-step-120.pt'
    """
    return f"checkpoint-step-{step}.pt"


def kept_checkpoints(folder: Path | None) -> dict[int, Path]:
    """The checkpoints that a run kept, by the number of updates before them, in ascending order.

    Args:
        folder: The run's folder; None for a run that has none.

    Example:
        >>> kept_checkpoints(Path("nowhere"))
        {}
    """
    if folder is None or not folder.is_dir():
        return {}
    named = [(_KEPT.fullmatch(path.name), path) for path in folder.iterdir()]
    return dict(sorted((int(match[1]), path) for match, path in named if match))


@dataclass(frozen=True, slots=True)
class KeptSize:
    """How much the checkpoints of some runs take.

    Attributes:
        files: How many there are.
        size: How many bytes they take.

    Example:
        >>> print(KeptSize(6, 1_250_000))
        6 checkpoints, 1.2 MB
    """

    files: int
    size: int

    @classmethod
    def of(cls, folders: Iterable[Path | None]) -> KeptSize:
        """What the runs in some folders kept."""
        files = [path for folder in folders for path in kept_checkpoints(folder).values()]
        return cls(len(files), sum(path.stat().st_size for path in files))

    def __str__(self) -> str:
        """In words."""
        return f"{counted(self.files, 'checkpoint')}, {self.size / 1e6:,.1f} MB"


def sealed(payload: memoryview) -> bytes:
    """The checksum of a checkpoint's content, which stands at its end."""
    return SEAL + checksum(payload).encode()


def sealed_content(path: Path) -> memoryview:
    """The content of a checkpoint without its checksum, if it is what was written.

    Raises:
        InputError: It cannot be read.
        Damaged: It is not what was written.
    """
    with as_input_error(f"the checkpoint {path} cannot be read"):
        content = path.read_bytes()
    payload, seal = memoryview(content)[:-_SEALED], content[-_SEALED:]
    if not seal.startswith(SEAL):
        raise Damaged(f"the checkpoint {path} has no checksum")
    if seal != sealed(payload):
        raise Damaged(f"the checkpoint {path} is damaged: its checksum is not that of its content")
    return payload


def damaged_checkpoints(folder: Path | None) -> list[str]:
    """What is wrong with the checkpoints that a run kept, one line each."""
    problems = []
    for path in kept_checkpoints(folder).values():
        try:
            sealed_content(path)
        except InputError as error:
            problems.append(str(error))
    return problems
