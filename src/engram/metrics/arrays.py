"""Array types, and means that skip NaN."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
"""One number per task, evaluation or seed; NaN where it is unknown."""

Matrix = NDArray[np.float64]
"""`acc[learned, evaluated]`, or one row per evaluation and one column per task; NaN where it is unknown."""

Mask = NDArray[np.bool_]
"""A selection of the cells of a vector or matrix."""

Labels: TypeAlias = NDArray[Any]
"""Tasks as a table names them: integers or text."""

Label: TypeAlias = int | str
"""One of these names."""


def row_means(values: Matrix) -> Vector:
    """The mean of each row, ignoring NaN; NaN, without a warning, for a row of NaN.

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
    """The mean, ignoring NaN; NaN, without a warning, if all values are NaN.

    Example:
        >>> mean_of_known(np.array([1.0, np.nan, 2.0]))
        1.5
    """
    return float(row_means(values[np.newaxis])[0])
