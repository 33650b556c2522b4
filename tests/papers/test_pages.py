"""Pages of figures: self-contained, drawn in a real browser, in light and dark."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.results.browser import Browser, find_chromium

from engram.papers.pages import Page, Panel, curve, level, upright


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real Chromium, or a skip that says how to get one."""
    program = find_chromium()
    if program is None:
        pytest.skip("needs a browser: install Chromium (apt-get install chromium)")
    with Browser(program, tmp_path_factory.mktemp("profile")) as running:
        yield running


def two_panels() -> str:
    runs = np.array([[0.2, 0.4, math.nan], [0.4, 0.8, math.nan]])
    layout = {"shapes": [level(0.3, colour="c0"), upright(2)], "yaxis": {"title": {"text": "accuracy"}}}
    return Page(
        "Two <panels>",
        [
            Panel(
                "First", {"data": curve("ER", [1, 2, 3], runs, colour="c0"), "layout": layout}, "Below it."
            ),
            Panel(
                "Second", {"data": [{"type": "bar", "name": "GEM", "x": ["a"], "y": np.array([math.inf])}]}
            ),
        ],
        notes=("Read & know.",),
    ).html(lead="A quick look.", about=("Read & know.", "All of it."))


def test_a_page_is_whole_and_escaped() -> None:
    text = two_panels()
    assert "<h1>Two &lt;panels&gt;</h1>" in text and "Below it." in text
    assert text.count("Read &amp; know.") == 1 and "All of it." in text and "A quick look." in text
    assert "http-equiv" in text and "$" not in text.split("<body>")[1].split("<script")[0]


def test_a_curve_has_its_mean_and_its_band() -> None:
    shade, line = curve("ER", [1, 2, 3], [[0.2, 0.4, math.nan], [0.4, 0.8, math.nan]], colour="c0")
    assert line["x"] == [1, 2] and line["y"] == [0.3, 0.6]
    sd = np.std([0.4, 0.8], ddof=1)
    assert shade["y"][1] == pytest.approx(0.6 + sd, abs=1e-4)
    assert shade["y"][2] == pytest.approx(0.6 - sd, abs=1e-4)
    assert len(curve("ER", [1, 2], [[0.1, 0.2]], colour="c0")) == 1
    assert curve("ER", [1], [[math.nan]], colour="c0") == []


def test_long_curves_keep_their_minima() -> None:
    values = np.full((1, 50_000), 0.9)
    values[0, 31_417] = 0.1
    [line] = curve("ER", np.arange(50_000.0), values, colour="c0")
    assert len(line["x"]) <= 1500 and 31_417 in line["x"] and min(line["y"]) == 0.1


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_draws_offline_in_light_and_dark(browser: Browser, tmp_path: Path, *, dark: bool) -> None:
    place = tmp_path / "page.html"
    place.write_text(two_panels(), encoding="utf-8")
    browser.look(width=1200, dark=dark)
    browser.open(place)
    assert browser.problems() == []
    assert [
        address for address in browser.requests() if not address.startswith(("file:", "data:", "blob:"))
    ] == []
    drawn = browser.ask(
        "[...document.querySelectorAll('[data-figure]')].map((e) => e.data.map((t) => t.name))"
    )
    assert drawn == [[None, "ER"], ["GEM"]]
    inks = browser.ask(
        "(() => { const e = document.querySelector('[data-figure]');"
        "const shape = e.layout.shapes[0];"
        "return [e.data[1].line.color, e.data[0].fillcolor, shape.line.color, shape.type] })()"
    )
    blue = "90, 180, 240" if dark else "11, 111, 184"
    assert inks == [f"rgb({blue})", f"rgba({blue}, 0.16)", f"rgb({blue})", "line"]
    assert browser.ask("document.querySelectorAll('.js-line').length") >= 1
