"""A run's options in a file: TOML with the options of `engram run`, or the `experiment.json` of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engram.core.errors import InputError
from engram.core.files import read_json
from engram.protocols.sweep_file import expand, read_sweep
from engram.record.experiment import Experiment


def read_config(path: Path, changes: Mapping[str, Any] | None = None) -> tuple[Experiment, ...]:
    """The experiments that a file describes: one, or one for each of its seeds.

    Args:
        path: A TOML file with the options of `engram run` (`scenario`, `method`, `seeds`, `set.FIELD`, …), or
            the JSON file that a run wrote.
        changes: Options that are to be otherwise than in the file.

    Raises:
        InputError: The file cannot be read, or describes no or several experiments (that is a sweep).

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "run.toml"
        >>> _ = place.write_text('scenario = "split-digits"\\nmethod = "er"\\nseeds = 2\\nset.memory = 50')
        >>> [experiment.seed for experiment in read_config(place, {"lr": 0.1})]
        [0, 1]
    """
    if path.suffix == ".json":
        return (_of_json(path, changes or {}),)
    table = read_sweep(path) | dict(changes or {})
    single = ("seeds", "hidden")
    if lists := [name for name, value in table.items() if isinstance(value, list) and name not in single]:
        raise InputError(
            f"{path}: {lists[0]} has several values, which is a sweep: run it with `engram sweep {path}`"
        )
    try:
        return expand(table).experiments
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _of_json(path: Path, changes: Mapping[str, Any]) -> Experiment:
    from engram.engine.options import changed, checked

    fields = read_json(path)
    if not isinstance(fields, Mapping):
        raise InputError(f"{path} does not describe an experiment: give the experiment.json of a run")
    try:
        planned = Experiment.of_json(fields)
        return changed(planned, checked(changes)) if changes else planned
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
