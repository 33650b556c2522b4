"""All tables and figures by name."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from engram.core.errors import unknown_name
from engram.papers.values import Artefact

PAPERS = ("000", "001", "002", "003", "004")


@cache
def artefacts() -> dict[str, Artefact]:
    """Every table and figure that is defined, by name.

    Example:
        >>> "002-table2" in artefacts()
        True
    """
    found = (each for paper in PAPERS for each in import_module(f"engram.papers.paper{paper}").ARTEFACTS)
    return {each.name: each for each in found}


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
