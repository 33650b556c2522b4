"""What the documentation site has besides the pages in `docs/`: its navigation, and pages from elsewhere.

The navigation follows from the folders: a page that is added to one of them is in it. CONTRIBUTING.md,
CHANGELOG.md and the scripts in `examples/` are pages as well, and so is every public name of engram.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import engram  # noqa: E402

SECTIONS = {
    "Tutorials": ("tutorials/*",),
    "How-to": ("how-to/*",),
    "Concepts": ("concepts/*",),
    "Reference": ("overview.md", "reference/*"),
    "Results": ("reproduced.md", "reproduction.md", "speed.md", "scale.md"),
    "Project": ("architecture.md", "contributing.md", "changelog.md"),
    "Decisions": ("decisions/*",),
    "Examples": ("examples/*",),
}
WITHIN = {"Decisions": "Project", "Examples": "Reference"}
"""Sections that are part of another."""

FIRST = (
    *("first-steps", "own-loop", "hugging-face", "lightning", "avalanche", "torchmetrics", "without-torch"),
    *("gate", "own-data", "what-the-bits-say", "trackers", "tables", "trace", "isolation", "settings"),
)
"""The order within a section; all other pages follow, by name."""

OUTSIDE = {"contributing.md": ROOT / "CONTRIBUTING.md", "changelog.md": ROOT / "CHANGELOG.md"}
EXAMPLES = {f"examples/{path.name}.md": path for path in sorted((ROOT / "examples").glob("*.*"))}
REPOSITORY = "https://github.com/engram-eval/engram/blob/main/"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from elsewhere, and make the navigation of all pages."""
    for name, path in OUTSIDE.items():
        files.append(File.generated(config, name, content=path.read_text("utf-8")))
    for name, path in EXAMPLES.items():
        kind = path.suffix.removeprefix(".").replace("py", "python")
        content = f"# {path.name}\n\n```{kind}\n{path.read_text('utf-8')}```\n"
        files.append(File.generated(config, name, content=content))
    config.nav = _navigation([file.src_uri for file in files.documentation_pages()])
    return files


def _navigation(pages: list[str]) -> list[object]:
    sections: dict[str, list[object]] = {}
    for title, patterns in SECTIONS.items():
        chosen: list[object] = [page for pattern in patterns for page in _matching(pages, pattern)]
        if title in WITHIN:
            sections[WITHIN[title]].append({title: chosen})
        elif chosen:
            sections[title] = chosen
    return [{"Home": "index.md"}, *({title: chosen} for title, chosen in sections.items())]


def _matching(pages: list[str], pattern: str) -> list[str]:
    folder, _, name = pattern.rpartition("/")
    matches = [page for page in pages if posixpath.dirname(page) == folder and name in ("*", page)]
    known = {name: number for number, name in enumerate(FIRST)}
    return sorted(matches, key=lambda page: (known.get(Path(page).stem, len(known)), page))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that lead out of `docs/` lead to the pages from elsewhere, and list the public names."""
    source = ROOT / "docs" / page.file.src_uri
    if page.file.src_uri in OUTSIDE:
        source = OUTSIDE[page.file.src_uri]
    markdown = re.sub(
        r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)", lambda link: _link(link[1], source, page.file.src_uri), markdown
    )
    markdown = markdown.replace("<!-- every command -->", "\n".join(_commands()))
    return markdown.replace("<!-- every public name -->", "\n\n".join(_public_names()))


def _link(link: str, source: Path, page: str) -> str:
    """The address of a link, which is relative to the source of a page."""
    target = (source.parent / link).resolve()
    pages = {path: name for name, path in (OUTSIDE | EXAMPLES).items()}
    pages[ROOT / "examples"] = "examples/your_own_loop.py.md"
    pages[ROOT / "docs" / "decisions"] = "decisions/001-dependencies.md"
    pages[ROOT / "README.md"] = "index.md"
    name = pages.get(target)
    if name is None and target.is_relative_to(ROOT / "docs"):
        name = target.relative_to(ROOT / "docs").as_posix()
    if name is not None:
        return posixpath.relpath(name, posixpath.dirname(page))
    return REPOSITORY + target.relative_to(ROOT).as_posix() if target.is_relative_to(ROOT) else link


def _commands() -> Iterator[str]:
    """A table of all commands: name and meaning. They are read, not imported, because that needs typer."""
    source = (ROOT / "src" / "engram" / "cli" / "app.py").read_text("utf-8")
    yield "| command | what it does |\n|---|---|"
    for name, meaning in re.findall(r'"(\w+)": LazyVerb\(\s*"[^"]+",\s*"([^"]+)"', source):
        yield f"| `engram {name}` | {meaning} |"


def _public_names() -> Iterator[str]:
    """A directive for every public name, functions before classes, as people call them."""
    names = [name for name in engram.__all__ if not name.startswith("_")]
    for name in sorted(names, key=lambda name: (name[0].isupper(), name)):
        yield f"::: engram.{name}"
