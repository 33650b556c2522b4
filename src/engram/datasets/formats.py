"""Reading published data files into arrays. NumPy only; nothing is ever unpickled.

Every reader gives images as uint8 with the channels first, and labels as integers from 0.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError

Pixels = NDArray[np.generic]
Labels = NDArray[np.int64]


MOST_UNPACKED = 50
"""How many times its size a packed file of images may unpack to; photographs and digits have 1 to 20."""

ALWAYS_ALLOWED = 64 << 20
"""What any packed file may unpack to, in bytes."""


@dataclass(frozen=True, slots=True)
class Arrays:
    """A data set as arrays.

    Attributes:
        x_train: Training samples, first axis the samples.
        y_train: Their labels.
        x_test: Test samples.
        y_test: Their labels.
        classes: The names of the classes, if the copy has them.
        superclasses: The superclass of each class, if the copy has them.
        superclass_names: The names of the superclasses, if the copy has them.
    """

    x_train: Pixels
    y_train: Labels
    x_test: Pixels
    y_test: Labels
    classes: tuple[str, ...] = ()
    superclasses: tuple[int, ...] = ()
    superclass_names: tuple[str, ...] = ()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an error while a file is read into an `InputError` that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; get it again") from error
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InputError(f"{path} is broken ({error}); delete it and get it again") from error


def _check_members(path: Path) -> None:
    """Refuse an npz whose arrays unpack to more than `check_ratio` allows."""
    with reading(path):
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            total = sum(member.file_size for member in archive.infolist())
        check_ratio(total, path.stat().st_size, path)


def check_ratio(unpacked_bytes: int, packed_bytes: int, path: Path) -> None:
    """Refuse what unpacks to more than images or labels do.

    Raises:
        InputError: It unpacks to more than 64 MiB, and to more than `MOST_UNPACKED` times its size.

    Example:
        >>> check_ratio(4 << 30, 9 << 20, Path("train-images-idx3-ubyte.gz"))
        Traceback (most recent call last):
        engram.core.errors.InputError: train-images-idx3-ubyte.gz unpacks to more than 50 times its size, ...
    """
    if unpacked_bytes > max(ALWAYS_ALLOWED, MOST_UNPACKED * packed_bytes):
        raise InputError(
            f"{path} unpacks to more than {MOST_UNPACKED} times its size, which no data set does; "
            "delete it and get it again"
        )


class Readable(Protocol):
    """What unpacks a file piece by piece."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""


def unpacked(packed: bytes, stream: Readable, path: Path) -> bytes:
    """What a stream unpacks to, read piece by piece, so that a small file cannot fill the memory.

    Args:
        packed: The content of the file.
        stream: What unpacks it.
        path: The file, for messages.

    Raises:
        InputError: It unpacks to far more than its size: see `check_ratio`.
    """
    pieces, total = [], 0
    while piece := stream.read(1 << 22):
        pieces.append(piece)
        total += len(piece)
        check_ratio(total, len(packed), path)
    return b"".join(pieces)


