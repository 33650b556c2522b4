"""The figures: accuracy over the epochs of two tasks, and of merged networks over their balance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from engram.papers.pages import Page, Panel, Plotly
from engram.papers.paper004.interpretations import DATASETS, Interpretation
from engram.papers.paper004.searches import MEAN, MODE, merged, outlined, searched
from engram.papers.plans import Plan, Run, relayed, succeeded
from engram.papers.values import Piece
from engram.protocols.causal import CausalOutcome
from engram.protocols.pooled import union_accuracy
from engram.record.experiment import Experiment

Points: TypeAlias = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class LearningCurves:
    """What a figure shows of the chosen model on one stream.

    Attributes:
        first: Epochs and accuracy on D1.
        second: Epochs and accuracy on D2.
        union: Epochs and accuracy on both, while D2 is learned.
        baseline: The highest accuracy when both are learned together.
        balances: The balances and the accuracies on both, for each way to merge; empty except for IMM.
    """

    first: Points
    second: Points
    union: Points
    baseline: float
    balances: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)


def curves(run: Run, baseline: float) -> LearningCurves:
    """The curves of a run through both tasks, over the epochs of the two."""
    trace, planned = run.trace, run.experiment
    learned = [phase[-1] for phase in planned.scenario.phases]
    steps = [
        [step for step, now in zip(trace.step, trace.learning, strict=True) if now == task]
        for task in learned
    ]
    # If measuring points are counted per epoch, the first update of a task is one, and the last is not.
    ends = [after[0] - 1 if planned.evaluation.per_epoch else before[-1] for before, after in pairwise(steps)]
    ends.append(run.updates or steps[-1][-1])

    def over(tasks: Sequence[int], phase: int) -> Points:
        begin = ends[phase - 1] if phase else 0
        length = max(1, ends[phase] - begin)
        points = union_accuracy(trace, learning=learned[phase], tasks=tasks)
        return [(planned.epochs * (phase + (step - begin) / length), height) for step, height in points]

    one, two = learned[0], learned[1]
    return LearningCurves(over([one], 0) + over([one], 1), over([two], 1), over([one, two], 1), baseline)


# The runs that figures show -----------------------------------------------------------------------


def _searched(
    model: str, code: str, dataset: str, seeds: Sequence[int], interpretation: Interpretation
) -> Plan[tuple[CausalOutcome | None, CausalOutcome | None]]:
    """The search of a model; for merged networks, the second outcome is that of the other way to merge."""
    if model != "wtIMM":
        return (yield from searched(model, code, dataset, seeds, interpretation)), None
    outcomes = yield from merged(code, dataset, seeds, interpretation)
    return outcomes[MEAN], outcomes[MODE]


def _piece(model: str, code: str, benchmark: str, interpretation: Interpretation) -> Piece:
    """The curves of one model on one stream; None if its runs failed."""

    def plan(seeds: Sequence[int]) -> Plan[LearningCurves | None]:
        runs: list[Run] = []
        search = _searched(model, code, DATASETS[benchmark], seeds, interpretation)
        outcome, mode = yield from relayed(search, hear=lambda answers: runs.extend(succeeded(answers)))
        if outcome is None:
            return None
        run = next(run for run in runs if run.experiment.id == outcome.runs[0].run)
        shown = curves(run, outcome.baseline)
        if mode is None:
            return shown
        # Before they are merged, each of the two networks is tested on the task that it learned.
        first = [point for point in shown.first if point[0] <= run.experiment.epochs]
        balances = {"mean-IMM": outcome.runs[0].balances, "mode-IMM": mode.runs[0].balances}
        return replace(shown, first=first, balances=balances)

    first = MEAN if model == "wtIMM" else model

    def outline() -> tuple[int, list[Experiment]]:
        return interpretation.candidates(first), outlined(first, code, DATASETS[benchmark], interpretation)

    return Piece(f"{model} {code} {benchmark}", plan, later=interpretation.later(first), outline=outline)


def shown(panels: Sequence[tuple[str, str, str]], interpretation: Interpretation) -> tuple[Piece, ...]:
    """The pieces of a figure.

    Args:
        panels: The model, stream and data set of each panel, by their names in the paper.
        interpretation: How the paper is interpreted.
    """
    return tuple(_piece(model, code, benchmark, interpretation) for model, code, benchmark in panels)


# Panels -------------------------------------------------------------------------------------------


def _line(name: str, points: Sequence[tuple[float, float]], colour: str, symbol: str) -> Plotly:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [x for x, _ in points],
        "y": [round(y, 4) for _, y in points],
        "line": {"color": colour, "width": 1.6},
        "marker": {"symbol": symbol, "size": 5},
    }


def _over_time(shown: LearningCurves) -> Plotly:
    """Accuracy over the epochs of both tasks, the second on grey, as in figure 4 of the paper."""
    last = max([x for x, _ in [*shown.first, *shown.second]], default=20.0)
    data = [
        _line("test: D1", shown.first, "c0", "triangle-up"),
        _line("test: D2", shown.second, "c2", "square"),
        *([] if shown.balances else [_line("test: D1 ∪ D2", shown.union, "c3", "circle")]),
        {
            "type": "scatter",
            "mode": "lines",
            "name": "baseline, highest",
            "x": [0, last],
            "y": [round(shown.baseline, 4)] * 2,
            "line": {"color": "ink", "dash": "dash", "width": 1.2},
        },
    ]
    second_task = {
        "type": "rect",
        "yref": "paper",
        "x0": last / 2,
        "x1": last,
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"width": 0},
        "fillcolor": "soft/0.16",
    }
    layout = {
        "xaxis": {"title": {"text": "epoch"}, "range": [0, last]},
        "yaxis": {"title": {"text": "test accuracy"}, "range": [0, 1.02]},
        "shapes": [second_task],
    }
    return {"data": data, "layout": layout}


def _over_balance(shown: LearningCurves) -> Plotly:
    """Accuracy of the merged network over α, as in the right half of figure 6 of the paper."""
    looks = {"mean-IMM": ("c3", "circle"), "mode-IMM": ("c1", "diamond")}
    data = [_line(name, points, *looks[name]) for name, points in shown.balances.items()]
    layout = {
        "xaxis": {"title": {"text": "alpha"}, "range": [0, 1]},
        "yaxis": {"title": {"text": "test accuracy on D1 ∪ D2"}, "range": [0, 1.02]},
    }
    return {"data": data, "layout": layout}


def _caption(shown: LearningCurves) -> str:
    if not shown.balances:
        heights = [height for _, height in shown.union]
        best = f"On D1 ∪ D2: best {max(heights):.2f}, last {heights[-1]:.2f}"
    else:
        tops = {name: max(points, key=lambda point: point[1]) for name, points in shown.balances.items()}
        listed = [f"{name} {height:.2f} at α = {alpha:.2f}" for name, (alpha, height) in tops.items()]
        best = f"Each network before it is merged. Highest of all balances: {', '.join(listed)}"
    return f"{best}; baseline {shown.baseline:.2f}."


def page(title: str) -> Callable[[Mapping[str, LearningCurves | None]], Page]:
    """A function that draws the figure: one or two panels per stream, and notes on failed runs."""

    def draw(returned: Mapping[str, LearningCurves | None]) -> Page:
        panels, failed = [], []
        for name, shown in returned.items():
            if shown is None:
                failed.append(f"{name}: its runs failed, so there is nothing to show.")
                continue
            panels.append(Panel(name, _over_time(shown), _caption(shown)))
            if shown.balances:
                panels.append(Panel(f"{name}: merged", _over_balance(shown)))
        return Page(title, panels, notes=failed)

    return draw
