"""What a network's features say about its ability to go on learning. NumPy only."""

from __future__ import annotations

import numpy as np

from engram.core.errors import InputError
from engram.metrics.arrays import Matrix

DORMANT = 0.01
"""A unit is dormant if its mean activation is at most this share of the layer's mean."""


def dormant_units(activations: Matrix, *, threshold: float = DORMANT) -> float:
    """The share of units whose mean absolute activation is almost 0 compared with the others of their layer.

    The score of a unit is its mean absolute activation over samples, divided by the mean of these over all
    units; it is dormant if its score is at most `threshold`. With a threshold of 0, dead units are counted.
    1 if all units are silent.

    Source: Sokar et al. (2023), Definition 3.1; Dohare et al. (2024) follow dead units over tasks.

    Args:
        activations: One row per sample, one column per unit.
        threshold: The highest score of a dormant unit.

    Raises:
        InputError: There are no samples or no units.

    Example:
        >>> dormant_units(np.array([[1.0, 0.0, 2.0, 0.0], [3.0, 0.0, 2.0, 0.0]]))
        0.5
    """
    _check(activations)
    score = np.abs(activations).mean(axis=0)
    return float((score <= threshold * score.mean()).mean())


def effective_rank(features: Matrix) -> float:
    """In how many directions features vary: the exponential of the entropy of their singular values.

    With the singular values divided by their sum as p: exp(−Σ p ln p). Between 1 and the number of features;
    1 if all samples have proportional features, 0 if all features are 0. The features are not centred.

    Source: Roy and Vetterli (2007); Dohare et al. (2024) follow it over tasks.

    Args:
        features: One row per sample, one column per feature.

    Raises:
        InputError: There are no samples or no features.

    Example:
        >>> round(effective_rank(np.eye(3)), 6), round(effective_rank(np.ones((5, 3))), 6)
        (3.0, 1.0)
    """
    _check(features)
    values = np.linalg.svd(features, compute_uv=False)
    if values.sum() <= 0:
        return 0.0
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _check(values: Matrix) -> None:
    if values.ndim != 2 or not values.size:
        raise InputError(
            f"features must have one row per sample and one column per unit, got shape {values.shape}"
        )
