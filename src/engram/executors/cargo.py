"""What runs on other machines need: files that travel by the hash of their content, once to each machine.

Data sets, plugin files and weights are all files. A machine keeps what it got in its cache (`ENGRAM_CACHE`),
under the hash of the content; what is there already is not sent again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from engram.core.cache import cache_folder
from engram.core.dataset_info import DatasetInfo
from engram.core.errors import InputError
from engram.core.files import as_input_error, checksum, make_folder, temporary_path
from engram.core.plugins import load_plugin
from engram.datasets import Dataset
from engram.executors.shared_data import SharedImages, adopt, datasets_of, share
from engram.record.experiment import Experiment

_MONTH = 30 * 24 * 3600

Fetch = Callable[[str], bytes | memoryview]
"""Gets a file's content by its SHA-256."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A folder of files, by the hash of each.

    Attributes:
        files: For each file name the SHA-256 of its content.
    """

    files: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The hash of all of it."""
        return checksum(repr(self.files).encode())

    def unpack(self, fetch: Fetch) -> Path:
        """The folder with these files in this machine's cache; what is not there is fetched and checked.

        Raises:
            InputError: It cannot be written, or what came is not what was sent.
        """
        place = cache_folder() / "cargo" / self.name
        if place.is_dir():
            with suppress(OSError):
                os.utime(place)
            return place
        make_folder(place.parent)
        _remove_old(place.parent)
        beside = temporary_path(place)
        try:
            with as_input_error(f"cannot write to {place.parent}", "; set ENGRAM_CACHE to another folder"):
                beside.mkdir()
                for name, sha256 in self.files:
                    content = fetch(sha256)
                    if checksum(content) != sha256:
                        raise InputError(f"{name} is not what was sent to this machine: its hash differs")
                    (beside / name).write_bytes(content)
                # Another process of this machine may have been faster.
                with suppress(FileExistsError, OSError):
                    beside.rename(place)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        return place


@dataclass(frozen=True, slots=True)
class PackedDataset:
    """A data set on its way: everything but its samples, and where those are.

    Attributes:
        info: What is registered under its name.
        fields: The other fields of `Dataset`.
        parts: The parcels of `train` and `test`.
    """

    info: DatasetInfo
    fields: tuple[tuple[str, str | tuple[str, ...] | tuple[int, ...]], ...]
    parts: tuple[tuple[str, Parcel], ...]

    def unpack(self, fetch: Fetch) -> tuple[DatasetInfo, Dataset]:
        """The data set, with samples that all processes of this machine map from the same files."""
        parts = {part: SharedImages(parcel.unpack(fetch)) for part, parcel in self.parts}
        return self.info, Dataset(**dict(self.fields), **parts)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Cargo:
    """Everything that the experiments of a sweep need elsewhere.

    Attributes:
        datasets: The data sets that are in memory; those that are read from disk must be on every machine.
        plugin: The plugin file.
        weights: The files of weights that experiments start from, by their SHA-256.
    """

    datasets: tuple[PackedDataset, ...]
    plugin: Parcel | None
    weights: tuple[tuple[str, Parcel], ...]

    def install(self, fetch: Fetch) -> None:
        """On another machine: register the data sets, and load the plugin."""
        adopt(tuple(packed.unpack(fetch) for packed in self.datasets))
        if self.plugin is not None:
            load_plugin(self.plugin.unpack(fetch) / self.plugin.files[0][0])

    def start_of(self, experiment: Experiment, fetch: Fetch) -> Experiment:
        """The experiment with its weights on this machine."""
        start = experiment.start
        if start is None:
            return experiment
        parcel = dict(self.weights)[start.sha256]
        return replace(experiment, start=replace(start, file=parcel.unpack(fetch) / parcel.files[0][0]))


class Packer:
    """Packs files, and knows where the content of each is on this machine.

    Attributes:
        places: The path of every packed file, by its SHA-256.
    """

    def __init__(self) -> None:
        self.places: dict[str, Path] = {}

    def parcel(self, files: Iterable[Path]) -> Parcel:
        """A parcel of these files.

        Raises:
            InputError: One cannot be read.
        """
        hashes = []
        for file in files:
            with as_input_error(f"cannot read {file}"):
                sha256 = checksum(file.read_bytes())
            self.places[sha256] = file
            hashes.append((file.name, sha256))
        return Parcel(tuple(hashes))

    def pack(
        self, experiments: Sequence[Experiment], place: Path, *, data: Path | None, plugin: Path | None
    ) -> Cargo:
        """Pack what experiments need.

        Args:
            experiments: The experiments.
            place: A folder for the samples of data sets, needed as long as they may be fetched.
            data: The folder that is searched for data sets first.
            plugin: The plugin file.

        Example:
            >>> import tempfile
            >>> from engram.engine.recipe import experiment
            >>> packer, place = Packer(), Path(tempfile.mkdtemp())
            >>> cargo = packer.pack([experiment("split-digits", "er")], place, data=None, plugin=None)
            >>> [packed.info.name for packed in cargo.datasets], len(packer.places)
            (['digits'], 4)
        """
        datasets = [
            self._dataset(info, dataset)
            for info, dataset in share(datasets_of(experiments), place, data=data)
            if all(isinstance(part, SharedImages) for part in (dataset.train, dataset.test))
        ]
        starts = {planned.start.sha256: planned.start for planned in experiments if planned.start is not None}
        weights = []
        for sha256, start in starts.items():
            # A file that is gone or has changed fails the runs that start from it, not all of them.
            with suppress(InputError):
                weights.append((sha256, self.parcel([start.file])))
        return Cargo(
            tuple(datasets), None if plugin is None else self.parcel([plugin.absolute()]), tuple(weights)
        )

    def _dataset(self, info: DatasetInfo, dataset: Dataset) -> PackedDataset:
        parts = []
        for name, part in (("train", dataset.train), ("test", dataset.test)):
            assert isinstance(part, SharedImages)
            parts.append((name, self.parcel([part.folder / "pixels.npy", part.folder / "labels.npy"])))
        names = ("name", "classes", "superclasses", "superclass_names")
        return PackedDataset(info, tuple((name, getattr(dataset, name)) for name in names), tuple(parts))


def _remove_old(cache: Path) -> None:
    """Remove what was not used for a month, and what processes that have ended left."""
    with suppress(OSError):
        for place in cache.iterdir():
            if time.time() - place.stat().st_mtime > _MONTH:
                shutil.rmtree(place, ignore_errors=True)
