"""Feature diversity: how much room a representation leaves between classes."""

import numpy as np
from numpy.typing import ArrayLike

from engram.core.errors import InputError
from engram.metrics.arrays import Matrix
from engram.metrics.registry import metric
from engram.metrics.sources import FORWARD


@metric(
    "FDiv",
    title="feature diversity",
    higher_is_better=True,
    source=f"{FORWARD}, section 2 and Eq. 3, with the class weights that the printed formula lacks",
    needs=("features", "labels"),
    aliases=["feature diversity", "AvgFDiv"],
)
def feature_diversity(
    features: Matrix,
    labels: ArrayLike,
    *,
    epsilon: float = 0.5,
    weighted: bool = True,
    half: bool = False,
) -> float:
    """The volume that the features of all classes span beyond what each class spans on its own.

    Formula: log det(I + α ΨᵀΨ) − Σ_c (m_c/m) log det(I + α_c Ψ_cᵀΨ_c), α = D/(m ε²), α_c = D/(m_c ε²)
    Divisor: none; AvgFDiv is the mean over all tasks but the first
    Direction: A higher value is more diverse; it is never negative, and 0 for one class.
    NaN: undefined without features
    Worked: 4.147740 − 3/7 · 2.872434 − 4/7 · 2.720292

    The logarithm is the natural one; m samples have D features, and m_c of them are of class c. AvgFDiv is
    the mean over all tasks but the first, on the features that the network had before learning each.

    Without the weights m_c/m, as the formula is printed, it can never be positive, though every published
    value is; `weighted=False` computes that. The rate reduction on which it builds has a factor of one half;
    `half=True` includes it.

    Args:
        features: One row per sample, one column per feature.
        labels: The class of each sample.
        epsilon: The precision ε up to which features are distinguished.
        weighted: Whether classes count by their share of samples.
        half: Whether the result is halved.

    Raises:
        InputError: The shapes do not match, there are no samples, a feature is NaN or infinite, or ε is not
            positive.

    Example:
        >>> apart = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> round(feature_diversity(apart, [0, 0, 1, 1]), 6)
        1.021651
        >>> round(feature_diversity(apart, [0, 0, 0, 0]), 6)
        0.0
    """
    rows = np.asarray(features, dtype=np.float64)
    classes = np.asarray(labels)
    if rows.ndim != 2 or not rows.size or classes.shape != rows.shape[:1]:
        raise InputError(
            "features must have one row and labels one entry per sample, "
            f"got shapes {rows.shape} and {classes.shape}"
        )
    if not np.isfinite(rows).all():
        raise InputError("features must be finite, got NaN or infinite values")
    if not epsilon > 0:
        raise InputError(f"epsilon must be positive, got {epsilon:g}")
    diversity = _log_volume(rows, epsilon)
    for label in np.unique(classes):
        members = rows[classes == label]
        share = len(members) / len(rows) if weighted else 1.0
        diversity -= share * _log_volume(members, epsilon)
    return diversity / 2 if half else diversity


def _log_volume(rows: Matrix, epsilon: float) -> float:
    samples, width = rows.shape
    alpha = width / (samples * epsilon**2)
    # By Sylvester's identity both Gram matrices give the same determinant; the smaller one is cheaper.
    gram: Matrix = rows @ rows.T if samples < width else rows.T @ rows
    return float(np.linalg.slogdet(np.eye(len(gram)) + alpha * gram).logabsdet)
