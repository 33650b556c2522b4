"""The data of the report's figures: in percent, rounded, and downsampled without losing extremes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engram.core.jsons import JsonObject
from engram.record.run import Run
from engram.results.query import (
    MeanCurve,
    MetricsTable,
    end_values,
    metrics_table,
    min_accuracy_curve,
    probe_curves,
    seen_curve,
    task_curves,
    task_ends,
)
from engram.results.runs import RunGroup

Figure = JsonObject
"""One figure, as `report.js` draws it."""

MAX_POINTS = 1500
"""The most points of one curve: about one per pixel of a wide screen."""

_PAGE_POINTS = 60_000
"""The most points of all curves of one figure, so that a page with a hundred tasks still opens quickly."""

COMPARED = ("ACC", "min-ACC", "WC-ACC")
"""The metrics that the comparison shows as bars: one of task ends, and two that count all evaluations."""


def thin(values: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """The indices of a long curve to draw: first, last, and the lowest and highest of every segment.

    A dip or peak at a single evaluation is kept. At most `limit` indices are returned (at least 4).

    Example:
        >>> curve = np.full(1000, 0.9)
        >>> curve[417] = 0.1
        >>> kept = thin(curve, 20)
        >>> len(kept) <= 20, 417 in kept
        (True, True)
    """
    if len(values) <= limit:
        return np.arange(len(values), dtype=np.int64)
    segments = np.array_split(np.arange(len(values)), max(1, (limit - 2) // 2))
    extremes = [[s[np.argmin(values[s])], s[np.argmax(values[s])]] for s in segments]
    return np.unique(np.append(np.ravel(extremes), [0, len(values) - 1])).astype(np.int64)


def method_figure(groups: Sequence[RunGroup]) -> Figure:
    """The mean accuracy over the tasks seen so far, all experiments in one plot."""
    limit = _limit(len(groups))
    series = [_band(group.label, seen_curve(group.runs), limit=limit) for group in groups]
    return {"kind": "methods", "series": series, **_boundaries({group.label: group.runs for group in groups})}


def bar_figure(groups: Sequence[RunGroup], table: MetricsTable | None = None) -> Figure | None:
    """The `COMPARED` metrics with 95 % intervals; None if no run has any of them.

    Args:
        groups: The runs.
        table: What `metrics_table` says about them, where that is known.
    """
    table = metrics_table(groups) if table is None else table
    names = [name for name in COMPARED if any(summary.n for summary in table.get(name, ()))]
    if not names:
        return None
    bars = [
        {
            "name": group.label,
            "y": [_percent(table[name][i].mean) for name in names],
            "error": [_percent(table[name][i].ci95[1] - table[name][i].mean) for name in names],
            "errorBelow": [_percent(table[name][i].mean - table[name][i].ci95[0]) for name in names],
        }
        for i, group in enumerate(groups)
    ]
    return {"kind": "bars", "metrics": names, "bars": bars}


def task_figure(group: RunGroup) -> Figure:
    """The accuracy of each task at every evaluation and at task ends, and min-ACC."""
    run = group.runs[0]
    curves = task_curves(group.runs)
    limit = _limit(len(curves))
    tasks = []
    for task, curve in enumerate(curves):
        step, accuracy = end_values(group.runs, task)
        shown = {"endX": [_whole(x) for x in step], "endY": _rounded(100 * accuracy)}
        tasks.append(_band(run.task_name(task), curve, limit=limit) | shown)
    lowest = min_accuracy_curve(group.runs)
    return {
        "kind": "tasks",
        "tasks": tasks,
        "lowest": _band("min-ACC", replace(lowest, sd=np.full_like(lowest.mean, np.nan)), limit=limit),
        **_boundaries({_seed_name(run): [run] for run in group.runs}),
    }


def probe_figures(group: RunGroup) -> dict[str, Figure]:
    """One plot per probe, in the probe's unit; one curve per task that the probe measures."""
    run = group.runs[0]
    figures: dict[str, Figure] = {}
    curves = probe_curves(group.runs)
    limit = _limit(len(curves))
    titles = {task: run.task_name(column) for column, task in enumerate(run.curve.tasks)}
    boundaries = _boundaries({_seed_name(run): [run] for run in group.runs})
    for (name, task), curve in curves.items():
        title = name if task is None else titles.get(task, f"{name} of {task}")
        figure = figures.setdefault(name, {"kind": "probe", "series": [], **boundaries})
        figure["series"].append(_band(title, curve, limit=limit, scale=1.0))
    return figures


def _limit(curves: int) -> int:
    return max(100, min(MAX_POINTS, _PAGE_POINTS // max(1, curves)))


def _band(name: str, curve: MeanCurve, *, limit: int, scale: float = 100.0) -> Figure:
    """A curve with a band of one standard deviation, if the standard deviation is known."""
    kept = thin(curve.mean, limit)
    mean, sd = curve.mean[kept] * scale, curve.sd[kept] * scale
    figure: Figure = {"name": name, "x": curve.step[kept].tolist(), "y": _rounded(mean)}
    if np.isfinite(sd).any():
        spread = np.nan_to_num(sd)
        low, high = mean - spread, mean + spread
        if scale == 100.0:
            # Accuracies lie between 0 and 100 %, so the band must as well.
            low, high = np.clip(low, 0.0, 100.0), np.clip(high, 0.0, 100.0)
        figure |= {"low": _rounded(low), "high": _rounded(high)}
    return figure


def _boundaries(runs: Mapping[str, Sequence[Run]]) -> Figure:
    """The learning phases of some curves: once if all runs share them, else those of each.

    A boundary of one run says nothing about another whose tasks are longer or shorter: where they differ,
    `boundaries` has the steps at which a later phase begins, for each distinct run of each curve.
    """
    phases = {name: [_phases(run) for run in own] for name, own in runs.items()}
    distinct = [own for group in phases.values() for own in group]
    spans = {tuple((phase["start"], phase["end"]) for phase in own) for own in distinct}
    if len(spans) == 1:
        return {"phases": distinct[0]}
    listed = [
        {
            "name": name,
            "x": sorted({phase["start"] for own in group for phase in own[1:]}),
            "end": max(phase["end"] for own in group for phase in own),
        }
        for name, group in phases.items()
    ]
    return {"phases": [], "boundaries": listed}


def _seed_name(run: Run) -> str:
    return run.id if run.seed is None else f"seed {run.seed}"


def _whole(step: float) -> int | float:
    return int(step) if step == int(step) else round(float(step), 1)


def _phases(run: Run) -> list[Figure]:
    """The learning phases: first step, last step and name."""
    curve = run.curve
    ends = task_ends(curve)
    starts = np.append(curve.step[0], curve.step[ends[:-1]])
    return [
        {"start": int(start), "end": int(curve.step[end]), "name": run.phase_name(int(curve.learning[end]))}
        for start, end in zip(starts, ends, strict=True)
    ]


def _percent(value: float) -> float | None:
    return round(100.0 * value, 2) if np.isfinite(value) else None


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]
