"""Users' own data: arrays, PyTorch data sets, folders of images, and `@engram.dataset` for plugins.

The functions register data for this process and return their name, which ends in the first eight digits of a
hash of the content, so that results of different data are never confused. The decorator gives data a plain
name, and the hash is part of the identity of every experiment that uses them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from engram.core.dataset_info import DATASETS, DatasetInfo, InputKind
from engram.core.errors import InputError
from engram.core.plugins import explain_failure
from engram.core.registry import Lazy, check_name
from engram.datasets.folders import Files, Listing, checked, class_folders, images_in, train_and_test
from engram.datasets.formats import Pixels, as_labels
from engram.datasets.inputs import as_inputs
from engram.datasets.loading import OWN, affordable_bytes, forget, from_listing, gathered
from engram.datasets.map_style import Items, MapStyle, as_array
from engram.datasets.pictures import shape_of
from engram.datasets.storage import Dataset, InMemory, OnDisk

Samples = Pixels | Tensor | Sequence[object]


Load = TypeVar("Load", bound=Callable[[], object])


@dataclass(frozen=True, slots=True)
class _Parts:
    """Training and test samples, what they are, and a hash of them."""

    train: InMemory | OnDisk
    test: InMemory | OnDisk
    digest: str
    kind: InputKind
    classes: tuple[str, ...] = ()
    note: str = ""


def dataset(
    name: str, *, classes: Sequence[str] | None = None, inputs: InputKind | None = None
) -> Callable[[Load], Load]:
    """Register your own data under a name that scenarios and all commands know (`--plugin FILE`).

    What is decorated is a function without parameters that returns `(x_train, y_train), (x_test, y_test)`:
    arrays or tensors as `arrays` takes them; or two map-style data sets, as for `torch_dataset`, or a mapping
    that has them as `train` and `test`. It is called when the data are first needed. A hash of what it
    returns is part of the identity of experiments, so other data under the same name are another experiment.

    Args:
        name: What it is called.
        classes: The names of the classes (default: their numbers).
        inputs: What a sample is (default: judged by its type and axes; see `arrays`).

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
                parts = _parts(name, function(), inputs)
            except InputError:
                raise
            except Exception as error:
                raise explain_failure(f"data set {name}", error) from error
            info = _info(name, parts, classes)
            return replace(info, name=name, digest=parts.digest[:12]), parts.train, parts.test

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


def _parts(name: str, returned: object, kind: InputKind | None) -> _Parts:
    """The training and test samples that a function returned, and a hash of them."""
    if isinstance(returned, Mapping) and {"train", "test"} <= set(returned):
        returned = (returned["train"], returned["test"])
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise InputError(f"data set {name}: the function must return (x_train, y_train), (x_test, y_test)")
    if all(isinstance(part, tuple | list) and len(part) == 2 for part in returned):
        (x_train, y_train), (x_test, y_test) = returned
        return _in_memory(x_train, y_train, x_test, y_test, kind)
    return _from_map_style(name, *returned, kind=kind)


def arrays(
    name: str,
    x_train: Samples,
    y_train: Samples,
    x_test: Samples,
    y_test: Samples,
    *,
    classes: Sequence[str] | None = None,
    inputs: InputKind | None = None,
) -> str:
    """Register arrays or tensors as a data set: images, tables, tokens, series or volumes.

    Bytes (uint8) are scaled to 0 to 1, as images are; tokens stay whole numbers, and all other numbers are
    taken as they are, as float32. Images may have their channels first or last; grey ones need none. Without
    `inputs`, the type and the axes of a sample decide: bytes with two or three axes are images; one axis is a
    table, or tokens if it holds whole numbers; two are a series; three are an image if they begin or end with
    one or three channels, and otherwise a volume. Labels are whole numbers from 0.

    Args:
        name: How the registered name begins.
        x_train: Training samples, first axis the samples.
        y_train: Their labels.
        x_test: Test samples.
        y_test: Their labels.
        classes: The names of the classes (default: their numbers).
        inputs: What a sample is: `image`, `table`, `tokens`, `series` or `volume`.

    Returns:
        The name to `load` it by, and to build scenarios from.

    Example:
        >>> x, y = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, 0, 1])
        >>> arrays("mine", x, y, x, y)
        'mine-3b7bb5d1'
    """
    return _register_parts(name, _in_memory(x_train, y_train, x_test, y_test, inputs), classes)


