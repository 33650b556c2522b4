"""Whether rows that look like samples are samples: means of many are not."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from engram.datasets.stream import Stream
from engram.engine.reach import Array

ALIKE = 0.999
"""Rows whose correlation with a sample is above this are that sample, perhaps scaled or rounded."""
READ_AT_ONCE = 4096


class SampleSearch:
    """Counts the rows of an array that are training samples of the tasks up to a phase.

    A row is a sample if its values correlate with those of a sample. Scaling, shifting and rounding do not
    change that; a mean image, and the means of classes, are no samples. Where samples are not in memory,
    every row counts.

    Args:
        stream: The data.

    Example:
        >>> from engram.scenarios import split
        >>> stream = Stream(split("digits", setting="class"))
        >>> images = stream.train(0).prepared(torch.arange(100))
        >>> search = SampleSearch(stream)
        >>> search(images[:3], 0), search(images.mean(dim=0), 0)
        (3, 0)
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __call__(self, values: Array, phase: int) -> int:
        """How many rows of an array are samples of the tasks up to a phase."""
        size = math.prod(self.stream.shape)
        array = values.detach().cpu() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
        rows = _centred(array.reshape(-1, size))
        known = torch.zeros(len(rows), dtype=torch.bool)
        scenario = self.stream.scenario
        for task in sorted({task for tasks in scenario.phases[: phase + 1] for task in tasks}):
            data = self.stream.train(task)
            if not data.in_memory:
                return len(rows)
            for places in torch.arange(len(data)).split(READ_AT_ONCE):
                samples = _centred(data.prepared(places).reshape(-1, size))
                known |= (rows @ samples.T).amax(dim=1) > ALIKE
        return int(known.sum())


def _centred(rows: Tensor) -> Tensor:
    """Rows with mean 0 and length 1, so that products are correlations."""
    rows = rows.double()
    rows = rows - rows.mean(dim=1, keepdim=True)
    scaled: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return scaled
