"""The page on the architecture names things that exist, and leaves no package out."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
STOPS = sorted(set(re.findall(r"`(engram[\w.]*:[\w.]+)`", PAGE)))
PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "engram").glob("*/__init__.py"))


@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_exists(stop: str) -> None:
    module, _, name = stop.partition(":")
    thing: object = import_module(module)
    for part in name.split("."):
        # Every class has a `__call__` from its metaclass, which makes instances.
        holders = thing.__mro__ if isinstance(thing, type) else (thing,)
        assert any(part in vars(holder) for holder in holders), f"{stop}: there is no {part}"
        thing = getattr(thing, part)
    assert callable(thing)


def test_there_are_three_walks() -> None:
    walks = re.split(r"^## Walk \d: ", PAGE, flags=re.MULTILINE)[1:]
    assert len(walks) == 3
    assert all(len(re.findall(r"^\d+\. ", walk, flags=re.MULTILINE)) >= 5 for walk in walks)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_its_paragraph(package: str) -> None:
    assert f"- **`{package}/`**" in PAGE


@pytest.mark.parametrize(
    "page",
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ],
    ids=lambda page: page.stem,
)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []
