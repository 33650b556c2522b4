"""`experiment.json`: the first file of a run, which says what the folder is for."""

from __future__ import annotations

from pathlib import Path

from engram.core.errors import Damaged
from engram.core.files import write_json
from engram.core.folder import EXPERIMENT, finite
from engram.core.jsons import JsonMapping, JsonObject
from engram.record.seal import read_object


def save_description(folder: Path, description: JsonMapping) -> None:
    """Write what a run is of."""
    write_json(folder / EXPERIMENT, finite(dict(description)))


def read_description(folder: Path) -> JsonObject:
    """What a run is of.

    Raises:
        Damaged: The file is missing, or engram did not write it.
    """
    path = folder / EXPERIMENT
    if not path.is_file():
        raise Damaged(f"{path} is missing")
    description = read_object(path)
    for name in ("id", "label"):
        if name not in description:
            raise Damaged(f"{path} has no {name!r}: it was not written by engram")
    return description
