"""Chen et al. (2023): is forgetting less good for forward transfer?"""

from engram.papers.paper003.artefacts import ARTEFACTS

__all__ = ["ARTEFACTS"]
