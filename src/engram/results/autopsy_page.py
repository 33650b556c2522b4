"""The autopsy of a dip as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from engram.core.files import write_whole
from engram.core.jsons import Json
from engram.results.autopsy import Autopsy
from engram.results.document import document
from engram.results.markup import Html, element, joined
from engram.results.page_parts import figure, layout, line, look_closer, mark, section, table

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
        section("dip", "The dip", _sentences(autopsy), figure("dip", "tall", _DIP)),
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


def _sentences(autopsy: Autopsy) -> Html:
    first, *rest = autopsy.summary()[:3]
    text = ". ".join(f"{words[0].upper()}{words[1:]}" for words in (first, *rest))
    lacking = [element("p", f"Not shown: {words}.", class_="note") for words in autopsy.lacking]
    return joined(element("p", f"{text}.", class_="gap"), look_closer(autopsy.again), *lacking)


def _dip_figure(autopsy: Autopsy) -> Json:
    run, gap, curve = autopsy.run, autopsy.gap, autopsy.run.curve
    inside = (curve.step >= gap.start) & (curve.step <= gap.end)
    data = [line(run.task_name(gap.task), autopsy.steps, 100 * autopsy.accuracy, "c1", width=3)]
    for place, column in enumerate(curve.phases[gap.phase]):
        known = inside & ~np.isnan(curve.accuracy[:, column])
        if known.any() and column != gap.task:
            name = f"{run.task_name(column)}, being learned"
            colour = f"c{(2 * place) % 8}"
            data.append(line(name, curve.step[known], 100 * curve.accuracy[known, column], colour))
    reference = {
        **mark(gap.start),
        "x1": gap.end,
        "y0": 100 * gap.before,
        "y1": 100 * gap.before,
        "yref": "y",
    }
    marks = [reference, mark(gap.lowest_step, "c1")]
    if gap.recovered_step is not None and gap.recovered_step > gap.start:
        marks.append(mark(gap.recovered_step))
    return {
        "kind": "plotly",
        "data": data,
        "layout": layout("accuracy, %", shapes=marks, range=[-2, 102]),
    }


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
            **layout("accuracy, %", range=[0, 102]),
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
    return section("classes", "Which classes fell", table(titles, rows), figure("classes", "", note))


def _answers_section(autopsy: Autopsy) -> Html:
    if not autopsy.taken_for:
        return Html("")
    total = len(autopsy.fallen or ())
    rows = [
        [label or "?", answer, f"{count:,}", f"{100 * count / total:.1f} %"]
        for label, answer, count in autopsy.taken_for[:_CLASSES]
    ]
    note = "The samples that were right before the switch and wrong at the lowest point, by what they were"
    return section(
        "answers",
        "What they were taken for",
        table(("class", "answered as", "samples", "of those that fell"), rows),
        element("p", f"{note} answered as.", class_="note"),
    )


def _probes_section(autopsy: Autopsy, figures: dict[str, Json]) -> Html:
    if not autopsy.probes:
        return Html("")
    charts = []
    for number, ((name, task), series) in enumerate(autopsy.probes.items()):
        title = name if task is None else f"{name} of {autopsy.run.task_name(autopsy.gap.task)}"
        marks = [mark(autopsy.gap.start), mark(autopsy.gap.lowest_step, "c1")]
        figures[f"probe-{number}"] = {
            "kind": "plotly",
            "data": [line(title, series.step, series.value, f"c{number % 8}")],
            "layout": {**layout("", shapes=marks, rangemode="tozero"), "showlegend": False},
        }
        note = f"{title} around the dip."
        charts.append(element("div", element("h3", title), figure(f"probe-{number}", "small", note)))
    note = "Vertical lines: the switch, and the lowest point."
    return section(
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
        "data": [line("right again", steps, shares, "c2")],
        "layout": {**layout("right again, %", range=[-2, 102]), "showlegend": False},
    }
    note = "Of the samples that fell, the share that is right at each evaluation from the lowest point on."
    return section("recovery", "How it came back", figure("recovery", "", note))


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
    return section(
        "samples",
        "Which samples fell",
        table(titles, rows, high=True),
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
    return section("others", "Other dips", table(titles, rows, text=2), element("p", note, class_="note"))
