"""Loading a data set by name: embedded, found on disk or downloaded; in memory if it fits."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engram.core.cache import cache_folder
from engram.core.dataset_info import DATASETS, DatasetInfo
from engram.core.errors import InputError
from engram.core.files import write_whole
from engram.datasets.accounting import opened
from engram.datasets.download import fetch
from engram.datasets.find import Copy, locate, not_found
from engram.datasets.folders import Files, Listing
from engram.datasets.formats import Arrays, Pixels, read_npz, reading
from engram.datasets.sources import PUBLISHED
from engram.datasets.storage import Dataset, Images, InMemory, Mapped, OnDisk, Pictures

OWN: dict[str, Callable[[int], Dataset]] = {}
"""The functions that open users' own data sets within a memory limit."""

_KEPT = 8
_READ_AT_ONCE = 256
_kept: OrderedDict[tuple[object, ...], Dataset] = OrderedDict()


def load(
    name: str, folder: Path | None = None, *, download: bool = True, memory_limit: int | None = None
) -> Dataset:
    """A data set by its name.

    It is looked for in `folder`, in the folder that `ENGRAM_DATA` names, and in the cache
    (`ENGRAM_CACHE`); if it is in none of them and can be downloaded, it is downloaded into the cache. The
    last few data sets stay in memory for the next call.

    Args:
        name: A name that `engram data` lists, or one that `arrays`, `torch_dataset` or `image_folder` gave.
        folder: Where to look first.
        download: Whether to download what is not found.
        memory_limit: How many bytes of samples may be in memory; larger data sets are read from disk as
            batches ask for them (default: `ENGRAM_MEMORY_LIMIT`, such as `2GB`, or else a third of the
            machine's memory).

    Raises:
        InputError: The name is unknown, or the data set is not found, or its files are broken.

    Example:
        >>> digits = load("digits")
        >>> len(digits.train), len(digits.test), digits.train.shape, digits.classes[:3]
        (1442, 355, (1, 8, 8), ('0', '1', '2'))
    """
    opened(name)
    info = DATASETS[name]
    limit = affordable_bytes() if memory_limit is None else memory_limit
    if name in OWN:
        return _keep((name, limit), lambda: OWN[name](limit), limit)
    if name == "digits":
        return _keep(("digits",), _digits, limit)
    copy = locate(name, folder)
    if copy is None:
        copy = _fetched(name, folder, download=download)
    state = copy.path.stat()
    key = (name, copy.path.resolve(), state.st_mtime_ns, state.st_size, limit)
    return _keep(key, lambda: _open(copy, info, limit), limit)


def forget(name: str) -> None:
    """Drop a data set from memory, because its name now stands for other data."""
    for key in [key for key in _kept if key[0] == name]:
        del _kept[key]


def _keep(key: tuple[object, ...], make: Callable[[], Dataset], limit: int) -> Dataset:
    """The data set of this key: one of the last few, which together stay within the limit, or a new one."""
    if key not in _kept:
        _kept[key] = make()
    _kept.move_to_end(key)
    while len(_kept) > 1 and (len(_kept) > _KEPT or sum(map(_bytes, _kept.values())) > limit):
        _kept.popitem(last=False)
    return _kept[key]


def _bytes(dataset: Dataset) -> int:
    # Past `__getattribute__`, which would record it as a read.
    parts = (vars(dataset)[name] for name in ("train", "test"))
    return sum(part.pixels.nbytes for part in parts if isinstance(part, InMemory))


def _fetched(name: str, folder: Path | None, *, download: bool) -> Copy:
    """The data set, downloaded into the cache."""
    if name not in PUBLISHED:
        raise not_found(name, folder)
    if not download:
        raise not_found(name, folder, reason="downloading is switched off")
    published = PUBLISHED[name]
    for remote in published.files:
        target = cache_folder() / published.folder / remote.file
        try:
            if not target.is_file():
                fetch(remote, target)
        except InputError as error:
            raise not_found(name, folder, reason=str(error)) from error
    copy = locate(name, folder)
    if copy is None:
        raise not_found(name, folder)
    return copy


