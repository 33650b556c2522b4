"""The tables and figures of five papers: published numbers, and reproductions under the same set-up."""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.papers.catalogue import artefact, artefacts
    from engram.papers.published import Cell, cells
    from engram.papers.values import Artefact, Piece, Statement

__all__ = ["Artefact", "Cell", "Piece", "Statement", "artefact", "artefacts", "cells"]

__getattr__, __dir__ = lazy_package(
    __name__,
    {
        ".catalogue": ("artefact", "artefacts"),
        ".published": ("Cell", "cells"),
        ".values": ("Artefact", "Piece", "Statement"),
    },
)
