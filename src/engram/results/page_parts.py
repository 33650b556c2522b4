"""Parts that pages about one run share: sections, figures over updates, and tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engram.core.jsons import Json
from engram.results.figures import MAX_POINTS, thin
from engram.results.markup import Html, element


def section(place: str, title: str, *content: str) -> Html:
    """A part of a page with a heading."""
    return element("section", element("h2", title), *content, id=place)


def figure(name: str, size: str, note: str) -> Html:
    """A place for the figure of a name, and what it shows."""
    plot = element("div", class_=f"plot {size}".strip(), data_figure=name, role="img", aria_label=note)
    return element("figure", plot, element("figcaption", note, class_="note"))


def line(name: str, x: NDArray[np.int64], y: NDArray[np.float64], colour: str, **style: Json) -> Json:
    """A curve of a figure, thinned so that extremes are kept; `style` is that of its line."""
    kept = thin(y, MAX_POINTS)
    return {
        "type": "scatter",
        "mode": "lines" if len(kept) > 60 else "lines+markers",
        "marker": {"size": 5, "color": colour},
        "name": name,
        "x": x[kept].tolist(),
        "y": [None if np.isnan(value) else float(f"{value:.5g}") for value in y[kept]],
        "line": {"color": colour, "width": 2, **style},
    }


def layout(title: str, *, shapes: Sequence[Json] = (), **axis: Json) -> Json:
    """The layout of a figure over updates; `axis` is that of its values."""
    return {
        "xaxis": {"title": {"text": "updates"}},
        "yaxis": {"title": {"text": title}, **axis},
        "showlegend": True,
        "legend": {"orientation": "h", "y": -0.22, "yanchor": "top"},
        "margin": {"t": 40, "r": 12},
        "hovermode": "x unified",
        "shapes": list(shapes),
    }


def mark(step: int, colour: str = "soft") -> Json:
    """A dotted vertical line at an update."""
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


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, high: bool = False, text: int = 1) -> Html:
    """A table whose first columns are text and whose others are numbers."""
    kinds = [None if number < text else "number" for number in range(len(titles))]
    head = [element("th", title, scope="col", class_=kind) for title, kind in zip(titles, kinds, strict=True)]
    body = [
        element("tr", *(element("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    whole = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_="plain")
    size = "scroll high" if high else "scroll"
    return element("div", whole, class_=size, tabindex="0", role="region", aria_label=", ".join(titles))


def look_closer(command: str | None) -> Html:
    """The command that looks at a dip again, ready to copy; nothing where there is none."""
    if command is None:
        return Html("")
    return element("p", "To look at every update of it: ", element("code", command), class_="note")
