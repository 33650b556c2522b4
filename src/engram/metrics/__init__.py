"""Metrics: pure functions over accuracies, and their streaming twins. NumPy only.

A metric is one function decorated with `@engram.metric`; see `engram.metrics.registry.metric`. Metrics of an
accuracy matrix are in `matrix`, metrics of an evaluation history in `curve`; `summary.summarise` computes all
of them at once.

    from engram.metrics import METRICS, Curve, History, metric, summarise

Papers are cited by author and year; `engram explain NAME` has the details.
"""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

# Importing these modules registers their metrics, so importing any part of the package registers all.
from engram.metrics import curve, diversity, gaps, joint, matrix, samples
from engram.metrics.history import Curve, History
from engram.metrics.registry import METRICS, Metric, find, higher_is_better, metric

if TYPE_CHECKING:
    from engram.metrics.streaming import StreamingMetric, StreamingMetrics
    from engram.metrics.summary import Measurement, summarise

__all__ = [
    "METRICS",
    "Curve",
    "History",
    "Measurement",
    "Metric",
    "StreamingMetric",
    "StreamingMetrics",
    "curve",
    "diversity",
    "find",
    "gaps",
    "higher_is_better",
    "joint",
    "matrix",
    "metric",
    "samples",
    "summarise",
]

__getattr__, __dir__ = lazy_package(
    __name__,
    {".streaming": ("StreamingMetric", "StreamingMetrics"), ".summary": ("Measurement", "summarise")},
)
