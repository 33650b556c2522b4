"""What Weights & Biases keeps of an offline run: a file of records, in the log format of LevelDB.

A file begins with 7 bytes that say what it is. Blocks of 32 KiB follow; a record that does not fit into one
goes on in the next.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from engram.core.errors import InputError
from engram.interop.libraries import library

MARK: Final = b":W&B"
_BLOCK: Final = 2**15
_HEADER: Final = 7
_FIRST_OR_WHOLE: Final = (1, 2)
_LAST_OR_WHOLE: Final = (1, 4)


def read_history(path: Path) -> dict[str, list[tuple[int, float]]]:
    """The numbers that a run logged: values by step, for each name.

    Args:
        path: A file whose name ends in `.wandb`.

    Raises:
        InputError: It is no such file, or is damaged.
    """
    extra = "engram-eval[wandb]"
    record_type = library(
        "wandb.proto.wandb_internal_pb2", user="a file of Weights & Biases", install=extra
    ).Record
    damaged = library("google.protobuf.message", user="a file of Weights & Biases", install=extra).DecodeError
    series: dict[str, list[tuple[int, float]]] = {}
    for content in records_in(path):
        try:
            history = record_type.FromString(content).history
        except damaged as error:
            raise InputError(f"{path} is not a file of Weights & Biases, or is damaged") from error
        values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in history.item}
        step = int(values.get("_step", history.step.num))
        for name, value in values.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and math.isfinite(value) and not name.startswith("_"):
                series.setdefault(name, []).append((step, float(value)))
    return series


def records_in(path: Path) -> Iterator[bytes]:
    """The records of a file; one that a run under way, or one that was killed, did not complete is left out.

    Raises:
        InputError: It is no file of Weights & Biases.
    """
    content = path.read_bytes()
    if not content.startswith(MARK):
        raise InputError(f"{path} is not a file of Weights & Biases: it does not begin with {MARK.decode()}")
    place, parts = _HEADER, list[bytes]()
    while place + _HEADER <= len(content):
        if _BLOCK - place % _BLOCK < _HEADER:
            # What is left of a block is too short for a record.
            place += _BLOCK - place % _BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        part = content[place + _HEADER : place + _HEADER + length]
        if len(part) < length or kind == 0:
            return
        place += _HEADER + length
        parts = [part] if kind in _FIRST_OR_WHOLE else [*parts, part]
        if kind in _LAST_OR_WHOLE:
            yield b"".join(parts)
