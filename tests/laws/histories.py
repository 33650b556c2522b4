"""Evaluation histories and accuracy matrices for Hypothesis to play with."""

import numpy as np
from hypothesis import strategies as st

from engram.metrics.arrays import Matrix
from engram.metrics.curve import Curve

# Eighths are exact in binary and make ties, which is where running extrema go wrong.
FRACTIONS = st.integers(0, 8).map(lambda eighths: eighths / 8)
CELLS = st.one_of(FRACTIONS, FRACTIONS, FRACTIONS, st.just(np.nan))


@st.composite
def curves(draw: st.DrawFn, *, gaps: bool = True, revisits: bool = True, together: bool = True) -> Curve:
    """A history with tasks that enter late, are skipped, learned again or learned together."""
    sizes = draw(st.lists(st.integers(1, 2) if together else st.just(1), min_size=1, max_size=4))
    ends = np.cumsum(sizes)
    phases = tuple(tuple(range(end - size, end)) for end, size in zip(ends, sizes, strict=True))
    learning: list[int] = [0]
    for _ in range(draw(st.integers(0, 24))):
        fresh = min(max(learning) + 1, len(phases) - 1)
        again = draw(st.integers(0, fresh)) if revisits else fresh
        learning.append(draw(st.sampled_from([learning[-1], learning[-1], again])))
    n, width = len(learning), int(ends[-1])
    cells = CELLS if gaps else FRACTIONS
    accuracy = np.array(draw(st.lists(cells, min_size=n * width, max_size=n * width))).reshape(n, width)
    first_step = draw(st.integers(0, 1))
    return Curve(
        step=np.arange(first_step, first_step + n),
        learning=np.array(learning),
        accuracy=accuracy,
        phases=phases,
    )


@st.composite
def matrices(draw: st.DrawFn, *, gaps: bool = False) -> Matrix:
    """A square accuracy matrix, NaN above the diagonal."""
    size = draw(st.integers(1, 6))
    cells = CELLS if gaps else FRACTIONS
    values = np.array(draw(st.lists(cells, min_size=size * size, max_size=size * size))).reshape(size, size)
    return np.where(np.tril(np.ones((size, size), dtype=np.bool_)), values, np.nan)
