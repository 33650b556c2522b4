"""The documentation site: `make docs` builds it without a warning, it is whole, and it works offline."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.docs.pages import ROOT, SITE
from tests.results.browser import Browser, find_chromium
from typer.main import get_command

import engram
from engram.cli.app import app
from engram.cli.verbs import Verbs

pytestmark = pytest.mark.slow


class Addresses(HTMLParser):
    """What a page has: the ids of its elements, where its links lead, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses of an element."""
        values = {name: value for name, value in attrs if value is not None}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(values["href"])
        elif "src" in values:
            self.loads.append(values["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as CI and people build it, but elsewhere."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        ["make", "docs", f"ARGS=--site-dir {folder}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def addresses(site: Path) -> dict[Path, Addresses]:
    return {page.resolve(): Addresses(page) for page in site.rglob("*.html")}


def test_every_page_is_there(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs").with_suffix(".html") for page in SITE]
    assert [page for page in pages if not (site / page).is_file()] == []
    home = (site / "index.html").read_text("utf-8")
    sections = ["Tutorials", "How-to", "Concepts", "Reference", "Results", "Project"]
    tabs = re.findall(r"md-tabs__link[^>]*>\s*(?:<[^>]+>\s*)*([\w-]+)", home)
    assert tabs == ["Home", *sections]


def test_names_and_commands_are_in_the_reference(site: Path, addresses: dict[Path, Addresses]) -> None:
    names = {f"engram.{name}" for name in engram.__all__ if not name.startswith("_")}
    assert names - addresses[(site / "reference" / "python.html").resolve()].ids == set()
    listed = (site / "reference" / "commands.html").read_text("utf-8")
    group = get_command(app)
    assert isinstance(group, Verbs)
    assert [name for name in group.lazy if f"engram {name}</code>" not in listed] == []


def test_links_and_anchors_lead_somewhere(addresses: dict[Path, Addresses]) -> None:
    dead = []
    for page, found in addresses.items():
        for link in found.links:
            parts = urlsplit(link)
            # The page for what is not found has links from the root.
            if parts.scheme or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not target.exists():
                dead.append(f"{page.name}: {link}")
            elif parts.fragment and target in addresses:
                anchors = addresses[target].ids
                dead += [] if unquote(parts.fragment) in anchors else [f"{page.name}: {link}"]
    assert dead == []


def test_nothing_is_loaded_from_elsewhere(site: Path, addresses: dict[Path, Addresses]) -> None:
    loads = {link for found in addresses.values() for link in found.loads}
    assert [link for link in loads if urlsplit(link).scheme or link.startswith("//")] == []
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", styles) == []


SEARCH = """new Promise((done) => {
    const look = () => {
        const field = document.querySelector("input.md-search__input");
        if (document.readyState === "complete" && field) {
            field.focus();
            field.value = "holm correction";
            field.dispatchEvent(new Event("keyup", {bubbles: true}));
        }
        const links = [...document.querySelectorAll("a.md-search-result__link")].map(link => link.href);
        links.length ? done(links) : setTimeout(look, 500);
    };
    look();
    setTimeout(() => done([]), 45000);
})"""


def test_search_works_from_files(site: Path, tmp_path: Path) -> None:
    program = find_chromium()
    if program is None:
        pytest.skip("needs a browser: install Chromium (apt-get install chromium)")
    with Browser(program, tmp_path) as browser:
        for width in (1280, 500):
            browser.look(width=width)
            browser.events.clear()
            browser.call("Page.navigate", url=(site / "index.html").as_uri())
            links = browser.ask(SEARCH)
            assert isinstance(links, list)
            assert any("statistics.html" in link for link in links), (links, browser.problems())
            assert [url for url in browser.requests() if url.startswith("http")] == []
            # No page is wider than the window: tables and code scroll within themselves.
            for page in ("how-to/gate", "how-to/tables", "reproduced", "reference/python"):
                browser.call("Page.navigate", url=(site / f"{page}.html").as_uri())
                loaded = "new Promise(done => addEventListener('load', done)).then(() => 1)"
                browser.ask(f"document.readyState === 'complete' ? 1 : {loaded}")
                assert int(str(browser.ask("document.documentElement.scrollWidth"))) <= width, page
