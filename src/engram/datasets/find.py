"""Finding a data set: in the caller's folder, in `ENGRAM_DATA`, or in the cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from engram.core.cache import cache_folder
from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.datasets.layouts import Layout, layouts, pickled


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a data set on disk.

    Attributes:
        name: Its name.
        path: Its file or folder.
        layout: Its form.
    """

    name: str
    path: Path
    layout: Layout


def search_folders(folder: Path | None = None) -> tuple[Path, ...]:
    """The folders that are searched, in this order: `folder`, `ENGRAM_DATA`, the cache.

    A folder that was named and does not exist is an error; the cache need not exist yet.
    """
    named = [("the data folder", folder), ("ENGRAM_DATA", os.environ.get("ENGRAM_DATA") or None)]
    folders = []
    for what, place in named:
        if place is None:
            continue
        path = Path(place).expanduser()
        if not path.is_dir():
            raise InputError(f"{what} {path} is not a folder: name an existing one")
        folders.append(path)
    return tuple(dict.fromkeys((*folders, cache_folder())))


def locate(name: str, folder: Path | None = None) -> Copy | None:
    """The first copy of a data set in the folders that are searched, or None."""
    forms = layouts(DATASETS[name].name)
    for root in search_folders(folder):
        for layout in forms:
            path = layout.find(root) if root.is_dir() else None
            if path is not None:
                return Copy(name, path, layout)
    return None


def missing(name: str) -> str:
    """The files that a missing data set consists of, for messages.

    Example:
        >>> missing("svhn")
        'svhn.npz; or train_32x32.mat and test_32x32.mat'
    """
    return "; or ".join(layout.files for layout in layouts(name))


def not_found(name: str, folder: Path | None = None, *, reason: str = "") -> InputError:
    """The error for a data set that was not found: what was looked for, where, and how to provide it."""
    roots = search_folders(folder)
    refused = next((hit for root in roots if (hit := pickled(name, root)) is not None), None)
    hint = f"; {refused} is pickled, which may run code, and is not opened" if refused else ""
    failed = f"; {reason}" if reason else ""
    return InputError(
        f"{name} not found: looked for {missing(name)} in {', '.join(map(str, roots))}{hint}{failed}; "
        "put the files in a folder and name it with --data FOLDER or ENGRAM_DATA"
    )
