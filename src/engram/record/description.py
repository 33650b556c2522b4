"""`experiment.json`: the first file of a run, which says what the folder is for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from engram.core.errors import Damaged
from engram.core.files import write_json
from engram.core.folder import EXPERIMENT, finite
from engram.core.jsons import JsonMapping, JsonObject
from engram.record.seal import check_id, read_object

_ID: Final = re.compile(r".+-s\d+-[0-9a-f]{12}")
"""The ids of experiments. Folders with other names are called as people like."""


def save_description(folder: Path, description: JsonMapping) -> None:
    """Write what a run is of."""
    write_json(folder / EXPERIMENT, finite(dict(description)))


def read_description(folder: Path) -> JsonObject:
    """What a run is of.

    Raises:
        Damaged: The file is missing, engram did not write it, or the folder has the name of another run.
    """
    path = folder / EXPERIMENT
    if not path.is_file():
        raise Damaged(f"{path} is missing")
    description = read_object(path)
    for name in ("id", "label"):
        if name not in description:
            raise Damaged(f"{path} has no {name!r}: it was not written by engram")
    if _ID.fullmatch(folder.name):
        check_id(description, folder.name, path)
    return description
