"""A run's folder: what every run leaves behind, whoever trained it."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from typing import Any

EXPERIMENT, TRACE, ENDS, PROBES, RESULT, FAILURE = (
    "experiment.json",
    "trace.parquet",
    "ends.parquet",
    "probes.parquet",
    "result.json",
    "failure.json",
)

Reading = tuple[int, int, int | None, str, float]
"""A probe's reading: step, task being learned, task evaluated (None: all), what, how much."""


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
    distributions = {"engram": "engram-eval", "torch": "torch", "numpy": "numpy", "scipy": "scipy"}
    for package, distribution in distributions.items():
        try:
            found[package] = version(distribution)
        except PackageNotFoundError:
            continue
    return found
