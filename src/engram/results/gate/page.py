"""A gate's outcome as one self-contained HTML page, with the samples that flipped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engram.core.files import write_whole
from engram.core.jsons import Json
from engram.results.document import document
from engram.results.gate.judging import MEANING, Change, Gate
from engram.results.gate.pairs import CLASS, NEW, NEW_ANSWER, OLD, OLD_ANSWER
from engram.results.gate.predictions import ID, IMAGE, LABEL, TEXT
from engram.results.gate.writing import cells, headline
from engram.results.markup import Html, element, joined

if TYPE_CHECKING:
    import polars

MOST_SAMPLES: Final = 200
"""The most flipped samples that a page shows, of each kind."""
_DRAWN: Final = 40
_TABLED: Final = 500
_LARGEST_IMAGE: Final = 200_000
_KINDS: Final = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}


def write_page(gate: Gate, path: Path, *, images: Path | None = None) -> None:
    """Write the page; the file is replaced atomically.

    Args:
        gate: The outcome.
        path: Where to write it.
        images: The folder that image paths are relative to.
    """
    text = page(gate, images=images)
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def page(gate: Gate, *, images: Path | None = None) -> str:
    """The HTML of the page."""
    word = "passed" if gate.passed else "failed"
    lost = gate.pairs.frame.filter(gate.pairs.frame[OLD] & ~gate.pairs.frame[NEW])
    gained = gate.pairs.frame.filter(~gate.pairs.frame[OLD] & gate.pairs.frame[NEW])
    figures: dict[str, Json] = {}
    content = joined(
        _rules(gate),
        _slices(gate, figures),
        _samples("lost", "Lost", "right before, wrong now", lost, gate, images),
        _samples("gained", "Gained", "wrong before, right now", gained, gate, images),
    )
    return document(
        title=f"Forgetting gate {word}: {gate.old} and {gate.new}",
        kicker="engram gate",
        heading=f"Forgetting gate {word}",
        lead=f"{headline(gate)}. Before: {gate.old}. After: {gate.new}.",
        links=[("Slices", "slices"), ("Lost samples", "lost"), ("Gained samples", "gained")],
        content=content,
        figures=figures,
    )


def _rules(gate: Gate) -> Html:
    if not gate.judgements:
        return joined()
    lines = [
        element(
            "p",
            element("span", _word(judgement.passed), class_=f"verdict {_mark(judgement.passed)}"),
            " ",
            element("strong", str(judgement.rule)),
            f": {judgement.reason}.",
        )
        for judgement in gate.judgements
    ]
    shown = dict.fromkeys(judgement.rule.shown for judgement in gate.judgements)
    meanings = [element("p", f"A {word} rule {MEANING[word]}.", class_="note") for word in shown]
    return element("section", element("h2", "Rules"), *lines, *meanings)


def _slices(gate: Gate, figures: dict[str, Json]) -> Html:
    titles = ("slice", "samples", "before", "after", "lost", "gained", "change", "p (Holm)", "would show")
    head = element(
        "thead", element("tr", *(element("th", title, class_=_side(i)) for i, title in enumerate(titles)))
    )
    shown = [gate.overall, *gate.slices[:_TABLED]]
    rows = [
        element(
            "tr",
            *(
                element("th" if i == 0 else "td", cell, class_=_side(i), scope="row" if i == 0 else None)
                for i, cell in enumerate(cells(change))
            ),
        )
        for change in shown
    ]
    notes = [
        "Accuracies in percent, the largest drop first. Change: score interval with "
        f"{100 * (1 - gate.level):g} % confidence. p: exact paired test, corrected over all slices. Would "
        "show: the smallest drop that a slice of this size would have shown with a probability of 80 %."
    ]
    if len(gate.slices) > _TABLED:
        notes.append(f"{len(gate.slices) - _TABLED} more slices fell less; --json has all of them.")
    if gate.too_small:
        notes.append(f"{gate.too_small} slices were left out because they are too small.")
    figures["slices"] = _figure([gate.overall, *gate.slices[:_DRAWN]])
    plot = element("div", class_="plot small", id="slices-plot", data_figure="slices")
    table = element("table", head, element("tbody", *rows), class_="plain")
    return element(
        "section",
        element("h2", "Slices"),
        element("figure", plot),
        element("div", table, class_="scroll high", tabindex="0"),
        *(element("p", note, class_="note") for note in notes),
        id="slices",
    )


def _figure(changes: Sequence[Change]) -> Json:
    """The change of every slice with its interval, the largest drop on top."""
    shown = list(reversed(changes))
    return {
        "kind": "plotly",
        "data": [
            {
                "type": "scatter",
                "mode": "markers",
                "x": [round(100 * change.change, 3) for change in shown],
                "y": [change.name for change in shown],
                "marker": {"color": "c0", "size": 8},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [round(100 * (change.high - change.change), 3) for change in shown],
                    "arrayminus": [round(100 * (change.change - change.low), 3) for change in shown],
                    "color": "soft",
                    "thickness": 1.4,
                    "width": 3,
                },
                "hovertemplate": "%{y}: %{x:+.2f} points<extra></extra>",
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": "change of accuracy, percentage points"}, "zerolinecolor": "ink"},
            "yaxis": {"automargin": True, "type": "category"},
            "height": max(240, 90 + 22 * len(shown)),
        },
    }


def _samples(
    place: str, title: str, meaning: str, frame: polars.DataFrame, gate: Gate, images: Path | None
) -> Html:
    shown = frame.head(MOST_SAMPLES)
    plain = [name for name in (LABEL, OLD_ANSWER, NEW_ANSWER) if name in frame.columns]
    slices = [name for name in gate.pairs.slice_columns if name != CLASS][:6]
    columns = [ID, *plain, *slices, *(name for name in (IMAGE, TEXT) if name in frame.columns)]
    head = element("thead", element("tr", *(element("th", name) for name in columns)))
    rows = [
        element("tr", *(element("td", _shown(name, value, images)) for name, value in row.items()))
        for row in shown.select(columns).iter_rows(named=True)
    ]
    count = f"{len(frame):,} samples, {meaning}."
    if len(frame) > MOST_SAMPLES:
        count += f" The first {MOST_SAMPLES} are shown."
    table = element(
        "div",
        element("table", head, element("tbody", *rows), class_="plain"),
        class_="scroll high",
        tabindex="0",
    )
    return element(
        "section", element("h2", title), element("p", count), table if rows else joined(), id=place
    )


def _shown(column: str, value: object, images: Path | None) -> Html:
    if value is None:
        return joined("–")
    if column == IMAGE:
        source = _picture(str(value), images)
        if source is not None:
            return element("img", src=source, alt=str(value), class_="thumbnail", loading="lazy")
    return joined(str(value))


def _picture(place: str, images: Path | None) -> str | None:
    """An image as part of the page; None if it is not a small image file."""
    if place.startswith("data:image/"):
        return place
    path = Path(place) if images is None else images / place
    kind = _KINDS.get(path.suffix.lower())
    try:
        if kind is None or path.stat().st_size > _LARGEST_IMAGE:
            return None
        return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    except OSError:
        return None


def _word(passed: bool) -> str:
    return "passed" if passed else "failed"


def _mark(passed: bool) -> str:
    return "held" if passed else "broken"


def _side(column: int) -> str | None:
    return "number" if column else None
