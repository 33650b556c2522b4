"""A self-contained HTML page with figures.

Style, scripts and data are embedded, and the content security policy forbids every request. Tables are plain
HTML and work without JavaScript; figures are drawn by Plotly, which is embedded gzip-compressed (2 MB instead
of 4.8).
"""

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from string import Template

from engram.core.jsons import Json, JsonMapping
from engram.results.markup import Html, element, joined


def document(
    *,
    title: str,
    kicker: str,
    heading: str,
    lead: str,
    links: Sequence[tuple[str, str]],
    content: Html,
    figures: JsonMapping,
) -> str:
    """A complete page as text; the same content always produces the same bytes.

    Args:
        title: The title of the window.
        kicker: The small line above the heading.
        heading: The heading.
        lead: The line below the heading.
        links: The navigation: names and element ids.
        content: The elements between header and footer; an element with `data-figure` shows the figure of
            that name.
        figures: The figures by name, as `report.js` draws them.

    Example:
        >>> text = document(
        ...     title="a", kicker="b", heading="1 < 2", lead="c", links=[], content=element("p"), figures={}
        ... )
        >>> "<h1>1 &lt; 2</h1>" in text
        True
    """
    here = files("engram.results")
    return Template((here / "report.html").read_text(encoding="utf-8")).substitute(
        title=element("title", title),
        style=(here / "report.css").read_text(encoding="utf-8"),
        kicker=joined(kicker),
        heading=joined(heading),
        lead=joined(lead),
        links=joined(*(element("a", name, href=f"#{place}") for name, place in links)),
        content=content,
        figures=_script_json(figures),
        plotly=_packed_plotly(),
        script=(here / "report.js").read_text(encoding="utf-8"),
    )


def _script_json(value: Json) -> str:
    """JSON that cannot close the script element that contains it."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _packed_plotly() -> str:
    source = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    # Level 9 takes a third longer, and saves a quarter of a percent.
    return base64.b64encode(gzip.compress(source, 6, mtime=0)).decode()