class Limited(io.RawIOBase):
    """A stream that unpacks a file, and stops where that is far more than the file's size.

    Args:
        stream: What unpacks it.
        path: The file.

    Example:
        >>> Limited(io.BytesIO(b"abc"), Path(__file__)).read(2)
        b'ab'
    """

    def __init__(self, stream: Readable, path: Path) -> None:
        self.stream, self.path = stream, path
        self.packed_bytes, self.total = path.stat().st_size, 0

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; none at the end.

        Raises:
            InputError: It unpacks to far more than its size: see `check_ratio`.
        """
        piece = self.stream.read(size)
        self.total += len(piece)
        check_ratio(self.total, self.packed_bytes, self.path)
        return piece


def channels_first(x: Pixels) -> Pixels:
    """Images with their channels before height and width.

    Three axes are grey images and get a channel; of four, the last is taken for the channels if it has
    length 1 or 3 and the second does not. Anything else stays as it is.

    Example:
        >>> [channels_first(np.zeros(s)).shape for s in [(5, 8, 8), (5, 8, 8, 3), (5, 3, 8, 8), (5, 64)]]
        [(5, 1, 8, 8), (5, 3, 8, 8), (5, 3, 8, 8), (5, 64)]
    """
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[-1] in (1, 3) and x.shape[1] not in (1, 3):
        return np.moveaxis(x, -1, 1)
    return x


def as_bytes(x: Pixels, what: str) -> Pixels:
    """Whole numbers from 0 to 255 as uint8; anything else is an `InputError`.

    Example:
        >>> as_bytes(np.array([0, 255]), "x_train").dtype
        dtype('uint8')
    """
    if x.dtype == np.uint8:
        return x
    if not np.issubdtype(x.dtype, np.integer) or (x.size and (x.min() < 0 or x.max() > 255)):
        raise InputError(f"{what} must hold whole numbers from 0 to 255 (uint8), not {x.dtype}")
    return x.astype(np.uint8)


def as_labels(y: Pixels, what: str, *, samples: int, classes: int | None = None) -> Labels:
    """Labels as int64 in one axis, checked: as many as samples, whole numbers from 0, below `classes`.

    Example:
        >>> as_labels(np.array([[1], [0]], dtype=np.uint8), "y_train", samples=2)
        array([1, 0])
        >>> as_labels(np.array([0, 4]), "y_train", samples=2, classes=3)
        Traceback (most recent call last):
        engram.core.errors.InputError: y_train has label 4, but labels go from 0 to 2
    """
    flat = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
    if flat.ndim != 1 or not np.issubdtype(flat.dtype, np.integer):
        raise InputError(f"{what} must be one whole number per sample, not {y.dtype} of shape {y.shape}")
    if len(flat) != samples:
        raise InputError(f"{what} has {len(flat)} labels for {samples} samples: give one label per sample")
    if samples == 0:
        raise InputError(f"{what} is empty: give at least one sample")
    if flat.min() < 0:
        raise InputError(f"{what} has label {flat.min()}, but labels are whole numbers from 0")
    if classes is not None and flat.max() >= classes:
        raise InputError(f"{what} has label {flat.max()}, but labels go from 0 to {classes - 1}")
    return flat.astype(np.int64)


def read_npz(path: Path, *, classes: int | None = None, skip: tuple[str, ...] = ()) -> Arrays:
    """An npz with `x_train, y_train, x_test, y_test`, and optionally `classes` and `coarse_*`.

    Args:
        path: The file.
        classes: How many classes there may be; None for any number.
        skip: Samples that are not read (`x_train`, `x_test`); empty arrays take their place.
    """
    _check_members(path)
    with reading(path), np.load(path, allow_pickle=False) as file:
        missing = [name for name in ("x_train", "y_train", "x_test", "y_test") if name not in file.files]
        if missing:
            raise InputError(
                f"{path} has no {', '.join(missing)}: it must hold x_train, y_train, x_test, y_test"
            )

        def array(name: str) -> Pixels:
            try:
                return np.asarray(file[name])
            except ValueError as error:
                raise InputError(f"{name} in {path} cannot be read: {error}") from error

        x: dict[str, Pixels] = {}
        y: dict[str, Labels] = {}
        for part in ("train", "test"):
            skipped = f"x_{part}" in skip
            pixels = np.empty(0, np.uint8) if skipped else as_bytes(array(f"x_{part}"), f"x_{part} in {path}")
            labels = array(f"y_{part}")
            x[part] = channels_first(pixels)
            y[part] = as_labels(
                labels,
                f"y_{part} in {path}",
                samples=len(labels) if skipped else len(pixels),
                classes=classes,
            )
        names = _names(array("classes")) if "classes" in file.files else ()
        coarse_names = _names(array("coarse_classes")) if "coarse_classes" in file.files else ()
        coarse: tuple[int, ...] = ()
        if "coarse_train" in file.files:
            what = f"coarse_train in {path}"
            coarse = _superclasses(
                y["train"], as_labels(array("coarse_train"), what, samples=len(y["train"])), path
            )
    if x["train"].shape[1:] != x["test"].shape[1:] and not skip:
        raise InputError(f"x_train and x_test in {path} hold images of different shapes")
    return Arrays(x["train"], y["train"], x["test"], y["test"], names, coarse, coarse_names)


def _names(array: Pixels) -> tuple[str, ...]:
    return tuple(str(name) for name in array.tolist())


def _superclasses(fine: Labels, coarse: Labels, path: Path) -> tuple[int, ...]:
    """The superclass of each class, which all samples of a class must agree on."""
    table = np.zeros(int(fine.max()) + 1, np.int64)
    table[fine] = coarse
    if not np.array_equal(table[fine], coarse):
        raise InputError(f"coarse_train in {path} gives samples of one class different superclasses")
    return tuple(int(superclass) for superclass in table)


def read_idx(data: bytes, what: str) -> Pixels:
    """The array of unsigned bytes in an idx file: two zeros, the type 8, the axes, their lengths, the data.

    Example:
        >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "labels")
        array([7, 8, 9], dtype=uint8)
    """
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise InputError(f"{what} is not an idx file of unsigned bytes; get it again")
    start = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4))
    if len(data) < start or len(data) - start != math.prod(shape):
        raise InputError(
            f"{what} is not complete: {len(data)} bytes do not hold {shape} values; get it again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def with_gz(folder: Path, file: str) -> Path | None:
    """The file in this folder, as it is or gzipped."""
    return next((path for path in (folder / file, folder / f"{file}.gz") if path.is_file()), None)


def _contents(folder: Path, file: str) -> bytes:
    path = with_gz(folder, file)
    if path is None:
        raise InputError(f"{folder / file} has disappeared; get it again")
    with reading(path):
        packed = path.read_bytes()
        if path.suffix != ".gz":
            return packed
        return unpacked(packed, gzip.GzipFile(fileobj=io.BytesIO(packed)), path)


def read_idx_folder(folder: Path) -> Arrays:
    """The four idx files of MNIST and its look-alikes, gzipped or not."""
    arrays = [read_idx(_contents(folder, file), str(folder / file)) for file in IDX_FILES]
    return _labelled(*arrays, where=folder)


def _labelled(x_train: Pixels, y_train: Pixels, x_test: Pixels, y_test: Pixels, *, where: Path) -> Arrays:
    return Arrays(
        channels_first(x_train),
        as_labels(y_train, f"the training labels in {where}", samples=len(x_train)),
        channels_first(x_test),
        as_labels(y_test, f"the test labels in {where}", samples=len(x_test)),
    )


def emnist_files(split: str) -> tuple[str, ...]:
    """What the files of one of EMNIST's splits are called.

    Example:
        >>> emnist_files("letters")[0]
        'emnist-letters-train-images-idx3-ubyte'
    """
    return tuple(
        f"emnist-{split}-{part}-{kind}-ubyte"
        for part in ("train", "test")
        for kind in ("images-idx3", "labels-idx1")
    )


def read_emnist(place: Path, split: str) -> Arrays:
    """One of EMNIST's splits, from a folder of its idx files or from the archive they come in.

    The images are transposed in the files and are turned upright; the letters are numbered from 1 and
    become 0 to 25.
    """
    arrays = []
    for file in emnist_files(split):
        if place.is_dir():
            data = _contents(place, file)
        else:
            with reading(place), zipfile.ZipFile(place) as archive:
                members = [m for m in archive.namelist() if m.endswith(f"{file}.gz")]
                if not members:
                    raise InputError(f"{place} holds no {file}.gz: get EMNIST's gzip.zip")
                inside = archive.getinfo(members[0])
                check_ratio(inside.file_size, inside.compress_size, place)
                packed = archive.read(inside)
                data = unpacked(packed, gzip.GzipFile(fileobj=io.BytesIO(packed)), place)
        arrays.append(read_idx(data, f"{file} in {place}"))
    x_train, y_train, x_test, y_test = arrays
    if split == "letters":
        # uint8 would turn a stray 0 into 255, which the check of the labels must see as it is.
        y_train, y_test = y_train.astype(np.int64) - 1, y_test.astype(np.int64) - 1
    return _labelled(x_train.swapaxes(1, 2), y_train, x_test.swapaxes(1, 2), y_test, where=place)


@dataclass(frozen=True, slots=True)
class CifarFiles:
    """How CIFAR-10 or CIFAR-100 is laid out in its binary version.

    Attributes:
        folder: The folder in the archive.
        archive: The archive.
        train: The files of the training set.
        test: The file of the test set.
        label_bytes: How many bytes come before the pixels; the last of them is the label.
    """

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    label_bytes: int


CIFAR10 = CifarFiles(
    "cifar-10-batches-bin",
    "cifar-10-binary.tar.gz",
    tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    "test_batch.bin",
    1,
)
CIFAR100 = CifarFiles("cifar-100-binary", "cifar-100-binary.tar.gz", ("train.bin",), "test.bin", 2)


def read_cifar(place: Path, files: CifarFiles) -> Arrays:
    """The binary version of CIFAR-10 or CIFAR-100, from its folder or its archive.

    CIFAR-100 has a superclass before the class of every image; superclasses come from the files.
    """
    if place.is_dir():
        blocks = {}
        for file in (*files.train, files.test):
            with reading(place / file):
                blocks[file] = (place / file).read_bytes()
    else:
        blocks = _tar_members(place, {*files.train, files.test})
    record = files.label_bytes + 3 * 32 * 32
    parts = []
    for names in (files.train, (files.test,)):
        for file in names:
            if file not in blocks or not blocks[file] or len(blocks[file]) % record:
                raise InputError(f"{file} in {place} is missing or not complete; get it again")
        raw = np.frombuffer(b"".join(blocks[file] for file in names), np.uint8).reshape(-1, record)
        parts.append(raw)
    train, test = parts
    label = files.label_bytes - 1
    arrays = _labelled(
        train[:, files.label_bytes :].reshape(-1, 3, 32, 32),
        train[:, label],
        test[:, files.label_bytes :].reshape(-1, 3, 32, 32),
        test[:, label],
        where=place,
    )
    if files.label_bytes == 1:
        return arrays
    coarse = _superclasses(arrays.y_train, train[:, 0].astype(np.int64), place)
    return Arrays(arrays.x_train, arrays.y_train, arrays.x_test, arrays.y_test, superclasses=coarse)


def _tar_members(place: Path, names: set[str]) -> dict[str, bytes]:
    """The files of these names, in any folder of the archive; nothing is unpacked to disk.

    The archive is read as a stream, so that what it unpacks to is counted, including files that are skipped.
    """
    contents = {}
    with (
        reading(place),
        _unpacking(place) as stream,
        tarfile.open(fileobj=Limited(stream, place), mode="r|") as archive,
    ):
        for member in archive:
            # A sparse file is larger than what the archive has of it.
            check_ratio(member.size, place.stat().st_size, place)
            name = Path(member.name).name
            if name in names and (file := archive.extractfile(member)) is not None:
                contents[name] = file.read()
    return contents


def _unpacking(path: Path) -> AbstractContextManager[Readable]:
    """The file as it is before it was packed, by its first bytes: gzip, bzip2, xz, or not packed."""
    with path.open("rb") as file:
        first = file.read(6)
    if first.startswith(b"\x1f\x8b"):
        return gzip.open(path)
    if first.startswith(b"BZh"):
        return bz2.open(path)
    if first.startswith(b"\xfd7zXZ\0"):
        return lzma.open(path)
    return path.open("rb")


def _check_mat(path: Path) -> None:
    """Refuse a mat file of format 5 whose variables unpack to far more than its size, before they are read.

    Such a file is a header of 128 bytes, and elements that begin with their type and size; type 15 is packed.
    Cells and structures name their number of entries without having them.
    """
    import scipy.io

    total, size = 0, path.stat().st_size
    with path.open("rb") as file:
        order: Literal["big", "little"] = "big" if file.read(128)[126:128] == b"MI" else "little"
        while len(tag := file.read(8)) == 8:
            kind, length = (int.from_bytes(tag[at : at + 4], order) for at in (0, 4))
            if kind != _PACKED_ELEMENT:
                file.seek(length, io.SEEK_CUR)
                continue
            for unpacked_bytes in _sizes_of_pieces(file.read(length)):
                total += unpacked_bytes
                check_ratio(total, size, path)
    for name, shape, kind_of_array in scipy.io.whosmat(path):
        if name in ("X", "y") and kind_of_array in ("cell", "struct", "object", "sparse", "char", "function"):
            raise ValueError(f"{name} is no array of numbers")
        if name in ("X", "y"):
            check_ratio(math.prod(shape), size, path)


_PACKED_ELEMENT = 15


def _sizes_of_pieces(packed: bytes) -> Iterator[int]:
    """How much an element unpacks to, piece by piece; nothing is kept."""
    unpacking = zlib.decompressobj()
    while packed and not unpacking.eof:
        yield len(unpacking.decompress(packed, 1 << 22))
        packed = unpacking.unconsumed_tail


def read_svhn(folder: Path) -> Arrays:
    """SVHN's cropped digits from `train_32x32.mat` and `test_32x32.mat`; label 10, the digit 0, becomes 0."""
    import scipy.io

    arrays: list[Pixels] = []
    for part in ("train", "test"):
        path = folder / f"{part}_32x32.mat"
        try:
            with reading(path):
                version, _ = scipy.io.matlab.matfile_version(str(path))
                if version > 1:
                    raise ValueError("it is in MATLAB's later format 7.3, SVHN's in format 5")
                _check_mat(path)
                file = scipy.io.loadmat(path, variable_names=("X", "y"))
                x, y = np.asarray(file["X"]), np.asarray(file["y"])
        except (KeyError, ValueError, TypeError, scipy.io.matlab.MatReadError) as error:
            raise InputError(f"{path} is not SVHN's mat file ({error}); get it again") from error
        if x.ndim != 4:
            raise InputError(f"{path} is not SVHN's mat file (X has shape {x.shape}); get it again")
        # As in the file, the samples come last; copied, because a batch is read from one stretch of memory.
        arrays += [
            np.ascontiguousarray(as_bytes(x, f"X in {path}").transpose(3, 2, 0, 1)),
            y.reshape(-1) % 10,
        ]
    return _labelled(*arrays, where=folder)


