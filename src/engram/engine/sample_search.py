"""Whether rows that look like samples are samples: means of many are not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engram.datasets.stream import Stream
from engram.engine.reach import SHORT_INPUT, Array

ALIKE = 0.999
"""Rows whose correlation with a sample is above this are that sample, perhaps scaled or rounded."""
NEAR = 1e-4
"""Inputs of few values all correlate: rows are samples if they are nearer than this part of their length."""
READ_AT_ONCE = 4096
FROM_DISK = 4096
"""So many samples are compared if samples have to be read from disk."""
MOST_ROWS = 256
"""So many rows are searched for at most; of more rows, one in every 2, 3, 4, …"""


class SampleSearch:
    """Counts the rows of arrays that are training samples of the tasks up to a phase.

    A row is a sample if its values correlate with those of a sample. Scaling, shifting and rounding do not
    change that; a mean image, the means of classes, weights and projectors are no samples. Rows of inputs of
    few values, which all correlate, are samples if they are equal. Of many rows, and of many samples on disk,
    some are compared, and the count is scaled.

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
        in_memory, from_disk = torch.zeros(2, len(rows), dtype=torch.bool)
        for data in tables:
            known, each = (in_memory, 1) if data.in_memory else (from_disk, skip)
            for places in torch.arange(0, len(data), each).split(READ_AT_ONCE):
                known |= _are_among(rows, data.prepared(places).reshape(-1, size))
        found = int(in_memory.sum()) + int((from_disk & ~in_memory).sum()) * skip
        return min(several, found * step)


def _varied_rows(values: Array, size: int) -> Tensor:
    """The rows of an array but those with the same value everywhere, such as free places of a memory.

    A symmetric matrix has none.
    """
    try:
        rows = _tensor(values).reshape(-1, size)
        # Moments: where a pixel is bright in a single sample, its row is that sample, scaled.
        symmetric = len(rows) == size and torch.allclose(rows.double(), rows.T.double())
        return rows[:0] if symmetric else rows[rows.amax(dim=1) != rows.amin(dim=1)]
    except (RuntimeError, TypeError, ValueError):
        # What has no values, such as tensors on the meta device, texts and dates, has no samples.
        return torch.zeros(0, size)


def _tensor(values: Array) -> Tensor:
    """The values of an array in memory, of a type that can be compared."""
    if isinstance(values, np.ndarray):
        native = values.dtype.newbyteorder("=")
        widest = np.dtype(_WIDEST.get(native.kind, native))
        kind = native if native.itemsize <= widest.itemsize else widest
        tensor = torch.from_numpy(np.array(values, dtype=kind))
    else:
        tensor = values.detach()
    tensor = tensor.dequantize() if tensor.is_quantized else tensor
    tensor = (tensor if tensor.layout == torch.strided else tensor.to_dense()).cpu()
    if not tensor.untyped_storage().nbytes():
        raise TypeError("the memory of this tensor was given up")
    tensor = tensor.real if tensor.is_complex() else tensor
    return tensor if tensor.dtype in _COMPARED else tensor.double()


_WIDEST = {"f": np.float64, "c": np.complex128}
"""The widest numbers that PyTorch knows."""
_COMPARED = frozenset(
    (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
)
"""The types of which PyTorch finds the largest value."""


def _every(step: int, parts: Sequence[Tensor]) -> Tensor:
    """One in `step` of all rows."""
    chosen, start = [], 0
    for part in parts:
        chosen.append(part[-start % step :: step].double())
        start += len(part)
    return torch.cat(chosen)


def _are_among(rows: Tensor, samples: Tensor) -> Tensor:
    """Which rows are samples."""
    if rows.shape[1] < SHORT_INPUT:
        near: Tensor = torch.cdist(rows, samples.double()).amin(dim=1) <= NEAR * rows.norm(dim=1)
        return near
    return (_centred(rows) @ _centred(samples).T).amax(dim=1) > ALIKE


def _centred(rows: Tensor) -> Tensor:
    """Rows with mean 0 and length 1, so that products are correlations."""
    rows = rows.double()
    rows = rows - rows.mean(dim=1, keepdim=True)
    scaled: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return scaled
