"""The papers that metrics come from, as `engram explain` cites them."""

from typing import Final

STABILITY_GAP: Final = "De Lange et al. (2023), identifying the stability gap"
NEW_METRICS: Final = "Michel et al. (2023), new metrics for analyzing continual learners"
FORWARD: Final = "Chen et al. (2023), forgetting and forward transfer"
APPLICATION: Final = "Pfülb & Gepperth (2019), application-oriented study"
GEM: Final = "Lopez-Paz & Ranzato (2017), gradient episodic memory (GEM)"
AGEM: Final = "Chaudhry et al. (2019), averaged gradient episodic memory (A-GEM)"
SAMPLE_WISE: Final = "Harmon et al. (2025), mapping post-training forgetting, arXiv 2510.17776"
TONEVA: Final = "Toneva et al. (2019), an empirical study of example forgetting, arXiv 1812.05159"
GAP: Final = (
    "our summary of the gap of De Lange et al. (2023), which Hess et al. (2023, arXiv 2311.04898) and Kamath "
    "et al. (2024, arXiv 2406.05114) study further"
)
