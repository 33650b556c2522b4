"""In which forms each data set is published, and how to tell that a folder holds one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engram.core.dataset_info import DATASETS
from engram.datasets import folders, formats
from engram.datasets.folders import Listing
from engram.datasets.formats import Arrays
from engram.datasets.sources import LABEL_OWNERS


@dataclass(frozen=True, slots=True)
class Layout:
    """One form of a data set.

    Attributes:
        files: The files that it consists of, for messages.
        find: Returns the place of this form within a folder, or None.
        read: Reads what is in that place.
    """

    files: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path], Arrays | Listing]


def layouts(name: str) -> tuple[Layout, ...]:
    """The forms in which a data set is looked for, in this order: first an npz, then the official files.

    Example:
        >>> [layout.files for layout in layouts("svhn")]
        ['svhn.npz', 'train_32x32.mat and test_32x32.mat']
    """
    npz = Layout(
        f"{name}.npz",
        partial(_find_npz, name=name),
        partial(formats.read_npz, classes=DATASETS[name].classes),
    )
    return (npz, *_OFFICIAL.get(name, ()))


def pickled(name: str, root: Path) -> Path | None:
    """A pickled form of the data set in this folder, which is never opened."""
    patterns = _PICKLED.get(name, ())
    places = list(_places(root, (name,), itself=True))
    return next((hit for place in places for pattern in patterns for hit in place.glob(pattern)), None)


_PICKLED = {
    "cifar10": ("cifar-10-python.tar.gz", "cifar-10-batches-py"),
    "cifar100": ("cifar-100-python.tar.gz", "cifar-100-python"),
    "mini-imagenet": ("*.pkl", "*.pickle"),
}


def _spellings(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((name, name.replace("-", "_"))))


def _find_npz(root: Path, *, name: str) -> Path | None:
    places = (root, *(root / spelling for spelling in _spellings(name)))
    paths = (place / f"{spelling}.npz" for place in places for spelling in _spellings(name))
    return next((path for path in paths if path.is_file()), None)


def _places(root: Path, aliases: tuple[str, ...], *, itself: bool = False) -> Iterator[Path]:
    """The folders named like a data set; the root too if it is, or if its own name does not matter."""
    if itself or root.resolve().name in aliases:
        yield root
    for alias in aliases:
        if (root / alias).is_dir():
            yield root / alias


def _find_folder(
    root: Path, *, aliases: tuple[str, ...], marks: tuple[str, ...], itself: bool = False
) -> Path | None:
    """The first place that has all of these files or folders in it."""
    for place in _places(root, aliases, itself=itself):
        if all((place / mark).exists() for mark in marks):
            return place
    return None


def _find_idx(root: Path, *, name: str, torchvision: str) -> Path | None:
    aliases = (*_spellings(name), torchvision, *(f"{a}/raw" for a in (*_spellings(name), torchvision)))
    for place in _places(root, aliases, itself=True):
        labels = formats.with_gz(place, formats.IDX_FILES[1])
        if labels is None or not all(formats.with_gz(place, file) for file in formats.IDX_FILES):
            continue
        # MNIST and its look-alikes share their file names: what is known to be another's is not ours.
        md5 = hashlib.md5(labels.read_bytes(), usedforsecurity=False).hexdigest()
        if LABEL_OWNERS.get(md5, name) == name:
            return place
    return None


def _find_emnist(root: Path, *, split: str) -> Path | None:
    aliases = ("emnist", "emnist-letters", "emnist_letters", "EMNIST", "EMNIST/raw", "gzip", "emnist/gzip")
    for place in _places(root, aliases, itself=True):
        if all(formats.with_gz(place, file) for file in formats.emnist_files(split)):
            return place
        for archive in ("gzip.zip", "emnist.zip"):
            if (place / archive).is_file():
                return place / archive
    return None


def _find_cifar(root: Path, *, name: str, layout: formats.CifarFiles) -> Path | None:
    aliases = (layout.folder, name, f"{name}/{layout.folder}")
    for place in _places(root, aliases, itself=True):
        if all((place / file).is_file() for file in (*layout.train, layout.test)):
            return place
        if (place / layout.archive).is_file():
            return place / layout.archive
    return None


def _find_mini_imagenet(root: Path) -> Path | None:
    places = _places(root, _MINI_IMAGENET_HOMES)
    return next((place for place in places if folders.class_folders(place)), None)


def _find_clear(root: Path, *, name: str) -> Path | None:
    digits = name.removeprefix("clear")
    aliases = (name, name.upper(), f"clear-{digits}", f"CLEAR-{digits}")
    for place in _places(root, aliases):
        if any((place / train / "labeled_images").is_dir() for train in folders.CLEAR_TRAIN):
            return place if (place / "test" / "labeled_images").is_dir() else None
    return None


def _idx_layout(name: str, torchvision: str) -> Layout:
    return Layout(
        ", ".join(f"{file}(.gz)" for file in formats.IDX_FILES),
        partial(_find_idx, name=name, torchvision=torchvision),
        formats.read_idx_folder,
    )


def _emnist_layout(split: str) -> Layout:
    return Layout(
        f"{formats.emnist_files(split)[0]}(.gz) and its like, or gzip.zip",
        partial(_find_emnist, split=split),
        partial(formats.read_emnist, split=split),
    )


def _cifar_layout(name: str, layout: formats.CifarFiles) -> Layout:
    return Layout(
        f"{layout.archive}, or {layout.train[0]}, …, {layout.test}",
        partial(_find_cifar, name=name, layout=layout),
        partial(formats.read_cifar, files=layout),
    )


def _folder_layout(
    files: str,
    read: Callable[[Path], Arrays | Listing],
    *,
    aliases: tuple[str, ...],
    marks: tuple[str, ...],
    itself: bool = False,
) -> Layout:
    return Layout(files, partial(_find_folder, aliases=aliases, marks=marks, itself=itself), read)


def _pair_layout(
    train: str, test: str, read: Callable[[Path], Arrays | Listing], *, aliases: tuple[str, ...]
) -> Layout:
    """Two files or folders whose names identify the data set, so that they may be in any folder."""
    return _folder_layout(f"{train} and {test}", read, aliases=aliases, marks=(train, test), itself=True)


def _domainnet_layouts(*domains: str) -> tuple[Layout, ...]:
    lists = tuple(f"{domain}_{part}.txt" for domain in domains for part in ("train", "test"))
    read = partial(folders.domainnet, domains=domains, classes=DATASETS["mini-domainnet"].classes)
    # The full DomainNet has lists of the same names: only those in its folder splits_mini are taken.
    return (
        _folder_layout(
            f"domainnet/splits_mini/{lists[0]} and {lists[1]}",
            read,
            aliases=("domainnet", "DomainNet", "mini-domainnet", "mini_domainnet"),
            marks=tuple(f"splits_mini/{file}" for file in lists),
            itself=True,
        ),
        _folder_layout(
            f"mini-domainnet/{lists[0]} and {lists[1]}",
            read,
            aliases=("mini-domainnet", "mini_domainnet"),
            marks=lists,
        ),
    )


def _clear_layout(name: str, *years: int) -> Layout:
    return Layout(
        f"{name}/train_image_only/labeled_images and {name}/test/labeled_images",
        partial(_find_clear, name=name),
        partial(folders.clear, years=years),
    )


def _devanagari(place: Path) -> Listing:
    return folders.train_and_test(place / "Train", place / "Test")


_DOMAINS = ("clipart", "painting", "real", "sketch")
_YEARS = tuple(range(2005, 2015))
_IMAGENET_HOMES = ("imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC")
_MINI_IMAGENET_HOMES = ("mini-imagenet", "mini_imagenet", "miniimagenet", "miniImageNet", "MiniImagenet")
_FRUITS_HOMES = ("fruits-360", "fruits_360", "fruits-360_100x100/fruits-360", "fruits-360_dataset/fruits-360")

_OFFICIAL: dict[str, tuple[Layout, ...]] = {
    "mnist": (_idx_layout("mnist", "MNIST"),),
    "fashion-mnist": (_idx_layout("fashion-mnist", "FashionMNIST"),),
    "kmnist": (_idx_layout("kmnist", "KMNIST"),),
    "emnist": (_emnist_layout("byclass"),),
    "emnist-letters": (_emnist_layout("letters"),),
    "svhn": (_pair_layout("train_32x32.mat", "test_32x32.mat", formats.read_svhn, aliases=("svhn", "SVHN")),),
    "cifar10": (_cifar_layout("cifar10", formats.CIFAR10),),
    "cifar100": (_cifar_layout("cifar100", formats.CIFAR100),),
    "usps": (_pair_layout("usps.bz2", "usps.t.bz2", formats.read_usps, aliases=("usps", "USPS")),),
    "tiny-imagenet": (
        _folder_layout(
            "tiny-imagenet-200/train, val and wnids.txt",
            folders.tiny_imagenet,
            aliases=("tiny-imagenet-200", "tiny-imagenet", "tiny_imagenet"),
            marks=("wnids.txt", "train", "val"),
            itself=True,
        ),
    ),
    "mini-imagenet": (
        Layout(
            "mini-imagenet/ with one folder of 600 images per class",
            _find_mini_imagenet,
            folders.mini_imagenet,
        ),
    ),
    "mini-domainnet": _domainnet_layouts(*_DOMAINS),
    **{f"mini-domainnet-{domain}": _domainnet_layouts(domain) for domain in _DOMAINS},
    "imagenet": (
        _folder_layout(
            "imagenet/train and imagenet/val with one folder per class",
            folders.imagenet,
            aliases=_IMAGENET_HOMES,
            marks=("train", "val"),
        ),
    ),
    "notmnist": (
        _pair_layout("notMNIST_large", "notMNIST_small", folders.notmnist, aliases=("notmnist", "notMNIST")),
    ),
    "fruits-360": (
        _folder_layout(
            "fruits-360/Training and fruits-360/Test",
            folders.fruits,
            aliases=_FRUITS_HOMES,
            marks=("Training", "Test"),
        ),
    ),
    "devanagari": (
        _folder_layout(
            "DevanagariHandwrittenCharacterDataset/Train and Test",
            _devanagari,
            aliases=("DevanagariHandwrittenCharacterDataset", "devanagari", "DHCD"),
            marks=("Train", "Test"),
        ),
    ),
    "madbase": (
        _pair_layout(
            "MAHDBase_TrainingSet",
            "MAHDBase_TestingSet",
            folders.madbase,
            aliases=("madbase", "MADBase", "MAHDBase"),
        ),
    ),
}
for _name in ("clear10", "clear100"):
    _OFFICIAL[_name] = (_clear_layout(_name, *_YEARS),)
    _OFFICIAL.update({f"{_name}-{year}": (_clear_layout(_name, year),) for year in _YEARS})
