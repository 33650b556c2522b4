"""A zoom as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from engram.core.files import write_whole
from engram.core.jsons import Json
from engram.results.document import document
from engram.results.markup import Html, element, joined
from engram.results.page_parts import figure, layout, line, mark, section, table
from engram.results.zoom import Closely

_CURVES: Final = (
    "Accuracy of each task at every evaluation of the stretch. Dotted vertical lines: another task begins."
)
_SEEN: Final = " Crosses: what the run saw at its own evaluations."


def write_zoom(closely: Closely, path: Path) -> None:
    """Write the page; the file is replaced atomically."""
    text = page(closely)
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def page(closely: Closely) -> str:
    """The HTML of the page."""
    run, zoom = closely.run, closely.zoom
    figures: dict[str, Json] = {"curves": _curves(closely)}
    note = _CURVES + (_SEEN if any(row.run_lowest is not None for row in closely.tasks) else "")
    return document(
        title=f"engram zoom – {run.label}",
        kicker="engram zoom",
        heading=f"Updates {zoom.first:,} to {zoom.last:,}",
        lead=f"{closely.whole.label}{'' if run.seed is None else f', seed {run.seed}'}. "
        f"{run.evaluations:,} evaluations on {closely.on}.",
        links=[("Tasks", "tasks")],
        content=joined(
            section("curves", "The stretch", _sentences(closely), figure("curves", "tall", note)),
            _tasks(closely),
        ),
        figures=figures,
    )


def _sentences(closely: Closely) -> Html:
    learned, verdict, *found = (f"{words[0].upper()}{words[1:]}." for words in closely.summary())
    doubtful = closely.zoom.compared.same is False
    return joined(
        element("p", " ".join(found), class_="gap") if found else "",
        element("p", verdict, class_="warning", role="note") if doubtful else "",
        element("p", learned if doubtful else f"{learned} {verdict}", class_="note"),
    )


def _curves(closely: Closely) -> Json:
    run, whole, zoom = closely.run, closely.whole, closely.zoom
    curve, data = run.curve, []
    for row in closely.tasks:
        colour = f"c{row.task % 8}"
        known = (curve.step >= zoom.first) & ~np.isnan(curve.accuracy[:, row.task])
        name = run.task_name(row.task)
        data.append(line(name, curve.step[known], 100 * curve.accuracy[known, row.task], colour))
        if row.run_lowest is None:
            continue
        other = whole.curve
        column = other.tasks.index(curve.tasks[row.task])
        inside = (other.step >= zoom.first) & (other.step <= zoom.last)
        inside &= ~np.isnan(other.accuracy[:, column])
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "marker": {"size": 8, "color": colour, "symbol": "x-thin-open", "line": {"width": 2}},
                "name": f"{name}, in the run",
                "x": other.step[inside].tolist(),
                "y": [float(f"{value:.5g}") for value in 100 * other.accuracy[inside, column]],
                "showlegend": False,
            }
        )
    inside = curve.step >= zoom.first
    steps, learning = curve.step[inside], curve.learning[inside]
    marks = [mark(int(steps[place])) for place in np.flatnonzero(np.diff(learning))]
    return {"kind": "plotly", "data": data, "layout": layout("accuracy, %", shapes=marks, range=[-2, 102])}


def _tasks(closely: Closely) -> Html:
    rows = [
        [
            closely.run.task_name(row.task),
            f"{row.samples:,}",
            f"{100 * row.before:.1f}",
            f"{100 * row.lowest:.1f}",
            f"{row.lowest_step:,}",
            f"{100 * row.after:.1f}",
            "–" if row.run_lowest is None else f"{100 * row.run_lowest:.1f}",
        ]
        for row in closely.tasks
    ]
    titles = (
        "task",
        "samples",
        "first, %",
        "lowest, %",
        "lowest at update",
        "last, %",
        "lowest in the run, %",
    )
    note = "The last column is the lowest accuracy that the run saw at its own evaluations in the stretch."
    return section("tasks", "Tasks", table(titles, rows), element("p", note, class_="note"))
