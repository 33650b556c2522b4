"""Metrics: pure functions over accuracies, and their streaming twins. NumPy only.

A metric is one function decorated with `@engram.metric`; see `engram.metrics.registry.metric`. Metrics of an
accuracy matrix are in `matrix`, metrics of an evaluation history in `curve`; `summary.summarise` computes all
of them at once.

    from engram.metrics import METRICS, Curve, History, metric, summarise

Papers are cited by author and year; `engram explain NAME` has the details.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Importing these modules registers their metrics, so importing any part of the package registers all.
from engram.metrics import curve, diversity, matrix
from engram.metrics.history import Curve, History
from engram.metrics.registry import METRICS, Metric, find, higher_is_better, metric

if TYPE_CHECKING:
    from engram.metrics.streaming import Stream, StreamingMetrics
    from engram.metrics.summary import Measurement, summarise

_HOMES = {
    "Measurement": "engram.metrics.summary",
    "Stream": "engram.metrics.streaming",
    "StreamingMetrics": "engram.metrics.streaming",
    "summarise": "engram.metrics.summary",
}

__all__ = [
    "METRICS",
    "Curve",
    "History",
    "Measurement",
    "Metric",
    "Stream",
    "StreamingMetrics",
    "curve",
    "diversity",
    "find",
    "higher_is_better",
    "matrix",
    "metric",
    "summarise",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'engram.metrics' has no attribute {name!r}")
    attribute: object = getattr(import_module(_HOMES[name]), name)
    return attribute


def __dir__() -> list[str]:
    return sorted(__all__)
