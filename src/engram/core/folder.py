"""A run's folder: the names of its files, and values as they are written there."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from engram.core.jsons import Json

EXPERIMENT, TRACE, ANCHORS, ENDS, SCORES, PROBES, SAMPLES, ANSWERS, RESULT, FAILURE, LEASE, PROGRESS = (
    "experiment.json",
    "trace.parquet",
    "anchors.parquet",
    "ends.parquet",
    "scores.parquet",
    "probes.parquet",
    "samples.parquet",
    "answers.parquet",
    "result.json",
    "failure.json",
    "lease.json",
    "progress.json",
)
RECORD = (EXPERIMENT, TRACE, ANCHORS, ENDS, SCORES, PROBES, SAMPLES, ANSWERS, RESULT, FAILURE)
"""The files that saving a run writes."""

CHECKPOINT, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"


def has_checkpoint(folder: Path) -> bool:
    """Whether a run's folder has a checkpoint.

    Example:
        >>> has_checkpoint(Path("nowhere"))
        False
    """
    return any((folder / name).is_file() for name in (CHECKPOINT, PREVIOUS))


def looks_like_run(folder: Path) -> bool:
    """Whether a folder holds any file of a run.

    Example:
        >>> looks_like_run(Path("nowhere"))
        False
    """
    return any((folder / name).is_file() for name in (EXPERIMENT, RESULT, TRACE, FAILURE))


Reading = tuple[int, int, int | None, str, float]
"""A probe's reading: step, task being learned, task evaluated (None: all), what, how much."""


@runtime_checkable
class _Array(Protocol):
    """An array or a number of NumPy or PyTorch."""

    def tolist(self) -> Json: ...


def finite(value: object) -> Json:
    """The same value as JSON can hold it, with None for every number that is NaN or infinite.

    Example:
        >>> finite({"ACC": float("nan"), "AA": (0.5, 1)})
        {'ACC': None, 'AA': [0.5, 1]}
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, _Array):
        return finite(value.tolist())
    return value


def versions() -> dict[str, str]:
    """The versions of the packages that compute the numbers."""
    # Slow to import, and needed only when a run is written.
    from importlib.metadata import PackageNotFoundError, version

    installed = {"python": platform.python_version()}
    distributions = {"engram": "engram-eval", "torch": "torch", "numpy": "numpy", "scipy": "scipy"}
    for package, distribution in distributions.items():
        try:
            installed[package] = version(distribution)
        except PackageNotFoundError:
            continue
    return installed
