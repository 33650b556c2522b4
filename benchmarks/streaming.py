"""The speed of the streaming metrics, and whether their memory grows with the stream."""

from __future__ import annotations

import time

from benchmarks.metrics_stream import TASKS, feed, peak_bytes
from benchmarks.report import Options, Report, figure

EVALUATIONS, QUICK_EVALUATIONS = 1_000_000, 100_000


def measure(options: Options) -> list[Report]:
    """Feed all streaming metrics with the evaluations of one hundred tasks in one pass."""
    evaluations = QUICK_EVALUATIONS if options.quick else EVALUATIONS
    started = time.perf_counter()
    feed(evaluations)
    speed = evaluations / (time.perf_counter() - started)
    # Tracing memory takes longer than the metrics, so shorter streams are used.
    growth = peak_bytes(evaluations // 10) / peak_bytes(evaluations // 100)
    shown = Report(f"Streaming metrics of {TASKS} tasks, {evaluations:,} evaluations")
    shown.figures = [
        figure("evaluations per second", [speed], unit="/s"),
        figure("memory of a stream ten times as long", [growth], target=1.05),
    ]
    return [shown]
