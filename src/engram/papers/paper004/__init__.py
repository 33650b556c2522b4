"""Pfülb & Gepperth (2019): an application-oriented study of catastrophic forgetting."""

from engram.papers.paper004.artefacts import ARTEFACTS

__all__ = ["ARTEFACTS"]
