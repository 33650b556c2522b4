"""A run's folder: what every run leaves behind, whoever trained it."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram.core.files import write_json, write_parquet

if TYPE_CHECKING:
    from engram.core.trace import Trace

EXPERIMENT, TRACE, ENDS, PROBES, RESULT = (
    "experiment.json",
    "trace.parquet",
    "ends.parquet",
    "probes.parquet",
    "result.json",
)

Reading = tuple[int, int, int | None, str, float]
"""A probe's reading: step, task being learned, task evaluated (None: all), what, how much."""


def save_run(
    folder: Path,
    *,
    experiment: Mapping[str, Any],
    result: Mapping[str, Any] | None,
    trace: Trace,
    ends: Trace | None = None,
    readings: Sequence[Reading] = (),
) -> None:
    """Write a run's files; the result comes last, so its presence means that the run is complete.

    A run that came to no end has none.
    """
    write_json(folder / EXPERIMENT, finite(experiment))
    trace.save(folder / TRACE)
    if ends is not None and len(ends):
        ends.save(folder / ENDS)
    if readings:
        import polars as pl

        kinds = {
            "step": pl.Int64,
            "learning": pl.Int32,
            "task": pl.Int32,
            "name": pl.String,
            "value": pl.Float64,
        }
        frame = pl.DataFrame(list(readings), schema=kinds, orient="row")
        write_parquet(folder / PROBES, frame)
    if result is not None:
        write_json(folder / RESULT, finite({**result, "versions": versions()}))


def finite(value: Any) -> Any:
    """The same value with None for every number that is undefined or infinite, as JSON wants it.

    Example:
        >>> finite({"ACC": float("nan"), "AA": (0.5, 1)})
        {'ACC': None, 'AA': [0.5, 1]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    return value


def versions() -> dict[str, str]:
    """The versions of what computes the numbers."""
    # Slow to import, and needed only when a run is written.
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for package in ("engram", "torch", "numpy", "scipy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
