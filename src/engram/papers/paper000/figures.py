"""The figures: accuracies, losses and norms of gradients over the updates of a run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from engram.metrics.curve import Curve, min_accuracy
from engram.papers.pages import Floats, Page, Panel, Plotly, Traces, curve, level, upright
from engram.papers.paper000.evaluations import watched_curve
from engram.papers.paper000.runs import SEEDS, other, replayed, runs_after_search, searched
from engram.papers.plans import Plan, Run, Runs, repeated
from engram.papers.published import PAPERS
from engram.papers.values import Piece, Statement
from engram.scenarios import SettingName

_PERIODS = ((1, "c0"), (10, "c1"), (100, "c2"))
_COLOURS = {
    **{"ER": "c0", "GEM": "c1", "LwF": "c1", "EWC": "c0", "finetune": "c1"},
    **{"class": "c0", "task": "c1", "domain": "c2"},
}
_ZOOM = 50
"""The number of updates of a task in the enlarged panels."""
_PERCENT = (0.0, 100.0)
_HIGH = 40.0
"""If all accuracies are above this, the axis does not begin at 0."""

SEARCH = (
    "the learning rate of fine-tuning is not published: the best of .1, .01, .001, .0001 by WC-ACC on test "
    "data is taken, as the paper says, over all seeds (Mini-Imagenet and Mini-DomainNet: over one)",
)
_SPREAD = "Lines are means over seeds, bands one sample standard deviation."
_EVALUATED = "Subsets of 1000 test samples are drawn anew for every evaluation, as paper and code say."
_LOWEST = (
    "Horizontal lines: the lowest accuracy since the task was learned, as a mean over seeds. Where that is "
    "high, the axis begins a little below it; a double click shows everything."
)
_DOTTED = "Dotted: a new task begins."


# The runs that figures show -----------------------------------------------------------------------


def _piece(name: str, runs_with: Callable[[Sequence[int]], Plan[Runs]], *, later: float = 0.0) -> Piece:
    def plan(seeds: Sequence[int]) -> Plan[tuple[Run, ...]]:
        runs = yield from runs_with(seeds)
        return tuple(runs)

    return Piece(name, plan, seeds=SEEDS, later=later)


def replay_runs(benchmark: str) -> Piece:
    """The runs of ER on a stream."""
    return _piece(f"{benchmark}/ER", partial(repeated, partial(replayed, benchmark)))


def other_runs(label: str, benchmark: str, *, parts: bool = False) -> Piece:
    """The runs of GEM, LwF or EWC on a stream; `parts` also records the parts of each update."""
    make = partial(other, label.lower(), benchmark, parts=parts)
    return _piece(f"{benchmark}/{label}", partial(repeated, make))


def tuned_runs(benchmark: str, setting: SettingName, *, metric: str = "WC-ACC") -> Piece:
    """The runs of fine-tuning on a stream with the best learning rate."""
    return _piece(
        f"{benchmark}/{setting}/finetune",
        partial(searched, benchmark, setting, metric=metric),
        later=runs_after_search(benchmark),
    )


# Panels -------------------------------------------------------------------------------------------


def _page(number: int, title: str, panels: Sequence[Panel], *notes: str) -> Page:
    return Page(f"{PAPERS['000']}, figure {number}: {title}", panels, notes=notes)


def _rows(curves: Sequence[Curve], task: int) -> tuple[Floats, Floats]:
    """The steps, and the accuracy of a task in percent: one row per run."""
    return curves[0].step.astype(np.float64), np.stack([100 * run.accuracy[:, task] for run in curves])


def _lowest(curves: Sequence[Curve], task: int) -> list[float]:
    """The lowest accuracy of a task since it was learned, in percent, for each run."""
    return [100 * min_accuracy(run).by_task[task] for run in curves]


def _lowest_line(curves: Sequence[Curve], task: int, *, colour: str) -> Plotly:
    return level(float(np.mean(_lowest(curves, task))), colour=colour)


def _switches(shown: Curve) -> list[Plotly]:
    """A vertical line where a new task begins."""
    places = np.flatnonzero(np.diff(shown.learning))
    return [upright(float(shown.step[place])) for place in places]


def _accuracy_layout(curves: Sequence[Curve]) -> Plotly:
    return {
        "xaxis": {"title": {"text": "updates"}, "showgrid": False},
        "yaxis": {"title": {"text": "accuracy in %"}, "rangemode": "tozero"},
        "shapes": _switches(curves[0]),
    }


def _raise_axis(layout: Plotly, runs: Iterable[Sequence[Curve]], task: int) -> None:
    """Begin the axis slightly below the lowest accuracy since the task was learned, if that is high."""
    lows = [low for curves in runs for low in _lowest(curves, task) if np.isfinite(low)]
    if lows and min(lows) > _HIGH:
        layout["yaxis"]["range"] = [5 * ((min(lows) - 2) // 5), 101]


def _task_panel(title: str, runs: Mapping[str, Sequence[Curve]], task: int) -> Panel:
    """The accuracy of one task with several methods."""
    data: Traces = []
    layout = _accuracy_layout(next(iter(runs.values())))
    for name, curves in runs.items():
        data += curve(name, *_rows(curves, task), colour=_COLOURS[name], within=_PERCENT)
        if np.isfinite(np.mean(_lowest(curves, task))):
            layout["shapes"].append(_lowest_line(curves, task, colour=_COLOURS[name]))
    _raise_axis(layout, runs.values(), task)
    return Panel(title, {"data": data, "layout": layout})


def _by_method(returned: Mapping[str, Runs]) -> dict[str, Runs]:
    return {name.split("/")[-1]: runs for name, runs in returned.items()}


def _four_tasks(returned: Mapping[str, Runs]) -> list[Panel]:
    curves = {name: [watched_curve(run) for run in runs] for name, runs in _by_method(returned).items()}
    return [_task_panel(f"Accuracy of task {task + 1}", curves, task) for task in range(4)]


def _of_each_update(runs: Runs, name: str, *, scale: float = 1.0) -> tuple[Floats, Floats]:
    """The steps, and a value recorded for each update: one row per run."""
    rows = [{step: scale * value for step, _, _, what, value in run.readings if what == name} for run in runs]
    steps = sorted(rows[0])
    return np.asarray(steps, dtype=np.float64), np.asarray([[row[step] for step in steps] for row in rows])


def _norm_panel(runs: Mapping[str, Runs]) -> Panel:
    """Norms of the stability gradient in all updates."""
    data: Traces = []
    for name, repetitions in runs.items():
        data += curve(name, *_of_each_update(repetitions, "stability-gradient"), colour=_COLOURS[name])
    shapes = _switches(watched_curve(next(iter(runs.values()))[0]))
    return _norms("Stability gradient", data, "updates", shapes)


def _norm_zoom(runs: Mapping[str, Runs], task: int) -> Panel:
    """Norms of the stability gradient in the first updates of a task."""
    data: Traces = []
    shown = watched_curve(next(iter(runs.values()))[0])
    start = int(shown.step[shown.learning < task].max())
    for name, repetitions in runs.items():
        steps, values = _of_each_update(repetitions, "stability-gradient")
        inside = (steps > start) & (steps <= start + _ZOOM)
        data += curve(name, steps[inside] - start, values[:, inside], colour=_COLOURS[name])
    title = f"Stability gradient, the first {_ZOOM} updates of task {task + 1}"
    return _norms(title, data, f"updates of task {task + 1}", [])


def _norms(title: str, data: Traces, updates: str, shapes: Sequence[Plotly]) -> Panel:
    layout = {
        "xaxis": {"title": {"text": updates}, "showgrid": False},
        "yaxis": {"title": {"text": "‖∇L stability‖"}, "rangemode": "tozero"},
        "shapes": shapes,
    }
    return Panel(title, {"data": data, "layout": layout})


# Pages --------------------------------------------------------------------------------------------


def periods_page(returned: Mapping[str, Runs]) -> Page:
    """Figure 2: the first task, evaluated with three periods and at task ends."""
    panels = []
    for name, runs in returned.items():
        data: Traces = []
        finest = [watched_curve(run) for run in runs]
        layout = _accuracy_layout(finest)
        for every, colour in reversed(_PERIODS):
            curves = finest if every == 1 else [watched_curve(run, every=every) for run in runs]
            data += curve(f"ρ = {every}", *_rows(curves, 0), colour=colour, within=_PERCENT)
            layout["shapes"].append(_lowest_line(curves, 0, colour=colour))
        _raise_axis(layout, [finest], 0)
        data += _task_ends(finest)
        panels.append(Panel(name.split("/")[0], {"data": data, "layout": layout}))
    title = "ER evaluated after every 1, 10, 100 updates and at task ends"
    return _page(2, title, panels, f"Accuracy of the first task. {_SPREAD} {_LOWEST}", _EVALUATED)


def _task_ends(curves: Sequence[Curve]) -> Traces:
    """The accuracy of the first task as tasks end, as points."""
    ends = np.append(np.flatnonzero(np.diff(curves[0].learning)), len(curves[0]) - 1)
    steps, rows = _rows(curves, 0)
    marker = {"color": "c3", "size": 9}
    return curve(
        "task ends", steps[ends], rows[:, ends], colour="c3", band=False, mode="markers", marker=marker
    )


def gem_page(returned: Mapping[str, Runs]) -> Page:
    """Figure 3: GEM and ER, and the stability gradient as tasks begin."""
    runs = _by_method(returned)
    panels = [*_four_tasks(returned), *(_norm_zoom(runs, task) for task in range(1, 5))]
    return _page(3, "GEM and ER on MNIST", panels, f"{_SPREAD} {_LOWEST} {_DOTTED}", _EVALUATED)


def gem_falls_deeper(returned: Mapping[str, Runs]) -> list[Statement]:
    """GEM has the deeper stability gap."""
    lowest, final = (
        {
            label: 100 * statistics.fmean(run.metric(name) for run in runs)
            for label, runs in _by_method(returned).items()
            if runs
        }
        for name in ("min-ACC", "ACC")
    )
    if lowest.keys() != {"GEM", "ER"}:
        return []
    figures = ", ".join(f"{label} {lowest[label]:.1f} (ACC {final[label]:.1f})" for label in lowest)
    return [Statement("min-ACC of GEM is below that of ER", lowest["GEM"] < lowest["ER"], figures)]


def lwf_page(returned: Mapping[str, Runs]) -> Page:
    """Figure 4: LwF and ER, and the stability gradient."""
    runs = _by_method(returned)
    panels = [*_four_tasks(returned), _norm_panel(runs), *(_norm_zoom(runs, task) for task in (2, 3))]
    return _page(4, "LwF and ER on Mini-DomainNet", panels, f"{_SPREAD} {_LOWEST} {_DOTTED}", _EVALUATED)


def fine_tuning_page(returned: Mapping[str, Runs]) -> Page:
    """Figure 5: the first task of each stream in each setting."""
    groups: dict[str, dict[str, list[Curve]]] = {}
    for name, runs in returned.items():
        benchmark, setting, _ = name.split("/")
        groups.setdefault(benchmark, {})[setting] = [watched_curve(run) for run in runs]
    panels = []
    for benchmark, by_setting in groups.items():
        data: Traces = []
        layout = _accuracy_layout(next(iter(by_setting.values())))
        for setting, curves in by_setting.items():
            name, colour = f"{setting}-incremental", _COLOURS[setting]
            data += curve(name, *_rows(curves, 0), colour=colour, within=_PERCENT, showlegend=True)
            layout["shapes"].append(_lowest_line(curves, 0, colour=colour))
        panels.append(Panel(benchmark, {"data": data, "layout": layout}))
    notes = (f"Accuracy of the first task. {_SPREAD} {_LOWEST}", *SEARCH, _EVALUATED)
    return _page(5, "fine-tuning, the first task", panels, *notes)


def ewc_page(returned: Mapping[str, Runs]) -> Page:
    """Figure 6: EWC and fine-tuning."""
    notes = (f"{_SPREAD} {_LOWEST} {_DOTTED}", *SEARCH, _EVALUATED)
    return _page(6, "EWC and fine-tuning on Mini-DomainNet", _four_tasks(returned), *notes)


def norms_page(returned: Mapping[str, Runs]) -> Page:
    """Figure 7: the stability gradient of each update."""
    panels = [_norm_panel(_by_method(returned))]
    return _page(7, "stability gradients of GEM and ER on MNIST", panels, f"{_SPREAD} {_DOTTED}")


def gem_on_cifar10_page(returned: Mapping[str, Runs]) -> Page:
    """Figure 8: GEM and ER on CIFAR10."""
    notes = (f"{_SPREAD} {_LOWEST} {_DOTTED}", _EVALUATED)
    return _page(8, "GEM and ER on CIFAR10", _four_tasks(returned), *notes)


def losses_page(returned: Mapping[str, Runs]) -> Page:
    """Figure 9: the losses of new and of remembered samples."""
    panels = []
    for name, runs in returned.items():
        weight = float(runs[0].experiment.settings["weight"])
        data: Traces = []
        for part, share, colour in (("plasticity", weight, "c1"), ("stability", 1 - weight, "c0")):
            steps, values = _of_each_update(runs, f"{part}-loss", scale=1 / share)
            positive = np.where(values > 0, values, np.nan)
            data += curve(f"L {part}", steps, positive, colour=colour, band=False)
        layout = {
            "xaxis": {"title": {"text": "updates"}, "showgrid": False},
            "yaxis": {"title": {"text": "loss of the mini-batch"}, "type": "log", "exponentformat": "power"},
            "shapes": _switches(watched_curve(runs[0])),
        }
        panels.append(Panel(name.split("/")[0], {"data": data, "layout": layout}))
    note = f"Both parts without their weights α and 1 − α, as means over seeds. {_DOTTED}"
    return _page(9, "the two losses of ER", panels, note)
