"""The autopsy of a dip as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engram.core.files import write_whole
from engram.core.jsons import Json
from engram.results.autopsy import Autopsy
from engram.results.document import document
from engram.results.figures import MAX_POINTS, thin
from engram.results.markup import Html, element, joined

_SAMPLES: Final = 300
_CLASSES: Final = 60


def write_autopsy(autopsy: Autopsy, path: Path) -> None:
    """Write the page; the file is replaced atomically."""
    text = page(autopsy)
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def page(autopsy: Autopsy) -> str:
    """The HTML of the page."""
    run, gap = autopsy.run, autopsy.gap
    figures: dict[str, Json] = {"dip": _dip_figure(autopsy)}
    sections = [
        _section("dip", "The dip", _sentences(autopsy), _figure("dip", "tall", _DIP)),
        _classes_section(autopsy, figures),
        _answers_section(autopsy),
        _probes_section(autopsy, figures),
        _recovery_section(autopsy, figures),
        _samples_section(autopsy),
        _others_section(autopsy),
    ]
    links = [
        ("Classes", "classes"),
        ("Answers", "answers"),
        ("Losses and gradients", "probes"),
        ("Recovery", "recovery"),
        ("Samples", "samples"),
        ("Other dips", "others"),
    ]
    return document(
        title=f"engram autopsy – {run.label}",
        kicker="engram autopsy",
        heading=f"{run.task_name(gap.task)} while {run.phase_name(gap.phase)} was learned",
        lead=f"{run.label}{'' if run.seed is None else f', seed {run.seed}'}. The dip was at its lowest "
        f"after {gap.lowest_step:,} updates.",
        links=[(name, place) for name, place in links if any(f'id="{place}"' in part for part in sections)],
        content=joined(*sections),
        figures=figures,
    )


_DIP: Final = (
    "Accuracy of the task that fell and of the task being learned, from the switch to the next one. Dotted: "
    "the accuracy before the switch."
)


def _section(place: str, title: str, *content: str) -> Html:
    return element("section", element("h2", title), *content, id=place)


def _figure(name: str, size: str, note: str) -> Html:
    plot = element("div", class_=f"plot {size}".strip(), data_figure=name, role="img", aria_label=note)
    return element("figure", plot, element("figcaption", note, class_="note"))


def _sentences(autopsy: Autopsy) -> Html:
    first, *rest = autopsy.summary()[:3]
    text = ". ".join(f"{line[0].upper()}{line[1:]}" for line in (first, *rest))
    lacking = [element("p", f"Not shown: {line}.", class_="note") for line in autopsy.lacking]
    return joined(element("p", f"{text}.", class_="gap"), *lacking)


def _line(name: str, x: NDArray[np.int64], y: NDArray[np.float64], colour: str, **line: Json) -> Json:
    kept = thin(y, MAX_POINTS)
    return {
        "type": "scatter",
        "mode": "lines" if len(kept) > 60 else "lines+markers",
        "marker": {"size": 5, "color": colour},
        "name": name,
        "x": x[kept].tolist(),
        "y": [None if np.isnan(value) else float(f"{value:.5g}") for value in y[kept]],
        "line": {"color": colour, "width": 2, **line},
    }


def _layout(title: str, *, shapes: Sequence[Json] = (), **axis: Json) -> Json:
    return {
        "xaxis": {"title": {"text": "updates"}},
        "yaxis": {"title": {"text": title}, **axis},
        "showlegend": True,
        "legend": {"orientation": "h", "y": -0.22, "yanchor": "top"},
        "margin": {"t": 40, "r": 12},
        "hovermode": "x unified",
        "shapes": list(shapes),
    }


def _mark(step: int, colour: str = "soft") -> Json:
    return {
        "type": "line",
        "x0": step,
        "x1": step,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"color": colour, "width": 1.2, "dash": "dot"},
    }


def _dip_figure(autopsy: Autopsy) -> Json:
    run, gap, curve = autopsy.run, autopsy.gap, autopsy.run.curve
    inside = (curve.step >= gap.start) & (curve.step <= gap.end)
    data = [_line(run.task_name(gap.task), autopsy.steps, 100 * autopsy.accuracy, "c1", width=3)]
    for place, column in enumerate(curve.phases[gap.phase]):
        known = inside & ~np.isnan(curve.accuracy[:, column])
        if known.any() and column != gap.task:
            name = f"{run.task_name(column)}, being learned"
            colour = f"c{(2 * place) % 8}"
            data.append(_line(name, curve.step[known], 100 * curve.accuracy[known, column], colour))
    reference = {
        **_mark(gap.start),
        "x1": gap.end,
        "y0": 100 * gap.before,
        "y1": 100 * gap.before,
        "yref": "y",
    }
    marks = [reference, _mark(gap.lowest_step, "c1")]
    if gap.recovered_step is not None and gap.recovered_step > gap.start:
        marks.append(_mark(gap.recovered_step))
    layout = _layout("accuracy, %", shapes=marks, range=[-2, 102])
    return {"kind": "plotly", "data": data, "layout": layout}


def _classes_section(autopsy: Autopsy, figures: dict[str, Json]) -> Html:
    if not autopsy.classes:
        return Html("")
    shown = autopsy.classes[:_CLASSES]
    names = [one.label for one in shown]
    moments = {
        "before the switch": [one.before for one in shown],
        "at the lowest": [one.lowest for one in shown],
        "at the end": [one.after for one in shown],
    }
    figures["classes"] = {
        "kind": "plotly",
        "data": [
            {
                "type": "bar",
                "name": name,
                "x": names,
                "y": [round(100 * count / one.samples, 2) for count, one in zip(counts, shown, strict=True)],
                "marker": {"color": colour},
                "hovertemplate": "%{y:.1f} %",
            }
            for (name, counts), colour in zip(moments.items(), ("c0", "c1", "c2"), strict=True)
        ],
        "layout": {
            **_layout("accuracy, %", range=[0, 102]),
            "xaxis": {"type": "category", "title": {"text": "class"}},
            "barmode": "group",
            "hovermode": "closest",
        },
    }
    rows = [
        [one.label, f"{one.samples:,}", f"{one.before:,}", f"{one.lowest:,}", f"{one.after:,}"]
        for one in shown
    ]
    note = "Accuracy of each class of the task; the class that lost most samples is first."
    titles = ("class", "samples", "right before", "at the lowest", "at the end")
    return _section("classes", "Which classes fell", _table(titles, rows), _figure("classes", "", note))


def _answers_section(autopsy: Autopsy) -> Html:
    if not autopsy.taken_for:
        return Html("")
    total = len(autopsy.fallen or ())
    rows = [
        [label or "?", answer, f"{count:,}", f"{100 * count / total:.1f} %"]
        for label, answer, count in autopsy.taken_for[:_CLASSES]
    ]
    note = "The samples that were right before the switch and wrong at the lowest point, by what they were"
    return _section(
        "answers",
        "What they were taken for",
        _table(("class", "answered as", "samples", "of those that fell"), rows),
        element("p", f"{note} answered as.", class_="note"),
    )


def _probes_section(autopsy: Autopsy, figures: dict[str, Json]) -> Html:
    if not autopsy.probes:
        return Html("")
    charts = []
    for number, ((name, task), series) in enumerate(autopsy.probes.items()):
        title = name if task is None else f"{name} of {autopsy.run.task_name(autopsy.gap.task)}"
        marks = [_mark(autopsy.gap.start), _mark(autopsy.gap.lowest_step, "c1")]
        figures[f"probe-{number}"] = {
            "kind": "plotly",
            "data": [_line(title, series.step, series.value, f"c{number % 8}")],
            "layout": {**_layout("", shapes=marks, rangemode="tozero"), "showlegend": False},
        }
        note = f"{title} around the dip."
        charts.append(element("div", element("h3", title), _figure(f"probe-{number}", "small", note)))
    note = "Vertical lines: the switch, and the lowest point."
    return _section(
        "probes",
        "Losses and gradients around it",
        element("p", note, class_="note"),
        element("div", *charts, class_="columns"),
    )


def _recovery_section(autopsy: Autopsy, figures: dict[str, Json]) -> Html:
    if len(autopsy.back) < 2:
        return Html("")
    steps = np.array([step for step, _ in autopsy.back], dtype=np.int64)
    shares = np.array([100 * share for _, share in autopsy.back])
    figures["recovery"] = {
        "kind": "plotly",
        "data": [_line("right again", steps, shares, "c2")],
        "layout": {**_layout("right again, %", range=[-2, 102]), "showlegend": False},
    }
    note = "Of the samples that fell, the share that is right at each evaluation from the lowest point on."
    return _section("recovery", "How it came back", _figure("recovery", "", note))


def _samples_section(autopsy: Autopsy) -> Html:
    if not autopsy.fallen:
        return Html("")
    order = sorted(autopsy.fallen, key=lambda one: (one.back_step is not None, -(one.back_step or 0)))
    rows = [
        [
            one.id,
            str(one.position),
            one.label or "–",
            one.taken_for or "–",
            "never" if one.back_step is None else f"{one.back_step - autopsy.gap.start:,}",
        ]
        for one in order[:_SAMPLES]
    ]
    more = len(order) - len(rows)
    note = f"{more:,} more are not shown; `engram autopsy --json` lists all." if more else ""
    titles = ("id", "position", "class", "answered as", "updates until right again")
    return _section(
        "samples",
        "Which samples fell",
        _table(titles, rows, high=True),
        element("p", note, class_="note") if note else "",
    )


def _others_section(autopsy: Autopsy) -> Html:
    if not autopsy.others:
        return Html("")
    run = autopsy.run
    rows = [
        [
            run.phase_name(gap.phase),
            run.task_name(gap.task),
            f"{100 * gap.depth:.1f}",
            f"{gap.lowest_step:,}",
            "–" if gap.updates_to_recovery is None else f"{gap.updates_to_recovery:,}",
        ]
        for gap in autopsy.others[:_CLASSES]
    ]
    titles = ("learning", "task", "depth, points", "lowest at update", "updates to recovery")
    note = "Choose another with `engram autopsy RUN --task NUMBER --step UPDATE`."
    return _section("others", "Other dips", _table(titles, rows, text=2), element("p", note, class_="note"))


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, high: bool = False, text: int = 1
) -> Html:
    """A table whose first columns are text and whose others are numbers."""
    kinds = [None if number < text else "number" for number in range(len(titles))]
    head = [element("th", title, scope="col", class_=kind) for title, kind in zip(titles, kinds, strict=True)]
    body = [
        element("tr", *(element("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_="plain")
    size = "scroll high" if high else "scroll"
    return element("div", table, class_=size, tabindex="0", role="region", aria_label=", ".join(titles))
