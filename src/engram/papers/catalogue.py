"""All tables and figures, by name."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from engram.core.errors import unknown_name
from engram.papers.published import PAPERS
from engram.papers.values import Artefact


@cache
def artefacts() -> dict[str, Artefact]:
    """Every table and figure, by name.

    Example:
        >>> "002-table2" in artefacts()
        True
    """
    return {
        artefact.name: artefact
        for paper in PAPERS
        for artefact in import_module(f"engram.papers.paper{paper}").ARTEFACTS
    }


def artefact(name: str) -> Artefact:
    """The table or figure with this name.

    Example:
        >>> artefact("002-table22")
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown table or figure '002-table22'; did you mean ...
    """
    if name not in artefacts():
        raise unknown_name("table or figure", name, artefacts())
    return artefacts()[name]
