"""Every published form, written small by the tests themselves and read back."""

import bz2
import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from engram.core.errors import InputError
from engram.datasets import Dataset, InMemory, load
from engram.datasets.formats import Pixels

Noise = Callable[..., Pixels]


def pixels(dataset: Dataset, part: str = "train") -> Pixels:
    images = getattr(dataset, part)
    assert isinstance(images, InMemory)
    assert images.pixels.is_contiguous()
    return images.pixels.numpy()


def idx(array: Pixels) -> bytes:
    shape = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


def write_idx(
    folder: Path, x: Pixels, y: Pixels, *, gz: bool = False, prefix: tuple[str, str] = ("train", "t10k")
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in prefix:
        for file, array in ((f"{part}-images-idx3-ubyte", x), (f"{part}-labels-idx1-ubyte", y)):
            data = idx(array)
            (folder / (f"{file}.gz" if gz else file)).write_bytes(gzip.compress(data) if gz else data)


def write_npz(path: Path, x: Pixels, y: Pixels, **more: Pixels) -> Path:
    np.savez(path, allow_pickle=False, x_train=x, y_train=y, x_test=x[:2], y_test=y[:2], **more)
    return path


class TestNpz:
    @pytest.mark.parametrize(
        "file", ["fashion-mnist.npz", "fashion_mnist.npz", "fashion_mnist/fashion-mnist.npz"]
    )
    def test_grey_images_get_a_channel(self, file: str, noise: Noise, tmp_path: Path) -> None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        x, y = noise(6, 28, 28), np.array([0, 1, 2, 3, 4, 9], np.uint8)
        write_npz(tmp_path / file, x, y)
        dataset = load("fashion-mnist", tmp_path)
        assert dataset.train.shape == (1, 28, 28)
        assert np.array_equal(pixels(dataset), x[:, None])
        assert dataset.train.labels.dtype == torch.int64
        assert dataset.train.labels.tolist() == y.tolist()
        assert len(dataset.test) == 2
        assert dataset.classes[9] == "Ankle boot"

    def test_colour_goes_channels_first(self, noise: Noise, tmp_path: Path) -> None:
        x = noise(4, 32, 32, 3)
        write_npz(tmp_path / "svhn.npz", x, np.arange(4))
        assert np.array_equal(pixels(load("svhn", tmp_path)), x.transpose(0, 3, 1, 2))

    def test_superclasses_and_names_come_along(self, noise: Noise, tmp_path: Path) -> None:
        y = np.array([0, 1, 2, 1])
        write_npz(
            tmp_path / "cifar100.npz",
            noise(4, 32, 32, 3),
            y,
            coarse_train=np.array([1, 0, 1, 0]),
            classes=np.array(["a", "b", "c"]),
            coarse_classes=np.array(["low", "high"]),
        )
        dataset = load("cifar100", tmp_path)
        assert dataset.classes == ("a", "b", "c")
        assert dataset.superclasses == (1, 0, 1)
        assert dataset.superclass_names == ("low", "high")

    def test_a_copy_may_have_fewer_classes(self, noise: Noise, tmp_path: Path) -> None:
        write_npz(tmp_path / "devanagari.npz", noise(4, 32, 32), np.arange(4))
        assert load("devanagari", tmp_path).classes == ("0", "1", "2", "3")

    @pytest.mark.parametrize(
        ("change", "complaint"),
        [
            ({"y_train": np.arange(3)}, "y_train in .*mnist.npz has 3 labels for 4 samples"),
            ({"y_train": np.array([0, 1, 2, 10])}, "has label 10, but labels go from 0 to 9"),
            ({"y_train": np.array([0, 1, 2, -1])}, "has label -1"),
            ({"y_train": np.zeros(4)}, "must be one whole number per sample"),
            ({"x_train": np.zeros((4, 28, 28))}, "must hold whole numbers from 0 to 255"),
            ({"x_train": np.full((4, 28, 28), 256)}, "must hold whole numbers from 0 to 255"),
            ({"x_train": np.zeros((4, 14, 14), np.uint8)}, "images of different shapes"),
            ({"x_train": np.zeros((0, 28, 28), np.uint8), "y_train": np.zeros(0, int)}, "is empty"),
            ({"x_train": np.array([object()] * 4)}, "x_train in .* cannot be read"),
            ({"coarse_train": np.array([0, 1, 0, 1]), "y_train": np.zeros(4, int)}, "different superclasses"),
        ],
    )
    def test_bad_contents_are_one_line(
        self, change: dict[str, Pixels], complaint: str, noise: Noise, tmp_path: Path
    ) -> None:
        arrays = {"x_train": noise(4, 28, 28), "y_train": np.arange(4), **change}
        more = {key: value for key, value in arrays.items() if key not in ("x_train", "y_train")}
        np.savez(
            tmp_path / "mnist.npz",
            allow_pickle=True,
            x_train=arrays["x_train"],
            y_train=arrays["y_train"],
            x_test=noise(2, 28, 28),
            y_test=np.arange(2),
            **more,
        )
        with pytest.raises(InputError, match=complaint) as error:
            load("mnist", tmp_path)
        assert "\n" not in str(error.value)

    def test_missing_arrays_are_named(self, noise: Noise, tmp_path: Path) -> None:
        np.savez(tmp_path / "mnist.npz", x_train=noise(4, 28, 28), y_train=np.arange(4))
        with pytest.raises(InputError, match="has no x_test, y_test"):
            load("mnist", tmp_path)

    @pytest.mark.parametrize("cut", [10, 1000])
    def test_a_broken_file_is_named(self, cut: int, noise: Noise, tmp_path: Path) -> None:
        path = write_npz(tmp_path / "mnist.npz", noise(4, 28, 28), np.arange(4))
        path.write_bytes(path.read_bytes()[:-cut])
        with pytest.raises(InputError, match=r"mnist\.npz is broken"):
            load("mnist", tmp_path)


class TestIdx:
    @pytest.mark.parametrize("place", [".", "mnist", "MNIST/raw", "mnist/raw"])
    @pytest.mark.parametrize("gz", [False, True])
    def test_in_every_usual_place(self, place: str, gz: bool, noise: Noise, tmp_path: Path) -> None:
        x, y = noise(5, 28, 28), np.arange(5)
        write_idx(tmp_path / place, x, y, gz=gz)
        dataset = load("mnist", tmp_path)
        assert np.array_equal(pixels(dataset), x[:, None])
        assert dataset.test.labels.tolist() == [0, 1, 2, 3, 4]

    def test_what_is_known_to_be_anothers_is_not_taken(self, real_data: Path, tmp_path: Path) -> None:
        with np.load(real_data / "mnist.npz") as real:
            labels = real["y_train"]
        write_idx(tmp_path, np.zeros((len(labels), 2, 2)), labels)
        assert len(load("mnist", tmp_path).train) == 60000
        with pytest.raises(InputError, match="fashion-mnist not found"):
            load("fashion-mnist", tmp_path, download=False)

    @pytest.mark.parametrize(
        ("data", "complaint"),
        [
            (b"nonsense", "not an idx file"),
            (idx(np.zeros((5, 28, 28)))[:-1], "not complete"),
            (bytes([0, 0, 8, 3, 0, 0]), "not complete"),
        ],
    )
    def test_broken(self, data: bytes, complaint: str, noise: Noise, tmp_path: Path) -> None:
        write_idx(tmp_path, noise(5, 28, 28), np.arange(5))
        (tmp_path / "train-images-idx3-ubyte").write_bytes(data)
        with pytest.raises(InputError, match=complaint):
            load("mnist", tmp_path)

    def test_a_cut_gzip_is_named(self, noise: Noise, tmp_path: Path) -> None:
        write_idx(tmp_path, noise(5, 28, 28), np.arange(5), gz=True)
        file = tmp_path / "t10k-images-idx3-ubyte.gz"
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(InputError, match=r"t10k-images-idx3-ubyte\.gz is broken"):
            load("mnist", tmp_path)


class TestEmnist:
    def test_letters_start_at_0_and_stand_upright(self, noise: Noise, tmp_path: Path) -> None:
        x = noise(3, 28, 28)
        write_idx(tmp_path, x, np.array([1, 2, 26]), prefix=("emnist-letters-train", "emnist-letters-test"))
        dataset = load("emnist-letters", tmp_path)
        assert dataset.train.labels.tolist() == [0, 1, 25]
        assert np.array_equal(pixels(dataset), x.transpose(0, 2, 1)[:, None])
        assert dataset.classes[25] == "z"

    def test_from_the_archive(self, noise: Noise, tmp_path: Path) -> None:
        folder = tmp_path / "loose"
        x, y = noise(3, 28, 28), np.array([0, 10, 61])
        write_idx(folder, x, y, gz=True, prefix=("emnist-byclass-train", "emnist-byclass-test"))
        with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
            for file in folder.iterdir():
                archive.write(file, f"gzip/{file.name}")
        dataset = load("emnist", tmp_path)
        assert [dataset.classes[label] for label in dataset.train.labels.tolist()] == ["0", "A", "z"]
        with pytest.raises(InputError, match="holds no emnist-letters-train-images"):
            load("emnist-letters", tmp_path)

    def test_a_letter_0_is_refused(self, noise: Noise, tmp_path: Path) -> None:
        write_idx(
            tmp_path,
            noise(2, 28, 28),
            np.array([0, 1]),
            prefix=("emnist-letters-train", "emnist-letters-test"),
        )
        with pytest.raises(InputError, match="has label -1"):
            load("emnist-letters", tmp_path)


CIFAR_FILES = {
    "cifar10": [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"],
    "cifar100": ["train.bin", "test.bin"],
}
CIFAR_FOLDERS = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}


class TestCifar:
    def records(self, name: str, x: Pixels, y: Pixels) -> bytes:
        labels = y[:, None] if name == "cifar10" else np.stack([y % 2, y], axis=1)
        return np.concatenate([labels, x.reshape(len(x), -1)], axis=1).astype(np.uint8).tobytes()

    @pytest.mark.parametrize("name", ["cifar10", "cifar100"])
    @pytest.mark.parametrize("archive", [False, True])
    def test_binary_batches(self, name: str, archive: bool, noise: Noise, tmp_path: Path) -> None:
        x, y = noise(4, 3, 32, 32), np.array([3, 0, 9, 3])
        data = self.records(name, x, y)
        folder = CIFAR_FOLDERS[name]
        if archive:
            file = "cifar-10-binary.tar.gz" if name == "cifar10" else "cifar-100-binary.tar.gz"
            with tarfile.open(tmp_path / file, "w:gz") as tar:
                for member in CIFAR_FILES[name]:
                    entry = tarfile.TarInfo(f"{folder}/{member}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
        else:
            (tmp_path / folder).mkdir()
            for member in CIFAR_FILES[name]:
                (tmp_path / folder / member).write_bytes(data)
        dataset = load(name, tmp_path)
        batches = len(CIFAR_FILES[name]) - 1
        assert np.array_equal(pixels(dataset), np.tile(x, (batches, 1, 1, 1)))
        assert dataset.test.labels.tolist() == y.tolist()
        if name == "cifar100":
            assert [dataset.superclasses[label] for label in (0, 3, 9)] == [0, 1, 1]

    def test_a_short_batch_is_named(self, noise: Noise, tmp_path: Path) -> None:
        for member in CIFAR_FILES["cifar100"]:
            data = self.records("cifar100", noise(2, 3, 32, 32), np.arange(2))
            (tmp_path / member).write_bytes(data[: -1 if member == "test.bin" else None])
        with pytest.raises(InputError, match=r"test\.bin in .* is missing or not complete"):
            load("cifar100", tmp_path)

    def test_the_pickled_version_is_refused_with_a_hint(self, tmp_path: Path) -> None:
        (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
        with pytest.raises(InputError, match=r"looked for .*cifar-10-binary\.tar\.gz.* is pickled"):
            load("cifar10", tmp_path, download=False)


LATER_MATLAB = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(512)
"""A file in MATLAB's later format, which scipy does not read."""


class TestSvhn:
    def test_the_digit_0_is_class_0(self, noise: Noise, tmp_path: Path) -> None:
        x = noise(32, 32, 3, 3)
        for part in ("train", "test"):
            file = tmp_path / "SVHN" / f"{part}_32x32.mat"
            file.parent.mkdir(exist_ok=True)
            scipy.io.savemat(file, {"X": x, "y": np.array([[1], [10], [9]], np.uint8)})
        dataset = load("svhn", tmp_path)
        assert dataset.train.labels.tolist() == [1, 0, 9]
        assert np.array_equal(pixels(dataset)[2], x[..., 2].transpose(2, 0, 1))

    @pytest.mark.parametrize(
        ("data", "why"),
        [(b"", "truncated"), (b"nonsense" * 100, ""), (LATER_MATLAB, "it is in MATLAB's later format 7.3")],
    )
    def test_broken(self, data: bytes, why: str, tmp_path: Path) -> None:
        for part in ("train", "test"):
            (tmp_path / f"{part}_32x32.mat").write_bytes(data)
        with pytest.raises(InputError, match=rf"(?i)train_32x32\.mat is not SVHN's mat file \(.*{why}"):
            load("svhn", tmp_path)


class TestUsps:
    def test_values_and_labels(self, tmp_path: Path) -> None:
        # Cells that are left out are 0, as LIBSVM's format has it.
        for file in ("usps.bz2", "usps.t.bz2"):
            (tmp_path / file).write_bytes(bz2.compress(b"10 1:-1 2:1 256:0.5\n1 1:0\n"))
        dataset = load("usps", tmp_path)
        first = pixels(dataset)[0].reshape(-1)
        assert first[[0, 1, 2, 255]].tolist() == [0, 255, 127, 191]
        assert dataset.train.labels.tolist() == [9, 0]
        assert dataset.train.shape == (1, 16, 16)

    def test_broken(self, tmp_path: Path) -> None:
        for file in ("usps.bz2", "usps.t.bz2"):
            (tmp_path / file).write_bytes(bz2.compress(b"10 1:-1 257:1\n"))
        with pytest.raises(InputError, match="not USPS in LIBSVM's format"):
            load("usps", tmp_path)