def torch_dataset(
    name: str,
    train: MapStyle | Mapping[str, MapStyle],
    test: MapStyle | None = None,
    *,
    x: str | None = None,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    inputs: InputKind | None = None,
) -> str:
    """Register two map-style data sets: PyTorch's and torchvision's of pairs, Hugging Face's of mappings.

    A sample may be a tensor, an array, a list of numbers or a PIL image. If all of them fit in memory they
    are read once, now, so that random transforms would be applied only once. Otherwise they stay where they
    are, and the labels come from the data set's `targets` if it has them, or from reading it once; the hash
    in the name is then that of the labels and of a few samples.

    Args:
        name: How the registered name begins.
        train: What is learned from; or a mapping with `train` and `test`, as Hugging Face's `DatasetDict`.
        test: What is tested with.
        x: Where items are mappings, the name of the sample (default: a usual one, such as `image`,
            `pixel_values` or `input_ids`).
        label: Where items are mappings, the name of the label (default: a usual one, such as `label`).
        classes: The names of the classes (default: those of the data set, else their numbers).
        inputs: What a sample is (default: judged by its type and axes; see `arrays`).

    Returns:
        The name to `load` it by, and to build scenarios from.

    Example:
        >>> pairs = [(np.full((8, 8), i, np.uint8), i % 2) for i in range(4)]
        >>> torch_dataset("pairs", pairs, pairs)
        'pairs-9aa89efa'
        >>> rows = [{"image": image, "label": label} for image, label in pairs]
        >>> torch_dataset("pairs", {"train": rows, "test": rows})
        'pairs-9aa89efa'
    """
    learned, tested = (train.get("train"), train.get("test")) if isinstance(train, Mapping) else (train, test)
    if learned is None or tested is None or (isinstance(train, Mapping) and test is not None):
        raise InputError(f"{name}: give a training and a test set, or a mapping with train and test")
    parts = _from_map_style(name, learned, tested, x=x, label=label, kind=inputs)
    return _register_parts(name, parts, classes)


