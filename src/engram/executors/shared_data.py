"""Data sets that all processes share: loaded once, and mapped into the memory of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from engram.core.dataset_info import DATASETS, DatasetInfo
from engram.datasets import Dataset, InMemory, load
from engram.datasets.loading import OWN
from engram.datasets.storage import Images
from engram.record.experiment import Experiment


def datasets_of(experiments: Iterable[Experiment]) -> list[str]:
    """The names of all data sets that experiments need.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> datasets_of([experiment("split-digits", "er")])
        ['digits']
    """
    planned = list(experiments)
    streamed = {task.source.dataset for experiment in planned for task in experiment.scenario.tasks}
    return sorted(streamed | {experiment.evaluation.upstream for experiment in planned} - {""})


class SharedImages(InMemory):
    """Samples in files that processes map into their memory, so that together they hold a single copy.

    A process that writes to them gets its own copy of the pages; the others are not affected. Pickled, they
    are a path.

    Example:
        >>> import pickle, tempfile
        >>> place = tempfile.TemporaryDirectory()
        >>> images = InMemory(torch.arange(4, dtype=torch.uint8).view(2, 1, 1, 2), torch.tensor([0, 1]))
        >>> shared = pickle.loads(pickle.dumps(SharedImages.of(images, Path(place.name) / "test")))
        >>> shared.pixels.flatten().tolist(), shared.labels.tolist()
        ([0, 1, 2, 3], [0, 1])
        >>> place.cleanup()
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(_mapped(folder / "pixels.npy"), _mapped(folder / "labels.npy"))

    @classmethod
    def of(cls, images: InMemory, folder: Path) -> SharedImages:
        """Write samples to a new folder and map them; `images` then uses the map instead of its own copy."""
        folder.mkdir(parents=True)
        np.save(folder / "pixels.npy", images.pixels.numpy())
        np.save(folder / "labels.npy", images.labels.numpy())
        shared = cls(folder)
        images.pixels, images.labels = shared.pixels, shared.labels
        return shared

    def __reduce__(self) -> tuple[type[SharedImages], tuple[Path]]:
        return type(self), (self.folder,)


def _mapped(path: Path) -> torch.Tensor:
    # Mode "c" is copy-on-write: no worker can change what the others read.
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


Shared = tuple[tuple[DatasetInfo, Dataset], ...]


def share(names: Iterable[str], place: Path, *, data: Path | None = None) -> Shared:
    """Load data sets, and write their samples to files that other processes map instead of copying them.

    Data sets that are read from disk in any case are left out, because every process can read them there;
    except a user's own, which only this process knows.

    Args:
        names: The names of the data sets.
        place: The folder for the files; needed as long as processes are started.
        data: The folder that is searched for data sets first.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     ((info, digits),) = share(["digits"], Path(place))
        >>> info.name, type(digits.test).__name__
        ('digits', 'SharedImages')
    """
    shared = []
    for name in names:
        loaded = load(name, data)
        parts: dict[str, Images] = {
            part: SharedImages.of(images, place / name / part) if isinstance(images, InMemory) else images
            for part, images in (("train", loaded.train), ("test", loaded.test))
        }
        if name in OWN or all(isinstance(images, InMemory) for images in parts.values()):
            shared.append((DATASETS[name], replace(loaded, train=parts["train"], test=parts["test"])))
    return tuple(shared)


def adopt(datasets: Shared) -> None:
    """In a worker: register shared data sets under their names."""
    for info, dataset in datasets:
        DATASETS.add(info.name, info)
        OWN[info.name] = partial(_same, dataset)


def _same(dataset: Dataset, _limit: int) -> Dataset:
    return dataset
