"""Users' own files as data sets: npz, CSV and Parquet, and folders of images.

A file is read when an experiment is planned, because the id of the experiment depends on what is in it: the
registered name ends in the first eight digits of a hash of all samples and labels.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engram.core.dataset_info import DATASETS, InputKind
from engram.core.errors import InputError
from engram.datasets.folders import class_folders, images_in
from engram.datasets.formats import Labels, Pixels, reading
from engram.datasets.inputs import as_inputs
from engram.datasets.labels import held_out_rows, label_values, number_classes
from engram.datasets.loading import affordable_bytes, load
from engram.datasets.register import arrays, image_folder
from engram.datasets.table_files import read_table

TEST_SHARE = 0.2
"""The share of every class that is kept for testing, where the data have no test samples of their own."""

SEED = 0
"""Draws that share; the same for every run, whatever its seed."""

TABLES = (".csv", ".tsv", ".parquet")
KINDS = "an .npz file, a table (.csv, .tsv, .parquet), or a folder with one folder of images per class"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is read.

    Attributes:
        label: The column of a table that has the labels (default: `label`).
        features: The columns that are inputs (default: all others).
        inputs: What a sample is (default: judged by its type and axes).
        test_share: The share of every class that is kept for testing, where the file has only one part.
        size: Height and width that the images of a folder are scaled and cut to (default: the first one's).
    """

    label: str | None = None
    features: tuple[str, ...] = ()
    inputs: InputKind | None = None
    test_share: float | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Samples with their labels, as a file has them."""

    x: Pixels
    y: Pixels


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a file: samples to learn from, samples to test with if it has them, names of classes."""

    train: Part
    test: Part | None = None
    names: tuple[str, ...] = ()


def own_file(path: Path, how: Reading | None = None) -> str:
    """Register the data in a user's own file or folder, and return their name.

    Args:
        path: The file: an npz with `x_train, y_train, x_test, y_test` (or `x, y`, optionally `classes`), a
            table with a column of labels, or a folder of images, one folder per class.
        how: How it is read.

    Raises:
        InputError: It cannot be read, or is not laid out like this.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "flowers.csv"
        >>> _ = place.write_text("petal,kind\\n" + "1.5,rose\\n" * 5 + "0.5,lily\\n" * 5)
        >>> info = DATASETS[own_file(place, Reading(label="kind"))]
        >>> info.name.startswith("flowers-"), info.class_names, info.train, info.test, info.note
        (True, ('lily', 'rose'), 8, 2, '20 % of each class held out for testing, seed 0')
    """
    place = path.expanduser().absolute()
    if not place.exists():
        raise InputError(f"no such file: {path}; give {KINDS}")
    wanted = how or Reading()
    if wanted.test_share is not None and not 0 < wanted.test_share < 1:
        raise InputError(f"test_share must be above 0 and below 1, got {wanted.test_share:g}")
    return _registered(place, wanted, signature(place))


@lru_cache(maxsize=256)
def _registered(place: Path, how: Reading, _signature: str) -> str:
    return _folder(place, how) if place.is_dir() else _file(place, how)


def is_table(path: Path) -> bool:
    """Whether a file is a table, which has columns.

    Example:
        >>> is_table(Path("flowers.CSV")), is_table(Path("letters.npz"))
        (True, False)
    """
    return path.suffix.lower() in TABLES


def fitting(path: Path, how: Reading) -> Reading:
    """How a file is read where several are read alike: columns are for tables, a size is for folders.

    Example:
        >>> fitting(Path("letters.npz"), Reading(label="kind", inputs="image"))
        Reading(label=None, features=(), inputs='image', test_share=None, size=None)
    """
    if path.is_dir():
        return replace(how, label=None, features=(), inputs=None)
    return replace(how, size=None) if is_table(path) else replace(how, label=None, features=(), size=None)


