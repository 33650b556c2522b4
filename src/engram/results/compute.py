"""Accuracy over compute: methods at equal numbers of operations instead of equal numbers of updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.files import write_whole
from engram.core.jsons import Json, JsonObject
from engram.metrics.arrays import row_means
from engram.metrics.intervals import Summary, over_seeds
from engram.record.account import PhaseWork
from engram.record.run import Run
from engram.results.document import document
from engram.results.figures import MAX_POINTS, thin
from engram.results.markup import Html, element, joined
from engram.results.runs import RunGroup

Floats = NDArray[np.float64]

ASSUMED: Final = (
    "all updates of a task cost the same (operations are counted in three of them), and what a method does "
    "at the boundary of a task counts when it is done; in runs of earlier versions, at the end of the task"
)


@dataclass(frozen=True, slots=True)
class AtCompute:
    """One experiment at a given compute.

    Attributes:
        label: The experiment.
        total: The operations of a whole run, as a mean over seeds.
        accuracy: The mean accuracy over all tasks of the stream at the given compute; a task that was not
            evaluated by then counts 0.
        seen: The mean accuracy over the tasks that were evaluated by then.
        tasks: How many tasks that were, as a mean over seeds.
        final: The same mean accuracy over all tasks at the end of the run.
    """

    label: str
    total: float
    accuracy: Summary
    seen: Summary
    tasks: float
    final: Summary

    def as_json(self) -> JsonObject:
        """One row of the table."""
        return {
            "label": self.label,
            "seeds": self.accuracy.n,
            "total_flops": self.total,
            "accuracy": self.accuracy.mean,
            "sd": None if np.isnan(self.accuracy.sd) else self.accuracy.sd,
            "seen_accuracy": self.seen.mean,
            "tasks": self.tasks,
            "final_accuracy": self.final.mean,
        }


def flops_at(steps: NDArray[np.int64], work: Sequence[PhaseWork]) -> Floats:
    """The operations that a method had done after some numbers of updates.

    Updates within a phase are taken to cost the same. Work at the boundary of a task counts before its first
    update or after its last, as it was done; where that was not recorded, after its last. The network that
    answers is made once: of the work for answers, the costliest call in the phase counts.

    Example:
        >>> from engram.record.account import Done
        >>> phase = PhaseWork(10, Done(flops=1000), Done(flops=50), Done(), 7, begin_flops=20)
        >>> flops_at(np.array([0, 5, 10, 15]), [phase, phase]).tolist()
        [27.0, 527.0, 1057.0, 1577.0]
    """
    operations = np.zeros(len(steps))
    done, start = 0.0, 0
    for number, phase in enumerate(work):
        end = start + phase.updates
        inside = (steps > start) & (steps <= end) if number else steps <= end
        begun = phase.begin_flops or 0
        updates = phase.in_updates.flops * (steps - start) / max(1, phase.updates)
        closing = np.where(steps == end, phase.at_boundaries.flops - begun, 0)
        operations = np.where(inside, done + begun + updates + closing + phase.answer_flops, operations)
        done += phase.in_updates.flops + phase.at_boundaries.flops
        start = end
    return np.asarray(operations)


def compute_curve(run: Run) -> tuple[Floats, Floats]:
    """The operations done at each evaluation of a run, and the mean accuracy over all tasks of its stream.

    A task that is not evaluated counts 0.

    Raises:
        InputError: The run did not count operations.
    """
    if run.account is None or not run.account.work:
        raise InputError(
            f"the run {run.folder or run.id} has no counted operations: run it again with this version, or "
            "leave it out"
        )
    cells = np.nan_to_num(run.curve.seen().accuracy)
    tasks = max(cells.shape[1], len(run.task_names))
    return flops_at(run.curve.step, run.account.work), cells.sum(axis=1) / tasks


def at_compute(groups: Sequence[RunGroup], budget: float | None = None) -> tuple[float, list[AtCompute]]:
    """The accuracy of experiments at equal compute.

    Args:
        groups: The experiments, each with its seeds.
        budget: The operations (default: those of the cheapest experiment, the mean over its seeds).

    Returns:
        The budget, and one row per experiment, the most accurate first.

    Raises:
        InputError: A run did not count operations, or the budget is less than the first evaluation needs.

    Source: Prabhu et al. (2023) and Ghunaim et al. (2023) compare methods under equal compute by giving each
        as many updates as it can afford; here finished runs are compared at the operations they had done.
    """
    curves = [[compute_curve(run) for run in group.runs] for group in groups]
    totals = [float(np.mean([flops[-1] for flops, _ in own])) for own in curves]
    allowed = min(totals) if budget is None else budget
    rows = []
    for group, own, total in zip(groups, curves, totals, strict=True):
        # A seed may cost a little more than the mean of its group.
        places = [int(np.searchsorted(flops, allowed * (1 + 1e-3), side="right")) - 1 for flops, _ in own]
        if min(places) < 0:
            raise InputError(
                f"{group.label} had done more than {allowed:.3g} operations at its first evaluation: choose "
                "a larger --at"
            )
        seen = [run.curve.seen().accuracy[place] for run, place in zip(group.runs, places, strict=True)]
        rows.append(
            AtCompute(
                group.label,
                total,
                over_seeds([float(values[place]) for (_, values), place in zip(own, places, strict=True)]),
                over_seeds([float(row_means(row[np.newaxis])[0]) for row in seen]),
                float(np.mean([np.count_nonzero(~np.isnan(row)) for row in seen])),
                over_seeds([float(values[-1]) for _, values in own]),
            )
        )
    return allowed, sorted(rows, key=lambda row: -row.accuracy.mean)


def write_compute(groups: Sequence[RunGroup], budget: float | None, path: Path) -> None:
    """Write a page with the curves of accuracy over compute; the file is replaced atomically."""
    allowed, rows = at_compute(groups, budget)
    data: list[Json] = []
    for number, group in enumerate(groups):
        for place, run in enumerate(group.runs):
            flops, values = compute_curve(run)
            kept = thin(values, MAX_POINTS)
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": group.label,
                    "legendgroup": group.label,
                    "showlegend": place == 0,
                    "x": [float(f"{value:.6g}") for value in flops[kept]],
                    "y": (100 * values[kept]).round(3).tolist(),
                    "line": {"color": f"c{number % 8}", "width": 1.8},
                    "hovertemplate": "%{y:.1f} % at %{x:.3s}FLOP",
                }
            )
    figure: Json = {
        "kind": "plotly",
        "data": data,
        "layout": {
            "xaxis": {"title": {"text": "floating-point operations"}, "exponentformat": "SI"},
            "yaxis": {"title": {"text": "accuracy over all tasks, %"}, "range": [-2, 102]},
            "showlegend": True,
            "legend": {"orientation": "h", "y": -0.22, "yanchor": "top"},
            "margin": {"t": 40},
            "shapes": [
                {
                    **{"type": "line", "x0": allowed, "x1": allowed, "yref": "paper", "y0": 0, "y1": 1},
                    "line": {"color": "soft", "width": 1.4, "dash": "dot"},
                }
            ],
        },
    }
    text = document(
        title="Accuracy at equal compute",
        kicker="engram compute",
        heading="Accuracy at equal compute",
        lead=f"{len(groups)} experiments at {allowed:.3g} floating-point operations.",
        links=[],
        content=_content(rows),
        figures={"compute": figure},
    )
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def _content(rows: Sequence[AtCompute]) -> Html:
    titles = ("experiment", "whole run, FLOP", "accuracy, %", "of tasks seen, %", "tasks", "at the end, %")
    head = [
        element("th", title, scope="col", class_="number" if i else None) for i, title in enumerate(titles)
    ]
    body = []
    for row in rows:
        numbers = (row.accuracy.mean, row.seen.mean)
        cells = [f"{row.total:.3g}", *(f"{100 * value:.1f}" for value in numbers), f"{row.tasks:g}"]
        cells.append(f"{100 * row.final.mean:.1f}")
        body.append(
            element(
                "tr",
                element("th", row.label, scope="row"),
                *(element("td", cell, class_="number") for cell in cells),
            )
        )
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_="plain")
    note = (
        "Mean accuracy over all tasks of the stream; a task that was not begun counts 0. Dotted: the compute "
        f"of the table. Assumed: {ASSUMED}."
    )
    plot = element("div", class_="plot tall", data_figure="compute", role="img", aria_label=note)
    return joined(
        element(
            "section",
            element("div", table, class_="scroll", tabindex="0", role="region", aria_label="Equal compute"),
            element("figure", plot, element("figcaption", note, class_="note")),
        )
    )
