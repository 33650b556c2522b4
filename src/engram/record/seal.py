"""Seals: a digest of a JSON object that is kept inside it, so that a changed object is noticed."""

from __future__ import annotations

import json
from pathlib import Path

from engram.core.errors import Damaged
from engram.core.files import checksum, read_json
from engram.core.folder import EXPERIMENT
from engram.core.jsons import JsonMapping, JsonObject

DIGEST, CHECKSUMS = "digest", "checksums"


def digest_of(value: JsonMapping) -> str:
    """A digest of a JSON object's content: not of its layout, nor of the order of its keys.

    Example:
        >>> digest_of({"a": 1, "b": [0.5, None]}) == digest_of({"b": [0.5, None], "a": 1})
        True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return checksum(text.encode("ascii"))


def sealed(value: JsonMapping) -> JsonObject:
    """The same object with its digest.

    Example:
        >>> check_seal(sealed({"checksums": {}, "metrics": {}}), Path("result.json"))
    """
    content = {name: item for name, item in value.items() if name != DIGEST}
    return {**content, DIGEST: digest_of(content)}


def check_seal(value: JsonMapping, path: Path) -> None:
    """Check that an object is what was written; one of an earlier version, without any digest, passes.

    Args:
        value: The object that a file holds.
        path: The file, for the message.

    Raises:
        Damaged: It is not.
    """
    if DIGEST not in value and CHECKSUMS not in value:
        return
    content = {name: item for name, item in value.items() if name != DIGEST}
    if value.get(DIGEST) != digest_of(content):
        raise Damaged(f"{path} is damaged: its digest is not that of its content")


def check_description(description: JsonMapping, result: JsonMapping, path: Path) -> None:
    """Check that `experiment.json` is what it was when the run was saved, where that is recorded.

    Raises:
        Damaged: It is not.

    Example:
        >>> check_description({"id": "a"}, {"checksums": {"experiment.json": digest_of({"id": "a"})}}, Path())
    """
    recorded = (result.get(CHECKSUMS) or {}).get(EXPERIMENT)
    if recorded is not None and recorded != digest_of(description):
        raise Damaged(f"{path} is damaged: it is not the experiment that was run")


def check_id(written: JsonMapping, name: object, path: Path) -> None:
    """Check that what a file holds is about the run that it is taken for, where it says so.

    Raises:
        Damaged: It is about another run.

    Example:
        >>> check_id({"id": "er-s0"}, "er-s1", Path("er-s1/result.json"))
        Traceback (most recent call last):
        engram.core.errors.Damaged: er-s1/result.json is that of another run, er-s0
    """
    if written.get("id", name) != name:
        raise Damaged(f"{path} is that of another run, {written['id']}")


def check_record(written: JsonMapping, path: Path, description: JsonMapping, *, planned: bool) -> None:
    """Check what a file says of a run: that it is what was written, and is about this run.

    Args:
        written: What the file holds.
        path: The file, in the run's folder.
        description: What the run is.
        planned: Whether it is so because that was asked for, not because `experiment.json` says so.

    Raises:
        Damaged: It is not.
    """
    check_seal(written, path)
    if planned:
        check_id(written, description.get("id"), path)
    else:
        check_description(description, written, path.with_name(EXPERIMENT))


def read_object(path: Path) -> JsonObject:
    """The JSON object in a file.

    Raises:
        InputError: The file cannot be read.
        Damaged: It holds something else.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise Damaged(f"{path} is not a JSON object: it was not written by engram")
    return value
