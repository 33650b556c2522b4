"""Array types, and means that skip what is not known."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
"""One number per task, evaluation or seed; NaN where it is not known."""

Matrix = NDArray[np.float64]
"""`acc[learned, evaluated]`, or one row per evaluation and one column per task; NaN where it is not known."""

Mask = NDArray[np.bool_]
"""Which cells of a vector or matrix are meant."""


def row_means(values: Matrix) -> Vector:
    """The mean of what is not NaN in each row; NaN, without a warning, where nothing is known.

    Example:
        >>> row_means(np.array([[1.0, np.nan, 2.0], [np.nan, np.nan, np.nan]]))
        array([1.5, nan])
    """
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    means: Vector = np.full(len(values), np.nan)
    np.divide(np.where(known, values, 0.0).sum(axis=1), count, out=means, where=count > 0)
    return means


def mean_of_known(values: Vector) -> float:
    """The mean of what is not NaN; NaN, without a warning, where nothing is known.

    Example:
        >>> mean_of_known(np.array([1.0, np.nan, 2.0]))
        1.5
    """
    return float(row_means(values[np.newaxis])[0])
