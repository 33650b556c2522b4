"""What the report draws, as plain numbers: rounded, in percent, thinned without losing the minima."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engram.record.run import Run
from engram.results.query import (
    MeanCurve,
    half_width,
    metrics_table,
    min_accuracy_curve,
    probe_curves,
    seen_curve,
    task_curves,
    task_ends,
)
from engram.results.runs import RunGroup

Figure = dict[str, Any]

MAX_POINTS = 1500
"""About one point for each pixel of a wide screen; more cannot be seen, only waited for."""

_PAGE_POINTS = 60_000
"""Points of all curves of one figure together, so that a hundred tasks stay a page that opens."""

COMPARED = ("ACC", "min-ACC", "WC-ACC")
"""The metrics that the overview shows as bars: what task ends show, and the two that look in between."""


def thin(values: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """The indices to draw of a long curve: first, last, and the lowest and highest of every stretch.

    Whatever falls or rises for a single evaluation is still there, at its own place. At most `limit` indices
    are kept (at least 4).

    Example:
        >>> curve = np.full(1000, 0.9)
        >>> curve[417] = 0.1
        >>> kept = thin(curve, 20)
        >>> len(kept) <= 20, 417 in kept
        (True, True)
    """
    if len(values) <= limit:
        return np.arange(len(values), dtype=np.int64)
    stretches = np.array_split(np.arange(len(values)), max(1, (limit - 2) // 2))
    extremes = [[s[np.argmin(values[s])], s[np.argmax(values[s])]] for s in stretches]
    return np.unique(np.append(np.ravel(extremes), [0, len(values) - 1])).astype(np.int64)


def method_figure(groups: Sequence[RunGroup]) -> Figure:
    """All methods in one plot: the mean accuracy over the tasks seen so far."""
    limit = _limit(len(groups))
    series = [_band(group.label, seen_curve(group.runs), limit=limit) for group in groups]
    longest = max((group.runs[0] for group in groups), key=lambda run: int(run.curve.step[-1]))
    return {"kind": "methods", "series": series, "phases": _phases(longest)}


def bar_figure(groups: Sequence[RunGroup]) -> Figure | None:
    """ACC beside the metrics that look between task ends, with 95 % intervals; None where no run has them."""
    table = metrics_table(groups)
    names = [name for name in COMPARED if any(summary.n for summary in table.get(name, ()))]
    if not names:
        return None
    bars = [
        {
            "name": group.label,
            "y": [_percent(table[name][i].mean) for name in names],
            "error": [_percent(half_width(table[name][i])) for name in names],
        }
        for i, group in enumerate(groups)
    ]
    return {"kind": "bars", "metrics": names, "bars": bars}


def task_figure(group: RunGroup) -> Figure:
    """Every task's accuracy at every evaluation, the same as task ends show it, and min-ACC."""
    run = group.runs[0]
    curves = task_curves(group.runs)
    limit = _limit(len(curves))
    tasks = []
    for task, curve in enumerate(curves):
        ends = np.isin(curve.step, run.curve.step[task_ends(run.curve)])
        shown = {"endX": curve.step[ends].tolist(), "endY": _rounded(100 * curve.mean[ends])}
        tasks.append(_band(run.task_name(task), curve, limit=limit) | shown)
    lowest = min_accuracy_curve(group.runs)
    return {
        "kind": "tasks",
        "tasks": tasks,
        "lowest": _band("min-ACC", replace(lowest, sd=np.full_like(lowest.mean, np.nan)), limit=limit),
        "phases": _phases(run),
    }


def probe_figures(group: RunGroup) -> dict[str, Figure]:
    """One plot for each probe, in its own unit; one curve for each task that it speaks of."""
    run = group.runs[0]
    figures: dict[str, Figure] = {}
    curves = probe_curves(group.runs)
    limit = _limit(len(curves))
    titles = {task: run.task_name(column) for column, task in enumerate(run.curve.tasks)}
    for (name, task), curve in curves.items():
        title = name if task is None else titles.get(task, f"{name} of {task}")
        figure = figures.setdefault(name, {"kind": "probe", "series": [], "phases": _phases(run)})
        figure["series"].append(_band(title, curve, limit=limit, scale=1.0))
    return figures


def _limit(curves: int) -> int:
    return max(100, min(MAX_POINTS, _PAGE_POINTS // max(1, curves)))


def _band(name: str, curve: MeanCurve, *, limit: int, scale: float = 100.0) -> Figure:
    """A curve with its band of one standard deviation; without one where no spread is known."""
    kept = thin(curve.mean, limit)
    mean, sd = curve.mean[kept] * scale, curve.sd[kept] * scale
    figure: Figure = {"name": name, "x": curve.step[kept].tolist(), "y": _rounded(mean)}
    if np.isfinite(sd).any():
        spread = np.nan_to_num(sd)
        low, high = mean - spread, mean + spread
        if scale == 100.0:
            # An accuracy cannot leave 0..100 %, and a band that does misleads.
            low, high = np.clip(low, 0.0, 100.0), np.clip(high, 0.0, 100.0)
        figure |= {"low": _rounded(low), "high": _rounded(high)}
    return figure


def _phases(run: Run) -> list[Figure]:
    """What was learned from which step to which."""
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
