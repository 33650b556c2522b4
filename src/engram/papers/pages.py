"""The figures of a paper as one page of Plotly panels, in the style of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.results.document import document
from engram.results.figures import MAX_POINTS, thin
from engram.results.markup import Html, element, joined

Floats: TypeAlias = NDArray[np.float64]
Plotly: TypeAlias = JsonObject
"""A part of a Plotly figure: a trace, a shape, a layout, or data and layout together."""
Traces: TypeAlias = list[Plotly]


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot of a page.

    Attributes:
        title: The heading above the plot.
        figure: `data` and `layout` of a Plotly figure, as lists, dictionaries, numbers and text. Colours may
            be those of the page, which adapt to light and dark mode: `c0` to `c7`, `ink`, `soft`, `line`,
            with an opacity as in `c0/0.16`. Curves without a colour get `c0`, `c1`, … in turn.
        caption: The text below the plot.
    """

    title: str
    figure: JsonMapping
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A figure of a paper, drawn.

    Attributes:
        title: The heading.
        panels: The plots.
        notes: Notes below the plots.

    Example:
        >>> line = {"type": "scatter", "name": "ER", "x": [1, 2], "y": [0.9, math.nan]}
        >>> drawn = Page("Figure 1", [Panel("MNIST", {"data": [line], "layout": {}}, "One seed.")])
        >>> text = drawn.html(lead="A few updates of each run.")
        >>> "ER" in text, "One seed." in text, "A few updates" in text, "NaN" in text.split("<script")[1]
        (True, True, True, False)
    """

    title: str
    panels: Sequence[Panel]
    notes: Sequence[str] = ()

    def html(self, *, lead: str = "", about: Sequence[str] = ()) -> str:
        """The page as self-contained HTML.

        Args:
            lead: The line below the heading; says what was run, if not the paper's set-up.
            about: Further notes, below those of the page.
        """
        figures = {
            f"panel-{i}": {
                "kind": "plotly",
                "data": _plain(panel.figure["data"]),
                "layout": _plain(panel.figure.get("layout", {})),
            }
            for i, panel in enumerate(self.panels)
        }
        wide = len(self.panels) < 3
        shown = [_shown(panel, name, wide=wide) for name, panel in zip(figures, self.panels, strict=True)]
        body = joined(*shown) if wide else element("div", *shown, class_="columns")
        notes = [element("p", note, class_="note") for note in dict.fromkeys([*self.notes, *about])]
        return document(
            title=f"engram – {self.title}",
            kicker="engram reproduce",
            heading=self.title,
            lead=lead,
            links=[],
            content=joined(element("section", body), element("section", *notes) if notes else ""),
            figures=figures,
        )

    def numbers(self, limit: int = 100) -> list[JsonObject]:
        """The named curves of each panel, for the record; long ones are downsampled to `limit` points.

        Example:
            >>> line = {"type": "scatter", "name": "ER", "x": [1, 2], "y": [0.9, 0.5], "mode": "lines"}
            >>> Page("Figure 1", [Panel("MNIST", {"data": [line]})]).numbers()
            [{'panel': 'MNIST', 'curves': [{'name': 'ER', 'x': [1, 2], 'y': [0.9, 0.5]}]}]
        """
        kept = []
        for panel in self.panels:
            curves = []
            for trace in _plain(panel.figure["data"]):
                if "name" in trace:
                    points = thin(np.asarray(trace["y"], dtype=np.float64), limit)
                    axes = {axis: [trace[axis][place] for place in points] for axis in ("x", "y")}
                    curves.append({"name": trace["name"], **axes})
            kept.append({"panel": panel.title, "curves": curves})
        return kept


def _shown(panel: Panel, name: str, *, wide: bool) -> Html:
    plot = element(
        "div",
        class_="plot tall" if wide else "plot",
        data_figure=name,
        role="img",
        aria_label=f"Chart: {panel.title}",
    )
    caption = element("figcaption", panel.caption) if panel.caption else ""
    return element("div", element("h3", panel.title, id=f"at-{name}"), element("figure", plot, caption))


def curve(
    name: str,
    x: Sequence[float] | Floats,
    runs: Sequence[Sequence[float]] | Floats,
    *,
    colour: str,
    band: bool = True,
    within: tuple[float, float] = (-math.inf, math.inf),
    **extra: Json,
) -> Traces:
    """The mean over runs as a line, with a band of one sample standard deviation if there are several.

    Long curves are downsampled; minima and maxima are preserved.

    Args:
        name: The name in the legend.
        x: The positions of the points.
        runs: One row per run, one column per point; NaN for missing values.
        colour: One of the colours of the page.
        band: Whether to draw the band.
        within: The limits of the band: 0 and 100 for percentages.
        **extra: Plotly options of the line's trace.

    Example:
        >>> shade, line = curve("ER", [1, 2], [[0.5, 0.7], [0.7, 0.7]], colour="c0")
        >>> line["name"], line["y"], shade["fillcolor"]
        ('ER', [0.6, 0.7], 'c0/0.16')
    """
    rows = np.atleast_2d(np.asarray(runs, dtype=np.float64))
    some = np.isfinite(rows).any(axis=0)
    rows, places = rows[:, some], np.asarray(x, dtype=np.float64)[some]
    if not rows.size:
        return []
    mean = np.nanmean(rows, axis=0)
    kept = thin(mean, MAX_POINTS)
    rows, places, mean = rows[:, kept], places[kept], mean[kept]
    group = extra.pop("legendgroup", name)
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "legendgroup": group,
        "x": places.tolist(),
        "y": _short(mean),
        **extra,
        "line": {"color": colour, "width": 1.8, **extra.get("line", {})},
    }
    if not band or len(rows) < 2:
        return [line]
    sd = _sample_sd(rows, mean)
    shade = _band(places, np.clip(mean - sd, *within), np.clip(mean + sd, *within), colour=colour)
    return [{**shade, "legendgroup": group}, line]


def _band(x: Floats, low: Floats, high: Floats, *, colour: str) -> Plotly:
    """The area between two curves."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*x.tolist(), *x[::-1].tolist()],
        "y": [*_short(high), *_short(low[::-1])],
        "fill": "toself",
        "fillcolor": f"{colour}/0.16",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _sample_sd(rows: Floats, mean: Floats) -> Floats:
    """The sample standard deviation of each column; 0 where it has fewer than two numbers."""
    counted = np.isfinite(rows).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = np.nansum((rows - mean) ** 2, axis=0)
        return np.where(counted > 1, np.sqrt(squares / np.maximum(counted - 1, 1)), 0.0)


def level(value: float, *, colour: str) -> Plotly:
    """A horizontal line across a panel, for `layout["shapes"]`."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": {"color": colour, "width": 1.3, "dash": "dash"},
    }


def upright(place: float) -> Plotly:
    """A vertical line across a panel, for `layout["shapes"]`."""
    return {
        "type": "line",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "x0": place,
        "x1": place,
        "layer": "below",
        "line": {"color": "soft", "width": 1, "dash": "dot"},
    }


def _short(values: Floats) -> list[float | None]:
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]


def _plain(value: Json) -> Json:
    """The value as JSON: lists instead of arrays, None instead of NaN."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
