"""Whether rows that look like samples are samples: means of many are not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engram.datasets.stream import Stream
from engram.engine.reach import Array

ALIKE = 0.999
"""Rows whose correlation with a sample is above this are that sample, perhaps scaled or rounded."""
READ_AT_ONCE = 4096
FROM_DISK = 4096
"""So many samples are compared if samples have to be read from disk."""
MOST_ROWS = 256
"""So many rows are searched for at most; of more rows, one in every 2, 3, 4, …"""


class SampleSearch:
    """Counts the rows of arrays that are training samples of the tasks up to a phase.

    A row is a sample if its values correlate with those of a sample. Scaling, shifting and rounding do not
    change that; a mean image, the means of classes, weights and projectors are no samples. Of many rows, and
    of many samples on disk, some are compared, and the count is scaled.

    Args:
        stream: The data.

    Example:
        >>> from engram.scenarios import split
        >>> stream = Stream(split("digits", setting="class"))
        >>> images = stream.train(0).prepared(torch.arange(100))
        >>> search = SampleSearch(stream)
        >>> search([images[:3]], 0), search([images.mean(dim=0)], 0)
        (3, 0)
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __call__(self, arrays: Sequence[Array], phase: int) -> int:
        """How many rows of the arrays are samples of the tasks up to a phase."""
        size = math.prod(self.stream.shape)
        parts = [_varied_rows(values, size) for values in arrays]
        several = sum(map(len, parts))
        if not several:
            return 0
        step = -(-several // MOST_ROWS)
        rows = _every(step, parts)
        scenario = self.stream.scenario
        tasks = sorted({task for tasks in scenario.phases[: phase + 1] for task in tasks})
        tables = [self.stream.train(task) for task in tasks]
        on_disk = sum(len(data) for data in tables if not data.in_memory)
        skip = max(1, -(-on_disk // FROM_DISK))
        known = torch.zeros(len(rows), dtype=torch.bool)
        for data in tables:
            for places in torch.arange(0, len(data), 1 if data.in_memory else skip).split(READ_AT_ONCE):
                samples = _centred(data.prepared(places).reshape(-1, size))
                known |= (rows @ samples.T).amax(dim=1) > ALIKE
        return min(several, int(known.sum()) * step * skip)


def _varied_rows(values: Array, size: int) -> Tensor:
    """The rows of an array that do not have the same value everywhere, such as free places of a memory."""
    array = values.detach() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    array = (array if array.layout == torch.strided else array.to_dense()).cpu()
    rows = (array.real if array.is_complex() else array).reshape(-1, size)
    return rows[rows.amax(dim=1) != rows.amin(dim=1)]


def _every(step: int, parts: Sequence[Tensor]) -> Tensor:
    """One in `step` of all rows, centred."""
    chosen, start = [], 0
    for part in parts:
        chosen.append(_centred(part[-start % step :: step]))
        start += len(part)
    return torch.cat(chosen)


def _centred(rows: Tensor) -> Tensor:
    """Rows with mean 0 and length 1, so that products are correlations."""
    rows = rows.double()
    rows = rows - rows.mean(dim=1, keepdim=True)
    scaled: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return scaled
