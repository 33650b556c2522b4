"""Users' own data: arrays, PyTorch data sets, folders of images, and `@engram.dataset` for plugins.

The functions register data for this process and return their name, which ends in the first eight digits of a
hash of the content, so that results of different data are never confused. The decorator gives data a plain
name, and the hash is part of the identity of every experiment that uses them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Protocol, SupportsInt, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from engram.core.dataset_info import DATASETS, DatasetInfo
from engram.core.errors import InputError
from engram.core.plugins import explain_failure
from engram.core.registry import Lazy, check_name
from engram.datasets.folders import Files, Listing, checked, class_folders, images_in, train_and_test
from engram.datasets.formats import Pixels, as_labels, channels_first
from engram.datasets.loading import OWN, affordable_bytes, forget, from_listing, gathered
from engram.datasets.pictures import shape_of
from engram.datasets.storage import Dataset, InMemory, OnDisk

Samples = Pixels | Tensor | Sequence[object]


class MapStyle(Protocol):
    """What PyTorch calls a map-style data set: `(sample, label)` for every index below its length."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


Load = TypeVar("Load", bound=Callable[[], object])


def dataset(name: str, *, classes: Sequence[str] | None = None) -> Callable[[Load], Load]:
    """Register your own data under a name that scenarios and all commands know (`--plugin FILE`).

    What is decorated is a function without parameters that returns `(x_train, y_train), (x_test, y_test)`:
    arrays or tensors as `arrays` takes them; or two map-style PyTorch data sets, as for `torch_dataset`. It
    is called when the data are first needed. A hash of what it returns is part of the identity of
    experiments, so other data under the same name are another experiment.

    Args:
        name: What it is called.
        classes: The names of the classes (default: their numbers).

    Example:
        >>> @dataset("test-stripes")
        ... def stripes():
        ...     x, y = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, 0, 1])
        ...     x[y == 1, ::2] = 255
        ...     return (x, y), (x, y)
        >>> DATASETS["test-stripes"].classes, DATASETS["test-stripes"].shape
        (2, (1, 8, 8))
    """

    def register(function: Load) -> Load:
        @cache
        def loaded() -> tuple[DatasetInfo, InMemory | OnDisk, InMemory | OnDisk]:
            try:
                train, test, digest = _parts(name, function())
            except InputError:
                raise
            except Exception as error:
                raise explain_failure(f"data set {name}", error) from error
            info = _info(name, digest, train, test, classes)
            return replace(info, name=name, digest=digest[:12]), train, test

        def opened(_limit: int) -> Dataset:
            info, train, test = loaded()
            return Dataset(name, train, test, info.class_names)

        DATASETS.add_own(name, Lazy(lambda: loaded()[0]), origin=function.__module__)
        OWN[name] = opened
        forget(name)
        return function

    return register


def accept_dataset(name: str, function: Callable[[], object]) -> DatasetInfo:
    """What is known of the data of a function that an installed package declares."""
    dataset(name)(function)
    return DATASETS[name]


def _parts(name: str, returned: object) -> tuple[InMemory | OnDisk, InMemory | OnDisk, str]:
    """The training and test samples that a function returned, and a hash of them."""
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise InputError(f"data set {name}: the function must return (x_train, y_train), (x_test, y_test)")
    if all(isinstance(part, tuple | list) and len(part) == 2 for part in returned):
        (x_train, y_train), (x_test, y_test) = returned
        return _in_memory(x_train, y_train, x_test, y_test)
    return _from_map_style(name, *returned)


def arrays(
    name: str,
    x_train: Samples,
    y_train: Samples,
    x_test: Samples,
    y_test: Samples,
    *,
    classes: Sequence[str] | None = None,
) -> str:
    """Register arrays or tensors as a data set.

    Samples are uint8 (0 to 255, as images are) or floating point (taken as they are, as float32). Images
    may have their channels first or last; grey ones need none. Labels are whole numbers from 0.

    Args:
        name: How the registered name begins.
        x_train: Training samples, first axis the samples.
        y_train: Their labels.
        x_test: Test samples.
        y_test: Their labels.
        classes: The names of the classes (default: their numbers).

    Returns:
        The name to `load` it by, and to build scenarios from.

    Example:
        >>> x, y = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, 0, 1])
        >>> arrays("mine", x, y, x, y)
        'mine-3b7bb5d1'
    """
    train, test, digest = _in_memory(x_train, y_train, x_test, y_test)
    return _register_parts(name, train, test, digest, classes)


