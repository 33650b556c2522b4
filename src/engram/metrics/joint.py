"""Metrics relative to joint training: a network that learned all tasks at once."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from engram.metrics.arrays import mean_of_known
from engram.metrics.registry import metric
from engram.metrics.sources import APPLICATION

CF_THRESHOLDS: Final = {"D5-5": 0.5, "DP10-10": 0.5, "D9-1": 0.9}
"""Below this accuracy on all classes, the first of two tasks counts as forgotten (Pfülb & Gepperth 2019)."""


@metric(
    "Ω_all",
    title="accuracy relative to joint training",
    higher_is_better=True,
    source=f"Kemker et al. (2018); {APPLICATION}, Table 5",
    needs=("quality", "joint"),
    aliases=["omega", "omega all", "CF"],
)
def omega_all(quality: float | Sequence[float], ideal: float) -> float:
    """The accuracy on all classes so far, relative to a network that learned everything at once.

    Formula: Ω_all = (1/(T−1)) Σ_{i≥2} α_all,i / α_ideal; with two tasks: best accuracy on both / joint
    Divisor: T − 1, all tasks but the first
    Direction: It can exceed 1.
    NaN: undefined where joint training has accuracy 0 or is not known
    Worked: .30 / .50

    The same study's CF flag: best accuracy on both tasks below .5 (D5-5, DP10-10) or .9 (D9-1).

    Args:
        quality: The accuracy on all classes so far, after each task from the second on.
        ideal: The accuracy of joint training.

    Example:
        >>> round(omega_all(0.30, 0.50), 6)
        0.6
    """
    if not ideal > 0:
        return np.nan
    return mean_of_known(np.atleast_1d(np.asarray(quality, dtype=np.float64)) / ideal)
