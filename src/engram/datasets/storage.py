"""Samples with labels, in memory or on disk, behind one interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from engram.core.cores import cores
from engram.core.errors import InputError
from engram.datasets.accounting import opened
from engram.datasets.formats import channels_first
from engram.datasets.pictures import decode


class Images(Protocol):
    """Samples with labels. Labels are always in memory; samples are read batch by batch.

    Attributes:
        labels: The class of each sample, int64.
        shape: The shape of one sample: channels, height, width for images.
    """

    labels: Tensor
    shape: tuple[int, ...]

    def __len__(self) -> int: ...

    def read(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """The samples at each batch of indices, as a tensor of uint8 (or float32) with samples first."""
        ...


class InMemory:
    """Samples in one stretch of memory, from which a batch is gathered in a single operation.

    Example:
        >>> pixels = torch.arange(8, dtype=torch.uint8).reshape(4, 1, 1, 2)
        >>> images = InMemory(pixels, torch.tensor([0, 1, 0, 1]))
        >>> [batch.flatten().tolist() for batch in images.read([torch.tensor([3, 0]), torch.tensor([1])])]
        [[6, 7, 0, 1], [2, 3]]
    """

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.pixels = pixels.contiguous()
        self.labels = labels.to(torch.int64)
        self.shape = tuple(pixels.shape[1:])

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """The samples at each batch of indices."""
        for indices in batches:
            yield self.pixels.index_select(0, indices)


class OnDisk:
    """Samples of a map-style PyTorch data set that stay where they are until a batch asks for them.

    They come through a DataLoader, decoded ahead by worker processes. Reading draws nothing from
    PyTorch's global generator, so that other randomness is unaffected.

    Args:
        samples: Gives one sample as a tensor of this shape for an index.
        labels: The class of each sample.
        shape: The shape of one sample.
        workers: How many processes read ahead; None for one per core, four at most; 0 for none.
    """

    def __init__(
        self,
        samples: TorchDataset[Tensor],
        labels: Tensor,
        shape: tuple[int, ...],
        *,
        workers: int | None = None,
    ) -> None:
        self.labels = labels.to(torch.int64)
        self.shape = shape
        self._samples = samples
        self._workers = min(4, cores()) if workers is None else workers

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """The samples at each batch of indices."""
        loader: DataLoader[Tensor | InputError] = DataLoader(
            _Reported(self._samples),
            batch_sampler=(indices.tolist() for indices in batches),
            num_workers=self._workers,
            collate_fn=partial(_stack, shape=self.shape),
            generator=torch.Generator(),
        )
        for batch in loader:
            if isinstance(batch, InputError):
                raise batch
            yield batch


class _Reported(TorchDataset["Tensor | InputError"]):
    """Samples, or the error of one: raised in a worker, it would reach the user as a traceback."""

    def __init__(self, samples: TorchDataset[Tensor]) -> None:
        self._samples = samples

    def __getitem__(self, index: int) -> Tensor | InputError:
        try:
            return self._samples[index]
        except InputError as error:
            return error


def _stack(samples: Sequence[Tensor | InputError], *, shape: tuple[int, ...]) -> Tensor | InputError:
    tensors = []
    for sample in samples:
        if isinstance(sample, InputError):
            return sample
        tensors.append(sample)
    return torch.stack(tensors) if tensors else torch.empty((0, *shape), dtype=torch.uint8)


class Pictures(TorchDataset[Tensor]):
    """Image files, decoded one by one to the same shape."""

    def __init__(self, paths: Sequence[str], shape: tuple[int, ...]) -> None:
        self._paths = paths
        self._shape = shape

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(decode(self._paths[index], self._shape)))

    def __len__(self) -> int:
        return len(self._paths)


class Mapped(TorchDataset[Tensor]):
    """The samples of an npy file, read through a memory map."""

    def __init__(self, path: Path) -> None:
        self._array = channels_first(np.load(path, mmap_mode="r", allow_pickle=False))
        self.shape: tuple[int, ...] = self._array.shape[1:]
        self.dtype = self._array.dtype

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(np.array(self._array[index]))

    def __len__(self) -> int:
        return len(self._array)


@dataclass(frozen=True)
class Dataset:
    """A data set that is ready to be read.

    Attributes:
        name: Its name.
        train: What is learned from.
        test: What is evaluated.
        classes: The names of the classes, in the order of their numbers.
        superclasses: The superclass of each class; empty where there are none.
        superclass_names: The names of the superclasses.
    """

    name: str
    train: Images
    test: Images
    classes: tuple[str, ...]
    superclasses: tuple[int, ...] = ()
    superclass_names: tuple[str, ...] = ()

    def __getattribute__(self, name: str) -> object:
        if name in ("train", "test"):
            # A method may hold a data set that was opened before its run.
            opened(super().__getattribute__("name"))
        return super().__getattribute__(name)