def signature(place: Path) -> str:
    """What changes when a file, or any file in a folder, is changed: sizes and times; nothing is read."""
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    digest = hashlib.sha256()
    for file in files:
        state = file.stat()
        digest.update(f"{file} {state.st_size} {state.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def read_file(path: Path, how: Reading) -> Contents:
    """The samples and labels in a file, as they are there.

    Raises:
        InputError: It cannot be read, or has no samples and labels where they must be.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        if how.label is not None or how.features:
            raise InputError(f"{path} has arrays, not columns: leave label and features out")
        return _npz(path)
    if is_table(path):
        table = read_table(path, how.label, how.features)
        return Contents(Part(table.x, table.y))
    raise InputError(f"cannot read {path}: give {KINDS}")


@dataclass(frozen=True, slots=True, eq=False)
class Unlearned:
    """Samples that are only to be tested on.

    Attributes:
        x: The samples, as networks get them but for their preparation.
        y: Their labels: whole numbers or text.
        names: The names of the classes that numbers stand for; empty where the data have none.
    """

    x: Tensor
    y: Pixels
    names: tuple[str, ...] = ()


def read_unlearned(path: Path, how: Reading | None = None) -> Unlearned:
    """The samples of a file or folder that is only to be tested on.

    Of data that have training and test samples these are the test samples; of all others, all samples.

    Args:
        path: The file or folder, laid out as for `own_file`.
        how: How it is read.

    Raises:
        InputError: It cannot be read, or is not laid out like this.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "night.npz"
        >>> np.savez(place, x=np.zeros((3, 4)), y=["cat", "dog", "cat"])
        >>> samples = read_unlearned(place)
        >>> tuple(samples.x.shape), samples.y.tolist()
        ((3, 4), ['cat', 'dog', 'cat'])
    """
    wanted = how or Reading()
    if path.is_dir():
        data = load(own_file(path, wanted))
        parts = [data.test] if (path / "test").is_dir() else [data.train, data.test]
        x = torch.cat([next(iter(part.read([torch.arange(len(part))]))) for part in parts])
        return Unlearned(x, np.array(data.classes)[torch.cat([part.labels for part in parts]).numpy()])
    contents = read_file(path, wanted)
    part = contents.train if contents.test is None else contents.test
    samples, _ = as_inputs(part.x, f"the samples in {path.name}", wanted.inputs)
    labels = label_values(part.y, f"the labels in {path.name}")
    _same_length(samples, labels, path)
    return Unlearned(torch.from_numpy(np.array(samples, order="C")), labels, contents.names)


def _npz(path: Path) -> Contents:
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise InputError(f"{path} is not an npz file: write it with numpy.savez")
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    if size > affordable_bytes():
        raise InputError(
            f"{path} unpacks to {size / 1e9:.1f} GB, more than may be in memory: set ENGRAM_MEMORY_LIMIT, or "
            "give a folder of images, which are read as they are needed"
        )
    with reading(path), np.load(path, allow_pickle=False) as file:
        try:
            values = {name: np.asarray(file[name]) for name in file.files}
        except ValueError as error:
            raise InputError(f"{path} holds objects or ragged arrays, which are not read: {error}") from error
    names = tuple(str(name) for name in values["classes"].tolist()) if "classes" in values else ()
    if {"x_train", "y_train", "x_test", "y_test"} <= set(values):
        train, test = (Part(values[f"x_{part}"], values[f"y_{part}"]) for part in ("train", "test"))
        return Contents(train, test, names)
    if {"x", "y"} <= set(values):
        return Contents(Part(values["x"], values["y"]), None, names)
    listed = ", ".join(values) or "nothing"
    raise InputError(f"{path} must hold x_train, y_train, x_test, y_test, or x and y; it holds {listed}")


def _file(place: Path, how: Reading) -> str:
    """The data of a file that has all samples."""
    if how.size is not None:
        raise InputError(f"size is for folders of images, and {place.name} is a file: leave it out")
    contents = read_file(place, how)
    what = {"y_train": contents.train.y} if contents.test is not None else {"y": contents.train.y}
    if contents.test is not None:
        what["y_test"] = contents.test.y
    labelled = number_classes(
        {f"{name} in {place.name}": y for name, y in what.items()}, names=contents.names
    )
    x_train, kind = as_inputs(contents.train.x, f"the samples in {place.name}", how.inputs)
    note = ""
    if contents.test is None:
        share = TEST_SHARE if how.test_share is None else how.test_share
        [y] = labelled.parts
        _same_length(x_train, y, place)
        test = held_out_rows(y, share, labelled.names, seed=SEED)
        parts = (x_train[~test], y[~test], x_train[test], y[test])
        note = f"{100 * share:g} % of each class held out for testing, seed {SEED}"
    else:
        if how.test_share is not None:
            raise InputError(f"{place.name} has test samples of its own: leave test_share out")
        x_test, _ = as_inputs(contents.test.x, f"the test samples in {place.name}", kind)
        parts = (x_train, labelled.parts[0], x_test, labelled.parts[1])
        _same_length(parts[0], parts[1], place)
        _same_length(parts[2], parts[3], place)
    _all_tested(parts[1], parts[3], labelled.names, place)
    registered = arrays(_stem(place), *parts, classes=labelled.names, inputs=kind)
    if note:
        DATASETS.add(registered, replace(DATASETS[registered], note=note))
    return registered


def _same_length(x: Pixels, y: Labels | Pixels, place: Path) -> None:
    if len(x) != len(y):
        raise InputError(
            f"{place.name} has {len(x):,} samples and {len(y):,} labels: give one label per sample"
        )


def _all_tested(train: Labels, test: Labels, names: tuple[str, ...], place: Path) -> None:
    for label, name in enumerate(names):
        for labels, what in ((train, "training"), (test, "test")):
            if not (labels == label).any():
                raise InputError(
                    f"class {name} in {place.name} has no {what} samples: add some, or leave it out"
                )


def _folder(place: Path, how: Reading) -> str:
    """A folder of images; the hash is that of their content."""
    if how.label is not None or how.features or how.inputs not in (None, "image"):
        raise InputError(f"{place} is a folder of images: leave label, features and inputs out")
    both = (place / "train").is_dir() and (place / "test").is_dir()
    if both and how.test_share is not None:
        raise InputError(f"{place.name} has a folder of test images: leave test_share out")
    share = TEST_SHARE if how.test_share is None else how.test_share
    if not any(entry.is_dir() and entry.name[0] != "." for entry in place.iterdir()):
        raise InputError(f"{place} has no folders: it must hold one folder of images per class")
    if both:
        for folder in class_folders(place / "train"):
            if not (place / "test" / folder.name).is_dir() or not images_in(place / "test" / folder.name):
                raise InputError(
                    f"class {folder.name} in {place.name} has no test samples: add some, or leave it out"
                )
    size = None if how.size is None else (how.size, how.size)
    note = "" if both else f"{100 * share:g} % of each class held out for testing, seed {SEED}"
    return image_folder(
        _stem(place), place, size=size, test_fraction=share, seed=SEED, content=content_of(place), note=note
    )


def content_of(place: Path) -> str:
    """A hash of the content of every file in a folder."""
    digest = hashlib.sha256()
    for file in sorted(place.rglob("*")):
        if file.is_file():
            with reading(file):
                digest.update(f"{file.relative_to(place).as_posix()} ".encode(errors="surrogateescape"))
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _stem(place: Path) -> str:
    """The name of a file or folder as the name of a data set."""
    stem = place.name if place.is_dir() else place.stem
    return re.sub(r"\.\.+", ".", re.sub(r"[^A-Za-z0-9._+-]+", "-", stem)).strip("-._+") or "data"