def _digits() -> Dataset:
    """The 1,797 digits that scikit-learn ships; every fifth image of each digit is for testing.

    Its file is read directly: importing scikit-learn takes longer than a small run.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise InputError("digits come with scikit-learn, which is not installed: pip install scikit-learn")
    table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    y = table[:, -1].astype(np.int64)
    x = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    nth = np.zeros(len(y), np.int64)
    for label in range(10):
        nth[y == label] = np.arange(np.count_nonzero(y == label))
    test = nth % 5 == 4
    return _assemble(DATASETS["digits"], Arrays(x[~test], y[~test], x[test], y[test]))


def _open(copy: Copy, info: DatasetInfo, limit: int) -> Dataset:
    if copy.path.suffix == ".npz":
        with reading(copy.path), zipfile.ZipFile(copy.path) as archive:
            size = sum(m.file_size for m in archive.infolist() if m.filename in ("x_train.npy", "x_test.npy"))
        if size > limit:
            return _unpacked(copy, info)
    contents = copy.layout.read(copy.path)
    if isinstance(contents, Listing):
        return from_listing(info, contents, info.shape, limit=limit)
    top = max(int(contents.y_train.max()), int(contents.y_test.max()))
    if top >= info.classes:
        raise InputError(f"{copy.path} has label {top}, but {info.name} has {info.classes} classes")
    return _assemble(info, contents)


def _assemble(info: DatasetInfo, arrays: Arrays, parts: dict[str, Images] | None = None) -> Dataset:
    """A data set of these arrays; its names come from the copy, else from what is known, else are numbers."""
    ready = parts or {
        "train": in_memory(arrays.x_train, arrays.y_train),
        "test": in_memory(arrays.x_test, arrays.y_test),
    }
    count = 1 + max(int(arrays.y_train.max()), int(arrays.y_test.max()))
    known = info.class_names if len(info.class_names) == count else tuple(map(str, range(count)))
    names = arrays.classes if len(arrays.classes) >= count else known
    return Dataset(
        info.name,
        ready["train"],
        ready["test"],
        names,
        arrays.superclasses or info.superclasses,
        arrays.superclass_names or info.superclass_names,
    )


def in_memory(x: Pixels | Tensor, y: Pixels | Tensor) -> InMemory:
    """Arrays or tensors as samples in memory, sharing their memory where it is contiguous."""
    pixels = x if isinstance(x, Tensor) else _tensor(x)
    return InMemory(pixels, y if isinstance(y, Tensor) else _tensor(y))


def _tensor(array: Pixels) -> Tensor:
    # Arrays over the bytes of a file are read-only, and PyTorch has no such tensors.
    sound = np.ascontiguousarray(array)
    return torch.from_numpy(sound if sound.flags.writeable else sound.copy())


def _unpacked(copy: Copy, info: DatasetInfo) -> Dataset:
    """An npz that is larger than memory allows: its samples are unpacked into the cache once, and mapped."""
    arrays = read_npz(copy.path, classes=info.classes, skip=("x_train", "x_test"))
    state = copy.path.stat()
    version = f"{copy.path.resolve()} {state.st_size} {state.st_mtime_ns}"
    mark = hashlib.sha256(version.encode(errors="surrogateescape")).hexdigest()[:16]
    parts: dict[str, Images] = {}
    for part, labels in (("train", arrays.y_train), ("test", arrays.y_test)):
        target = cache_folder() / "unpacked" / f"{info.name}-{mark}" / f"x_{part}.npy"
        if not target.is_file():
            with reading(copy.path):
                write_whole(target, partial(_unpack, copy.path, target.name))
        samples = Mapped(target)
        if samples.dtype != np.uint8 or len(samples) != len(labels):
            raise InputError(
                f"x_{part} in {copy.path} must be {len(labels)} samples of uint8, one per label, "
                f"not {len(samples)} of {samples.dtype}"
            )
        parts[part] = OnDisk(samples, torch.from_numpy(labels), samples.shape)
    return _assemble(info, arrays, parts)


def _unpack(archive: Path, member: str, target: Path) -> None:
    with zipfile.ZipFile(archive) as packed, packed.open(member) as source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)


def from_listing(info: DatasetInfo, listing: Listing, shape: tuple[int, ...], *, limit: int) -> Dataset:
    """A data set of image files, decoded now if that fits within the limit, else when batches ask."""
    fits = (len(listing.train.paths) + len(listing.test.paths)) * int(np.prod(shape)) <= limit

    def part(files: Files) -> Images:
        disk = OnDisk(Pictures(files.paths, shape), torch.from_numpy(files.labels), shape)
        return gathered(disk) if fits else disk

    return Dataset(info.name, part(listing.train), part(listing.test), listing.classes)


def gathered(images: OnDisk) -> InMemory:
    """All samples, read once into memory."""
    pixels = torch.empty((0, *images.shape))
    for i, samples in enumerate(images.read(torch.split(torch.arange(len(images)), _READ_AT_ONCE))):
        if i == 0:
            pixels = samples.new_empty((len(images), *images.shape))
        start = i * _READ_AT_ONCE
        pixels[start : start + len(samples)] = samples
    return InMemory(pixels, images.labels)


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def affordable_bytes() -> int:
    """`ENGRAM_MEMORY_LIMIT`, or a third of the machine's memory (4 GB where that is unknown)."""
    text = os.environ.get("ENGRAM_MEMORY_LIMIT")
    if text:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip(), re.IGNORECASE)
        if match is None:
            raise InputError(f"ENGRAM_MEMORY_LIMIT must be a number of bytes like 500MB or 4GB, got {text!r}")
        return int(float(match[1]) * _UNITS[match[2].upper()])
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3
    return 4 * 10**9
