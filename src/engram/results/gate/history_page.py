"""The history of a model's versions as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from engram.core.files import write_whole
from engram.core.jsons import Json
from engram.results.document import document
from engram.results.gate.history import History
from engram.results.gate.pairs import EVERYTHING
from engram.results.gate.writing import p_value, percent
from engram.results.markup import Html, element, joined

_CURVES: Final = 8
_SAMPLES: Final = 300
_SLICES: Final = 300


def write_history(history: History, path: Path) -> None:
    """Write the page; the file is replaced atomically."""
    text = page(history)
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def page(history: History) -> str:
    """The HTML of the page."""
    figures: dict[str, Json] = {"slices": _curves(history), "flips": _flips(history)}
    counts = history.right.sum(axis=1)
    always, never = int((counts == len(history.versions)).sum()), int((counts == 0).sum())
    lead = (
        f"{len(history.versions)} versions, {len(history.right):,} samples: {always:,} always right, "
        f"{never:,} never right, {len(history.right) - always - never:,} in between."
    )
    return document(
        title="The history of a model",
        kicker="engram history",
        heading=f"From {history.versions[0]} to {history.versions[-1]}",
        lead=lead,
        links=[("Versions", "versions"), ("Slices", "slices"), ("Samples", "samples")],
        content=joined(_versions(history), _slices(history), _samples(history)),
        figures=figures,
    )


def _curves(history: History) -> Json:
    """Accuracy of all samples, and of the slices that fell furthest from their best version."""
    falls = history.accuracy.max(axis=0) - history.accuracy[-1]
    order = [0, *(int(i) for i in np.argsort(-falls, kind="stable") if i != 0)][:_CURVES]
    return {
        "kind": "plotly",
        "data": [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": history.slices[column],
                "x": list(history.versions),
                "y": (100 * history.accuracy[:, column]).round(3).tolist(),
                "line": {
                    "color": "ink" if column == 0 else f"c{place % 8}",
                    "width": 3 if column == 0 else 1.6,
                },
                "hovertemplate": "%{y:.2f} %",
            }
            for place, column in enumerate(order)
        ],
        "layout": {
            "yaxis": {"title": {"text": "accuracy, %"}},
            "xaxis": {"type": "category", "automargin": True},
            "showlegend": True,
            "legend": {"orientation": "h", "y": -0.25},
            "hovermode": "x unified",
        },
    }


def _flips(history: History) -> Json:
    steps = [changes[EVERYTHING] for changes in history.changes]
    bars = (("lost", "c1", [-change.lost for change in steps]), ("gained", "c2", [c.gained for c in steps]))
    return {
        "kind": "plotly",
        "data": [
            {
                "type": "bar",
                "name": name,
                "x": list(history.versions[1:]),
                "y": values,
                "marker": {"color": colour},
                "hovertemplate": "%{y} samples",
            }
            for name, colour, values in bars
        ],
        "layout": {
            "barmode": "relative",
            "yaxis": {"title": {"text": "samples"}},
            "xaxis": {"type": "category", "automargin": True},
            "showlegend": True,
            "legend": {"orientation": "h", "y": -0.3},
        },
    }


def _versions(history: History) -> Html:
    titles = ("version", "accuracy", "lost", "gained", "p", "largest drop of a slice")
    rows = [[history.versions[0], percent(history.accuracy[0, 0]), "–", "–", "–", "–"]]
    for version, changes in zip(history.versions[1:], history.changes, strict=True):
        overall = changes[EVERYTHING]
        slices = [change for name, change in changes.items() if name != EVERYTHING]
        worst = min(slices, key=lambda change: change.change, default=None)
        fell = worst is not None and worst.change < 0
        drop = f"{worst.name} {100 * worst.change:+.2f}" if worst is not None and fell else "–"
        rows.append(
            [
                version,
                percent(overall.after),
                f"{overall.lost:,}",
                f"{overall.gained:,}",
                p_value(overall.p),
                drop,
            ]
        )
    return element(
        "section",
        element("h2", "Versions"),
        element("figure", element("div", class_="plot small", data_figure="flips")),
        _table(titles, rows),
        element(
            "p",
            "Each version against the one before it. Lost: right before, wrong now. p: exact paired test "
            "that as many samples were lost as gained.",
            class_="note",
        ),
        id="versions",
    )


def _slices(history: History) -> Html:
    best = history.accuracy.max(axis=0)
    falls = best - history.accuracy[-1]
    order = [0, *(int(i) for i in np.argsort(-falls, kind="stable") if i != 0)]
    titles = ("slice", "samples", "first", "best", "best in", "last", "since best")
    rows = [
        [
            history.slices[column],
            f"{history.totals[column]:,}",
            percent(history.accuracy[0, column]),
            percent(best[column]),
            history.versions[int(np.argmax(history.accuracy[:, column]))],
            percent(history.accuracy[-1, column]),
            f"{100 * (history.accuracy[-1, column] - best[column]):+.2f}",
        ]
        for column in order[:_SLICES]
    ]
    return element(
        "section",
        element("h2", "Slices"),
        element("figure", element("div", class_="plot", data_figure="slices")),
        _table(titles, rows),
        id="slices",
    )


def _samples(history: History) -> Html:
    fates = history.fates()
    gone = int(fates["back in"].is_null().sum())
    count = (
        f"{len(fates):,} samples were right once and wrong later: {gone:,} of them are wrong now, "
        f"{len(fates) - gone:,} came back."
    )
    if len(fates) > _SAMPLES:
        count += f" The {_SAMPLES} that were lost last are shown."
    rows = [
        ["–" if value is None else str(value) for value in row] for row in fates.head(_SAMPLES).iter_rows()
    ]
    return element(
        "section",
        element("h2", "Samples"),
        element("p", count),
        _table(fates.columns, rows) if rows else joined(),
        id="samples",
    )


def _table(titles: tuple[str, ...] | list[str], rows: list[list[str]]) -> Html:
    head = element("thead", element("tr", *(element("th", title) for title in titles)))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:]))
        for row in rows
    ]
    table = element("table", head, element("tbody", *body), class_="plain")
    return element("div", table, class_="scroll high", tabindex="0")