def image_folder(
    name: str,
    folder: Path | str,
    *,
    size: tuple[int, int] | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    content: str = "",
    note: str = "",
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
        content: A hash of the images' content, if the name is to tell apart images that have the same size.
        note: How they were divided, for people to read.

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
    digest = hashlib.sha256(f"{shape!r}{content}".encode())
    for part in (listing.train, listing.test):
        for path, label in zip(part.paths, part.labels.tolist(), strict=True):
            file = Path(path)
            line = f"{file.relative_to(root).as_posix()} {file.stat().st_size} {label}\n"
            digest.update(line.encode(errors="surrogateescape"))
        digest.update(b"\n")
    info = DatasetInfo(
        _name(name, digest.hexdigest()),
        name,
        len(listing.classes),
        shape,
        len(listing.train.paths),
        len(listing.test.paths),
        class_names=listing.classes,
        note=note,
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


def _samples(x: Samples, what: str, kind: InputKind | None) -> tuple[Tensor, InputKind]:
    """Many samples as one tensor, images with the channels first, and what they are."""
    array = x.detach().cpu().numpy() if isinstance(x, Tensor) else as_array(x, what)
    inputs, chosen = as_inputs(array, what, kind)
    # A copy: what the user does to the arrays later must not change what was hashed.
    return torch.from_numpy(np.array(inputs, order="C")), chosen


def _labels(y: Samples, what: str, *, samples: int) -> Tensor:
    array = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    return torch.from_numpy(as_labels(array, what, samples=samples))


def _from_map_style(
    name: str,
    train: MapStyle,
    test: MapStyle,
    *,
    x: str | None = None,
    label: str | None = None,
    kind: InputKind | None = None,
) -> _Parts:
    """The samples of two map-style data sets, in memory if they fit, and a hash of them."""
    for part, samples in (("train", train), ("test", test)):
        if len(samples) == 0:
            raise InputError(f"the {part} set of {name} is empty: give at least one sample")
    learned = Items(train, "train", x=x, label=label, kind=kind)
    tested = Items(test, "test", x=x, label=label, kind=learned.kind)
    first = learned[0]
    size = (len(train) + len(test)) * first.nbytes
    fits = size <= affordable_bytes()
    images = [
        # Workers would each need a copy of whatever the user's object holds on to.
        OnDisk(items, items.labels(), tuple(first.shape), workers=0 if fits else None)
        for items in (learned, tested)
    ]
    if fits:
        read = gathered(images[0]), gathered(images[1])
        return _Parts(*read, _digest(*read), learned.kind, learned.class_names())
    digest = hashlib.sha256()
    for image in images:
        few = torch.linspace(0, len(image) - 1, 16).long()
        for samples in (*OnDisk.read(image, [few]), image.labels):
            _absorb(digest, samples)
    return _Parts(images[0], images[1], digest.hexdigest(), learned.kind, learned.class_names())


def _in_memory(
    x_train: Samples, y_train: Samples, x_test: Samples, y_test: Samples, kind: InputKind | None = None
) -> _Parts:
    """Arrays as samples in memory, and a hash of them."""
    x, known = _samples(x_train, "x_train", kind)
    train = InMemory(x, _labels(y_train, "y_train", samples=len(x)))
    tested, _ = _samples(x_test, "x_test", known)
    if tested.dtype != x.dtype:
        types = [getattr(samples, "dtype", type(samples).__name__) for samples in (x_train, x_test)]
        raise InputError(f"x_train holds {types[0]} and x_test {types[1]}: give samples of one type")
    x = tested
    test = InMemory(x, _labels(y_test, "y_test", samples=len(x)))
    return _Parts(train, test, _digest(train, test), known)


def _digest(train: InMemory, test: InMemory) -> str:
    digest = hashlib.sha256()
    for tensor in (train.pixels, train.labels, test.pixels, test.labels):
        _absorb(digest, tensor)
    return digest.hexdigest()


def _register_parts(name: str, parts: _Parts, classes: Sequence[str] | None) -> str:
    info = _info(name, parts, classes)
    return _register(info, lambda _: Dataset(info.name, parts.train, parts.test, info.class_names))


def _absorb(digest: hashlib._Hash, tensor: Tensor) -> None:
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(tensor.contiguous().numpy().data)


def _info(name: str, parts: _Parts, classes: Sequence[str] | None) -> DatasetInfo:
    """What is known of the data, after checking that both parts belong together."""
    train, test = parts.train, parts.test
    if train.shape != test.shape:
        raise InputError(f"{name}: training samples have shape {train.shape}, test samples {test.shape}")
    unlearned = sorted(set(test.labels.tolist()) - set(train.labels.tolist()))
    if unlearned:
        raise InputError(f"{name}: class {unlearned[0]} is tested but has no training samples")
    count = 1 + int(train.labels.max())
    known = parts.classes if classes is None and len(parts.classes) == count else classes
    names = tuple(map(str, range(count))) if known is None else tuple(known)
    if len(names) != count:
        raise InputError(f"{name}: {len(names)} class names for {count} classes: give one per class")
    return DatasetInfo(
        _name(name, parts.digest),
        name,
        count,
        train.shape,
        len(train),
        len(test),
        class_names=names,
        inputs=parts.kind,
        bytes=_first(train).dtype == torch.uint8,
        vocabulary=1 + max(_largest(train), _largest(test)) if parts.kind == "tokens" else 0,
        note=parts.note,
    )


def _first(images: InMemory | OnDisk) -> Tensor:
    return next(iter(images.read([torch.tensor([0])])))


def _largest(images: InMemory | OnDisk) -> int:
    """The largest value of all samples."""
    return max(int(batch.max()) for batch in images.read(torch.arange(len(images)).split(1024)))


def _name(name: str, digest: str) -> str:
    return f"{check_name('data set', name)}-{digest[:8]}"


def _register(info: DatasetInfo, opener: Callable[[int], Dataset]) -> str:
    DATASETS.add(info.name, info)
    OWN[info.name] = opener
    return info.name
