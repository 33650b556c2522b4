"""Fingerprints of test sets: hashes that tell whether two runs were evaluated on the same samples."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from engram.evaluation.batch_sets import BatchSet
from engram.evaluation.batches import digest, labels_of, pick
from engram.evaluation.guard import same_randomness
from engram.evaluation.samples import EvaluationSet, chunks
from engram.record.test_data import TestData

HASHED_BYTES = 2**30
"""A larger test set, and one that is not in memory, is judged by its labels and a few inputs."""

FEW = 16
_CHUNK = 1024


@runtime_checkable
class Stored(Protocol):
    """A test set whose samples are prepared for the network, and can also be read as they are stored."""

    def stored(self, index: Tensor) -> Tensor:
        """Some inputs, before they are prepared."""


def fingerprint(data: EvaluationSet | BatchSet, chosen: Tensor | None) -> TestData:
    """The fingerprint of a test set.

    Samples are hashed one by one, input and label together, and the sorted hashes are hashed, so that the
    order of samples does not count. The inputs of a test set that is not in memory, or is very large, are
    not all read: 16 evenly spaced ones stand for it, and all labels. Global random states are left unchanged.

    Args:
        data: The test set.
        chosen: The samples that were drawn for evaluation; None where they are drawn again and again.

    Example:
        >>> from engram.evaluation.samples import TensorSet
        >>> x, y = torch.eye(4), torch.tensor([0, 1, 2, 3])
        >>> one = fingerprint(TensorSet(x, y), None)
        >>> one.differs(fingerprint(TensorSet(x.flip(0), y.flip(0)), None))
        False
        >>> one.differs(fingerprint(TensorSet(x.flip(0), y), None))
        True
    """
    if isinstance(data, BatchSet):
        return _of_batches(data, chosen)
    y = data.y.cpu()
    everything = torch.arange(len(y))
    with same_randomness():
        # A data set that draws something for every sample draws the same in every run.
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        whole = data.in_memory and _bytes(data) <= HASHED_BYTES
        index = everything if whole else everything[:: -(-len(y) // FEW)]
        samples = _hashes(data, y, index)
    content = _combined(sorted(samples))
    if chosen is None:
        evaluated = None
    elif whole:
        evaluated = _combined(sorted(samples[place] for place in chosen.tolist()))
    else:
        evaluated = _combined([content.encode(), chosen.numpy().tobytes()])
    labels = _combined([y.sort().values.numpy().tobytes()])
    return TestData(len(y), labels, len(index), content, evaluated)


def _of_batches(data: BatchSet, chosen: Tensor | None) -> TestData:
    """The fingerprint of batches, whose inputs may be anything; padding is part of a sample."""
    samples, labels = [], []
    for batch, size in zip(data.batches, np.diff(data.ends).tolist(), strict=True):
        for row in range(size):
            one = pick(batch, slice(row, row + 1), of=size)
            samples.append(digest(one))
            labels.append(digest(labels_of(one)))
    evaluated = None if chosen is None else _combined(sorted(samples[place] for place in chosen.tolist()))
    content = _combined(sorted(samples))
    return TestData(len(samples), _combined(sorted(labels)), len(samples), content, evaluated)


def _bytes(data: EvaluationSet) -> int:
    one = _inputs(data, torch.arange(1))
    return len(data.y) * one.numel() * one.element_size()


def _inputs(data: EvaluationSet, index: Tensor) -> Tensor:
    # Prepared inputs may differ in their last digit from machine to machine; stored ones do not.
    return data.stored(index) if isinstance(data, Stored) else data.rows(index)


def _hashes(data: EvaluationSet, y: Tensor, index: Tensor) -> list[bytes]:
    """One hash per sample."""
    hashes: list[bytes] = []
    for part in chunks(len(index), _CHUNK):
        x = _inputs(data, index[part]).detach().cpu().contiguous()
        kind = f"{x.dtype} {tuple(x.shape[1:])} ".encode()
        rows = x.reshape(len(x), -1).view(torch.uint8).numpy()
        for row, label in zip(rows, y[index[part]].tolist(), strict=True):
            one = hashlib.blake2b(kind + b"%d " % label, digest_size=16)
            one.update(row)
            hashes.append(one.digest())
    return hashes


def _combined(parts: Iterable[bytes]) -> str:
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()
