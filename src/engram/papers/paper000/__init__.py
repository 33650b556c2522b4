"""De Lange et al. (2023): continual evaluation and the stability gap."""

from engram.papers.paper000.artefacts import ARTEFACTS

__all__ = ["ARTEFACTS"]