def read_usps(folder: Path) -> Arrays:
    """USPS from LIBSVM's `usps.bz2` and `usps.t.bz2`: labels 1 to 10 become the digits 0 to 9.

    Pixels from -1 to 1 become 0 to 255, cut off to whole numbers as torchvision does.
    """
    arrays: list[Pixels] = []
    for file in ("usps.bz2", "usps.t.bz2"):
        with reading(folder / file):
            packed = (folder / file).read_bytes()
            text = unpacked(packed, bz2.BZ2File(io.BytesIO(packed)), folder / file)
        arrays += _libsvm(text, folder / file)
    return _labelled(*arrays, where=folder)


def _libsvm(text: bytes, path: Path) -> tuple[Pixels, Pixels]:
    rows = [line.split() for line in io.BytesIO(text) if line.strip()]
    x = np.zeros((len(rows), 256), np.float32)
    try:
        for row, (_, *cells) in zip(x, rows, strict=True):
            for cell in cells:
                index, _, value = cell.partition(b":")
                row[int(index) - 1] = float(value)
        labels = np.array([int(float(row[0])) for row in rows], dtype=np.int64) - 1
    except (ValueError, IndexError) as error:
        raise InputError(f"{path} is not USPS in LIBSVM's format ({error}); get it again") from error
    return ((x + 1) / 2 * 255).astype(np.uint8).reshape(-1, 16, 16), labels
