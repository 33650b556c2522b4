"""The page of a zoom in a real browser."""

from pathlib import Path

import pytest
from tests.results.browser import Browser

import engram
from engram.results.zoom import look_closely
from engram.results.zoom_page import write_zoom


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_of_a_zoom(browser: Browser, width: int, tmp_path: Path) -> None:
    run = engram.run("split-digits", "er", updates=10, every=5, subset=20)
    page = tmp_path / "zoom.html"
    write_zoom(look_closely(engram.zoom(run, (10, 25), samples="all"), run), page)
    browser.look(width=width, mobile=width < 600)
    browser.open(page)
    assert browser.problems() == []
    assert browser.requests() == [page.resolve().as_uri()]
    # A curve and the crosses of the run for each of three tasks.
    assert browser.ask("document.querySelector('[data-figure]').data.length") == 6
    assert browser.ask("document.querySelectorAll('#tasks tbody tr').length") == 3
    assert browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