def torch_dataset(name: str, train: MapStyle, test: MapStyle, *, classes: Sequence[str] | None = None) -> str:
    """Register two map-style PyTorch data sets of `(sample, label)`.

    A sample may be a tensor, an array or a PIL image. If all of them fit in memory they are read once,
    now, so that random transforms would be applied only once. Otherwise they stay where they are, and the
    labels come from the data set's `targets` if it has them, or from reading it once; the hash in the name
    is then that of the labels and of a few samples.

    Returns:
        The name to `load` it by, and to build scenarios from.

    Example:
        >>> pairs = [(np.full((8, 8), i, np.uint8), i % 2) for i in range(4)]
        >>> torch_dataset("pairs", pairs, pairs)
        'pairs-9aa89efa'
    """
    return _register_parts(name, *_from_map_style(name, train, test), classes)


def image_folder(
    name: str,
    folder: Path | str,
    *,
    size: tuple[int, int] | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> str:
    """Register a folder of images: `train` and `test` with one folder per class, or one folder per class.

    In the second form a part of each class, drawn with the seed, is kept for testing. Images are decoded
    when the data set is loaded, if they fit in memory, else when batches ask for them; those of another
    size than the wanted one are scaled to cover it and cut out at the centre. The hash in the name is
    that of the files' names, sizes and parts.

    Args:
        name: How the registered name begins.
        folder: The folder.
        size: Height and width (default: those of the first image).
        test_fraction: The share of each class that is kept for testing, where the folders do not say.
        seed: Draws that share.

    Returns:
        The name to `load` it by, and to build scenarios from.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise InputError(f"{root} is not a folder: name one that holds one folder of images per class")
    if (root / "train").is_dir() and (root / "test").is_dir():
        listing = train_and_test(root / "train", root / "test")
    else:
        if not 0 < test_fraction < 1:
            raise InputError(f"test_fraction must be above 0 and below 1, got {test_fraction}")
        listing = _split(root, test_fraction, seed)
    channels, height, width = shape_of(listing.train.paths[0])
    shape = (channels, *(size or (height, width)))
    digest = hashlib.sha256(repr(shape).encode())
    for part in (listing.train, listing.test):
        for path, label in zip(part.paths, part.labels.tolist(), strict=True):
            file = Path(path)
            digest.update(f"{file.relative_to(root).as_posix()} {file.stat().st_size} {label}\n".encode())
        digest.update(b"\n")
    info = DatasetInfo(
        _name(name, digest.hexdigest()),
        name,
        len(listing.classes),
        shape,
        len(listing.train.paths),
        len(listing.test.paths),
        class_names=listing.classes,
    )
    return _register(info, lambda limit: from_listing(info, listing, shape, limit=limit))


def _split(root: Path, test_fraction: float, seed: int) -> Listing:
    """Each class's images, some of them drawn for testing: at least one for either part."""
    rng = np.random.default_rng(seed)
    paths: dict[str, list[str]] = {"train": [], "test": []}
    labels: dict[str, list[int]] = {"train": [], "test": []}
    folders = class_folders(root)
    for label, folder in enumerate(folders):
        images = images_in(folder)
        if len(images) < 2:
            raise InputError(f"{folder} has {len(images)} images: a class needs one to learn and one to test")
        count = min(len(images) - 1, max(1, round(test_fraction * len(images))))
        drawn = set(rng.permutation(len(images))[:count].tolist())
        for i, image in enumerate(images):
            part = "test" if i in drawn else "train"
            paths[part].append(image)
            labels[part].append(label)
    train, test = (Files(tuple(paths[part]), np.array(labels[part], np.int64)) for part in ("train", "test"))
    return checked(Listing(train, test, tuple(folder.name for folder in folders)), root)


class _Inputs(TorchDataset[Tensor]):
    """The samples of a map-style data set, as tensors of one shape."""

    def __init__(self, pairs: MapStyle, part: str) -> None:
        self._pairs = pairs
        self._part = part
        self._shape = _sample(self._pair(0)[0]).shape

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> Tensor:
        sample = _sample(self._pair(index)[0])
        if sample.shape != self._shape:
            raise InputError(
                f"sample {index} of the {self._part} set has shape {tuple(sample.shape)}, "
                f"the first has {tuple(self._shape)}: resize them to one shape"
            )
        return sample

    def _pair(self, index: int) -> tuple[object, SupportsInt]:
        pair = self._pairs[index]
        if not isinstance(pair, (tuple, list)) or len(pair) < 2:
            raise InputError(f"item {index} of the {self._part} set must be (sample, label)")
        return pair[0], pair[1]

    def labels(self) -> Tensor:
        """All labels; `targets` is trusted if its ends agree with the items, which a transform may change."""
        count = len(self)
        targets = getattr(self._pairs, "targets", None)
        what = f"the labels of the {self._part} set"
        if targets is not None and len(targets) == count:
            known = np.asarray(targets)
            if all(int(known[i]) == int(self._pair(i)[1]) for i in (0, count - 1)):
                return torch.from_numpy(as_labels(known, what, samples=count))
        read = np.array([int(self._pair(i)[1]) for i in range(count)])
        return torch.from_numpy(as_labels(read, what, samples=count))


def _sample(image: object) -> Tensor:
    """One sample as a tensor: arrays and PIL images have their channels last, tensors first."""
    if isinstance(image, Tensor):
        tensor = image
    else:
        array = np.asarray(image)
        tensor = torch.from_numpy(np.array(np.moveaxis(array, -1, 0) if array.ndim == 3 else array))
    if tensor.ndim == 2:
        tensor = tensor[None]
    return tensor if tensor.dtype == torch.uint8 else tensor.to(torch.float32)


def _samples(x: Samples, what: str) -> Tensor:
    """Many samples as one tensor with the channels first."""
    array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    if array.ndim < 2:
        raise InputError(f"{what} has shape {array.shape}: its first axis must be the samples")
    if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"{what} holds {array.dtype}: give uint8 (0 to 255) or floating point samples")
    wanted = array if array.dtype == np.uint8 else array.astype(np.float32)
    if wanted.dtype == np.float32 and not np.isfinite(wanted).all():
        raise InputError(f"{what} has values that are not finite: remove them first")
    # A copy: what the user does to the arrays later must not change what was hashed.
    return torch.from_numpy(np.array(channels_first(wanted), order="C"))


