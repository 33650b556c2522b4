"""Metrics over runs: means with the interval that suits the metric."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import Damaged, InputError
from engram.metrics.intervals import Summary, over_seeds
from engram.metrics.registry import bounds_of, find
from engram.record.run import Run


def over_runs(runs: Sequence[Run], name: str) -> Summary:
    """A metric over runs that differ in the seed; runs without a value are left out.

    The interval stays within the bounds of the metric, see `engram.metrics.intervals.over_seeds`.

    Example:
        >>> runs = [Run(stored={"ACC": value}) for value in (0.97, 0.99, 0.98)]
        >>> over_runs(runs, "ACC").interval
        'logit'
    """
    return metrics_over_runs(runs, [name])[0]


def metrics_over_runs(runs: Sequence[Run], names: Sequence[str]) -> list[Summary]:
    """Several metrics over runs, as `over_runs` for each of them; quick for thousands of runs.

    Example:
        >>> runs = [Run(stored={"ACC": value, "FORG": 0.1}) for value in (0.97, 0.99, 0.98)]
        >>> [round(summary.mean, 2) for summary in metrics_over_runs(runs, ["ACC", "FORG"])]
        [0.98, 0.1]
    """
    # Run by run, because the metrics of one run lie together in memory.
    rows = [[metrics.get(name, math.nan) for name in names] for metrics in (run.metrics for run in runs)]
    columns = np.array(rows, dtype=np.float64).reshape(len(runs), len(names)).T
    return [_summary(values, runs, name) for values, name in zip(columns, names, strict=True)]


def _summary(values: NDArray[np.float64], runs: Sequence[Run], name: str) -> Summary:
    known = values[~np.isnan(values)]
    # The trace is read only where the seeds alone say nothing about the spread.
    same = len(known) > 1 and np.ptp(known) == 0
    return over_seeds(known, bounds=bounds_of(name), resolution=resolution(runs[0], name) if same else 0.0)


def resolution(run: Run, name: str) -> float:
    """The change of a metric by one test sample: 1 / the test samples of all tasks; 0 where that is unknown.

    Accuracies are multiples of it, where all tasks have equally many samples. Metrics of all tasks but one
    are somewhat coarser.

    Raises:
        Damaged: The trace is not what was written.

    Example:
        >>> from engram.core.trace import Trace
        >>> from engram.record.tables import Tables
        >>> trace = Trace()
        >>> trace.add(step=1, learning=0, task=0, right=np.array([True, True, False, True]))
        >>> resolution(Run(tables=Tables(trace)), "ACC"), resolution(Run(), "ACC")
        (0.25, 0.0)
    """
    try:
        metric = find(name)[0]
        trace = run.trace
        if metric.task_ends_suffice:
            trace = next((ends for ends in (run.ends, run.trace.at_ends()) if len(ends)), run.trace)
    except Damaged:
        # Without it, the interval would be another one.
        raise
    except InputError:
        return 0.0
    samples = sum(dict(zip(trace.task, trace.total, strict=True)).values())
    return 1 / samples if samples and metric.bounds is not None else 0.0
