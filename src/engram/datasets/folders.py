"""Folders of images, in the layouts in which data sets are published. Nothing is decoded here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engram.core.errors import InputError
from engram.datasets.formats import Labels, as_labels

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


@dataclass(frozen=True, slots=True)
class Files:
    """Image files with their labels."""

    paths: tuple[str, ...]
    labels: Labels


@dataclass(frozen=True, slots=True)
class Listing:
    """A data set as image files.

    Attributes:
        train: The training images.
        test: The test images.
        classes: The names of the classes.
    """

    train: Files
    test: Files
    classes: tuple[str, ...]


def class_folders(folder: Path) -> list[Path]:
    """The folders in a folder, `a_2` before `a_10`; hidden ones are left out."""
    return sorted((p for p in folder.iterdir() if p.is_dir() and p.name[0] != "."), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(run), "") if run.isdigit() else (-1, run) for run in re.split(r"(\d+)", path.name)]


def images_in(folder: Path) -> list[str]:
    """The image files in a folder, by name."""
    with os.scandir(folder) as entries:
        return sorted(e.path for e in entries if e.name.lower().endswith(_SUFFIXES) and e.name[0] != ".")


def files(images: Iterable[Sequence[str]]) -> Files:
    """The images of class 0, of class 1, and so on, as one list with labels.

    Example:
        >>> files([["a.png"], ["b.png", "c.png"]]).labels
        array([0, 1, 1])
    """
    groups = list(images)
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups]).astype(np.int64)
    return Files(tuple(path for group in groups for path in group), labels)


def train_and_test(train: Path, test: Path) -> Listing:
    """Two folders, each with one folder per class; the classes are those of the training folder."""
    classes = [folder.name for folder in class_folders(train)]
    if not classes:
        raise InputError(f"{train} has no folders: it must hold one folder of images per class")
    unknown = sorted({folder.name for folder in class_folders(test)} - set(classes))
    if unknown:
        raise InputError(f"{test} has the class {unknown[0]!r}, which is missing in {train}")
    groups = [images_in(test / name) if (test / name).is_dir() else [] for name in classes]
    return checked(
        Listing(files(images_in(train / name) for name in classes), files(groups), tuple(classes)), train
    )


def checked(listing: Listing, place: Path) -> Listing:
    """The listing, if it has images to learn from and to test with."""
    for part, what in ((listing.train, "training"), (listing.test, "test")):
        if not part.paths:
            raise InputError(
                f"no {what} images found in {place}: it must hold one folder of images per class"
            )
    return listing


def tiny_imagenet(place: Path) -> Listing:
    """`train/WNID/images/…`, and `val/images/…` with `val_annotations.txt` (or sorted into `val/WNID`)."""
    wnids = [folder.name for folder in class_folders(place / "train")]
    number = {wnid: i for i, wnid in enumerate(wnids)}
    train = files(_images_below(place / "train" / wnid) for wnid in wnids)
    annotations = place / "val" / "val_annotations.txt"
    if (place / "val" / "images").is_dir() and annotations.is_file():
        rows = [line.split("\t")[:2] for line in annotations.read_text(encoding="utf-8").splitlines() if line]
        unknown = next((row for row in rows if len(row) < 2 or row[1] not in number), None)
        if unknown is not None:
            raise InputError(f"{annotations} has the line {unknown}, whose class is not a folder of train")
        test = Files(
            tuple(str(place / "val" / "images" / file) for file, _ in rows),
            np.array([number[wnid] for _, wnid in rows], np.int64),
        )
    else:
        test = files(_images_below(place / "val" / wnid) for wnid in wnids)
    return checked(Listing(train, test, tuple(wnids)), place)


def _images_below(folder: Path) -> list[str]:
    inner = folder / "images"
    return images_in(inner if inner.is_dir() else folder) if folder.is_dir() else []


def imagenet(place: Path) -> Listing:
    """`train/WNID/…` and `val/WNID/…`."""
    if not class_folders(place / "val"):
        raise InputError(
            f"{place / 'val'} has no folders: sort the validation images into one folder per class"
        )
    return train_and_test(place / "train", place / "val")


MINI_IMAGENET_TRAIN = 500


def mini_imagenet(place: Path) -> Listing:
    """One folder per class, or `train`, `val`, `test` with the folders of different classes each.

    The first 500 images of each class are for training, the rest (100) for testing.
    """
    folders = class_folders(place)
    if {folder.name for folder in folders} <= {"train", "val", "test"}:
        folders = sorted((inner for folder in folders for inner in class_folders(folder)), key=_natural)
    groups = [images_in(folder) for folder in folders]
    return checked(
        Listing(
            files(group[:MINI_IMAGENET_TRAIN] for group in groups),
            files(group[MINI_IMAGENET_TRAIN:] for group in groups),
            tuple(folder.name for folder in folders),
        ),
        place,
    )


def domainnet(place: Path, domains: Sequence[str], *, classes: int) -> Listing:
    """Lists of images with labels (`clipart_train.txt`: one `path label` per line) beside the images."""
    lists = place / "splits_mini" if (place / "splits_mini").is_dir() else place
    parts, names = {}, {}
    for part in ("train", "test"):
        paths: list[str] = []
        labels: list[int] = []
        for domain in domains:
            file = lists / f"{domain}_{part}.txt"
            for line in file.read_text(encoding="utf-8").splitlines():
                path, _, label = line.strip().rpartition(" ")
                if not path or not label.isdigit():
                    raise InputError(f"{file} has the line {line!r}: each must be a path and a label")
                paths.append(str(place / path))
                labels.append(int(label))
                names[int(label)] = Path(path).parent.name
        checked_labels = as_labels(
            np.array(labels, np.int64), str(lists), samples=len(paths), classes=classes
        )
        parts[part] = Files(tuple(paths), checked_labels)
    return Listing(parts["train"], parts["test"], tuple(names.get(i, str(i)) for i in range(1 + max(names))))


def clear(place: Path, years: Sequence[int]) -> Listing:
    """CLEAR's `labeled_images/BUCKET/CLASS/…` for training and for testing; the background is left out.

    Bucket 1 is the year 2005, bucket 10 the year 2014.
    """
    folder = next(place / name for name in CLEAR_TRAIN if (place / name).is_dir())
    names = folder / "class_names.txt"
    buckets = [str(year - 2004) for year in years]
    if names.is_file():
        classes = names.read_text(encoding="utf-8").split()
    else:
        classes = [path.name for path in class_folders(folder / "labeled_images" / buckets[0])]
    classes = [name for name in classes if name.lower() != "background"]

    def part(of: Path) -> Files:
        groups: list[list[str]] = [[] for _ in classes]
        for bucket in buckets:
            for group, name in zip(groups, classes, strict=True):
                here = of / "labeled_images" / bucket / name
                group += images_in(here) if here.is_dir() else []
        return files(groups)

    return checked(Listing(part(folder), part(place / "test"), tuple(classes)), place)


CLEAR_TRAIN = ("train_image_only", "train")


def notmnist(place: Path) -> Listing:
    """`notMNIST_large` for training, `notMNIST_small` for testing, without the few files that are broken."""
    from engram.datasets.pictures import readable

    listing = train_and_test(place / "notMNIST_large", place / "notMNIST_small")

    def sound(part: Files) -> Files:
        good = [readable(path) for path in part.paths]
        return Files(tuple(p for p, ok in zip(part.paths, good, strict=True) if ok), part.labels[good])

    return checked(Listing(sound(listing.train), sound(listing.test), listing.classes), place)


LARGEST_FRUITS = 10


def fruits(place: Path) -> Listing:
    """`Training` and `Test`: the ten classes with the most images, the largest first.

    This is the rule of Pfülb & Gepperth (2019). Classes of the same size come in the order of their names.
    """
    sizes = {
        folder.name: sum(len(images_in(place / part / folder.name)) for part in ("Training", "Test"))
        for folder in class_folders(place / "Training")
        if (place / "Test" / folder.name).is_dir()
    }
    classes = sorted(sizes, key=lambda name: -sizes[name])[:LARGEST_FRUITS]
    train, test = (files(images_in(place / part / name) for name in classes) for part in ("Training", "Test"))
    return checked(Listing(train, test, tuple(classes)), place)


_MADBASE = re.compile(r"digit(\d)\.bmp$", re.IGNORECASE)


def madbase(place: Path) -> Listing:
    """`MAHDBase_TrainingSet/PartNN/writerNNN_passNN_digitN.bmp`, and the same for testing."""
    digits = tuple("0123456789")

    def part(folder: Path) -> Files:
        paths = sorted(str(path) for path in folder.rglob("*.bmp"))
        numbered = [(path, int(match[1])) for path in paths if (match := _MADBASE.search(path))]
        return Files(
            tuple(path for path, _ in numbered), np.array([label for _, label in numbered], np.int64)
        )

    listing = Listing(part(place / "MAHDBase_TrainingSet"), part(place / "MAHDBase_TestingSet"), digits)
    return checked(listing, place)