def _labels(y: Samples, what: str, *, samples: int) -> Tensor:
    array = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    return torch.from_numpy(as_labels(array, what, samples=samples))


def _from_map_style(
    name: str, train: MapStyle, test: MapStyle
) -> tuple[InMemory | OnDisk, InMemory | OnDisk, str]:
    """The samples of two map-style data sets, in memory if they fit, and a hash of them."""
    parts = {}
    for part, samples in (("train", train), ("test", test)):
        if len(samples) == 0:
            raise InputError(f"the {part} set of {name} is empty: give at least one sample")
        parts[part] = _Inputs(samples, part)
    first = parts["train"][0]
    size = (len(train) + len(test)) * first.nbytes
    images = {
        # Workers would each need a copy of whatever the user's object holds on to.
        part: OnDisk(
            inputs, inputs.labels(), tuple(first.shape), workers=0 if size <= affordable_bytes() else None
        )
        for part, inputs in parts.items()
    }
    if size <= affordable_bytes():
        read = gathered(images["train"]), gathered(images["test"])
        return *read, _digest(*read)
    digest = hashlib.sha256()
    for image in images.values():
        few = torch.linspace(0, len(image) - 1, 16).long()
        for samples in (*OnDisk.read(image, [few]), image.labels):
            _absorb(digest, samples)
    return images["train"], images["test"], digest.hexdigest()


def _in_memory(
    x_train: Samples, y_train: Samples, x_test: Samples, y_test: Samples
) -> tuple[InMemory, InMemory, str]:
    """Arrays as samples in memory, and a hash of them."""
    train = InMemory(_samples(x_train, "x_train"), _labels(y_train, "y_train", samples=len(x_train)))
    test = InMemory(_samples(x_test, "x_test"), _labels(y_test, "y_test", samples=len(x_test)))
    return train, test, _digest(train, test)


def _digest(train: InMemory, test: InMemory) -> str:
    digest = hashlib.sha256()
    for tensor in (train.pixels, train.labels, test.pixels, test.labels):
        _absorb(digest, tensor)
    return digest.hexdigest()


def _register_parts(
    name: str,
    train: InMemory | OnDisk,
    test: InMemory | OnDisk,
    digest: str,
    classes: Sequence[str] | None,
) -> str:
    info = _info(name, digest, train, test, classes)
    return _register(info, lambda _: Dataset(info.name, train, test, info.class_names))


def _absorb(digest: hashlib._Hash, tensor: Tensor) -> None:
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(tensor.contiguous().numpy().data)


def _info(
    name: str, digest: str, train: InMemory | OnDisk, test: InMemory | OnDisk, classes: Sequence[str] | None
) -> DatasetInfo:
    """What is known of the data, after checking that both parts belong together."""
    if train.shape != test.shape:
        raise InputError(f"{name}: training samples have shape {train.shape}, test samples {test.shape}")
    unlearned = sorted(set(test.labels.tolist()) - set(train.labels.tolist()))
    if unlearned:
        raise InputError(f"{name}: class {unlearned[0]} is tested but has no training samples")
    count = 1 + int(train.labels.max())
    names = tuple(map(str, range(count))) if classes is None else tuple(classes)
    if len(names) != count:
        raise InputError(f"{name}: {len(names)} class names for {count} classes: give one per class")
    return DatasetInfo(
        _name(name, digest), name, count, train.shape, len(train), len(test), class_names=names
    )


def _name(name: str, digest: str) -> str:
    return f"{check_name('data set', name)}-{digest[:8]}"


def _register(info: DatasetInfo, opener: Callable[[int], Dataset]) -> str:
    DATASETS.add(info.name, info)
    OWN[info.name] = opener
    return info.name
