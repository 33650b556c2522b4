"""From a name to a data set: where it is looked for, what is kept, what is read from disk."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from engram.core.cache import cache_folder
from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.datasets import InMemory, OnDisk, load, loading
from engram.datasets.find import locate, search_folders
from engram.datasets.formats import Pixels
from engram.datasets.sources import PUBLISHED

Noise = Callable[..., Pixels]


def save(folder: Path, name: str, x: Pixels) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    y = np.arange(len(x)) % 10
    np.savez(folder / f"{name}.npz", allow_pickle=False, x_train=x, y_train=y, x_test=x[:3], y_test=y[:3])


def test_the_folder_given_comes_first_then_the_environment_then_the_cache(
    noise: Noise, apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, named = tmp_path / "chosen", tmp_path / "named"
    for size, folder in ((4, chosen), (5, named), (6, apart)):
        save(folder, "mnist", noise(size, 28, 28))
    monkeypatch.setenv("ENGRAM_DATA", str(named))
    assert search_folders(chosen) == (chosen, named, apart)
    assert len(load("mnist", chosen).train) == 4
    assert len(load("mnist").train) == 5
    monkeypatch.delenv("ENGRAM_DATA")
    assert len(load("mnist").train) == 6


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="nowhere is not a folder"):
        load("mnist", tmp_path / "nowhere")
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "lost"))
    with pytest.raises(InputError, match=r"ENGRAM_DATA .*lost is not a folder"):
        load("mnist")


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(InputError, match="unknown data set 'fashon-mnist'; did you mean 'fashion-mnist'"):
        load("fashon-mnist")


def test_what_nobody_publishes_for_fetching_must_be_provided(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"looked for madbase\.npz; or MAHDBase_TrainingSet") as error:
        load("madbase", tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("name", list(DATASETS))
def test_an_empty_folder_holds_nothing(name: str, tmp_path: Path) -> None:
    assert locate(name, tmp_path) is None


def test_the_cache_is_the_platforms_unless_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENGRAM_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "engram"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "engram"


def test_digits_are_embedded_and_split_evenly() -> None:
    digits = load("digits")
    info = DATASETS["digits"]
    assert (len(digits.train), len(digits.test)) == (info.train, info.test)
    assert digits.train.shape == info.shape
    assert isinstance(digits.train, InMemory)
    assert digits.train.pixels.dtype == torch.uint8
    assert int(digits.train.pixels.max()) == 255
    shares = digits.test.labels.bincount() / (digits.test.labels.bincount() + digits.train.labels.bincount())
    assert shares.min() > 0.19 and shares.max() < 0.205


def test_what_was_loaded_is_kept_until_the_file_changes(noise: Noise, tmp_path: Path) -> None:
    save(tmp_path, "mnist", noise(4, 28, 28))
    first = load("mnist", tmp_path)
    assert load("mnist", tmp_path) is first
    save(tmp_path, "mnist", noise(5, 28, 28))
    assert len(load("mnist", tmp_path).train) == 5


def test_no_more_is_kept_than_the_limit_allows(noise: Noise, tmp_path: Path) -> None:
    for name in ("mnist", "kmnist", "fashion-mnist"):
        save(tmp_path, name, noise(10, 28, 28))
    limit = 2 * 13 * 784 + 1
    for name in ("mnist", "kmnist", "fashion-mnist"):
        load(name, tmp_path, memory_limit=limit)
    assert [dataset.name for dataset in loading._kept.values()] == ["kmnist", "fashion-mnist"]


def test_an_npz_larger_than_the_limit_is_read_from_disk(noise: Noise, apart: Path, tmp_path: Path) -> None:
    x = noise(50, 32, 32, 3)
    save(tmp_path, "svhn", x)
    inside, outside = load("svhn", tmp_path), load("svhn", tmp_path, memory_limit=1000)
    assert isinstance(outside.train, OnDisk)
    assert outside.train.shape == inside.train.shape == (3, 32, 32)
    assert torch.equal(outside.train.labels, inside.train.labels)
    batches = list(torch.split(torch.randperm(50, generator=torch.Generator().manual_seed(0)), 16))
    for a, b in zip(inside.train.read(batches), outside.train.read(batches), strict=True):
        assert torch.equal(a, b)
    assert len(list((apart / "unpacked").rglob("*.npy"))) == 2


def test_a_large_npz_with_other_than_bytes_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "svhn", np.zeros((4, 32, 32, 3)))
    with pytest.raises(InputError, match="samples of uint8"):
        load("svhn", tmp_path, memory_limit=1000)


def test_reading_from_disk_leaves_the_global_generator_alone(noise: Noise, tmp_path: Path) -> None:
    save(tmp_path, "mnist", noise(10, 28, 28))
    images = load("mnist", tmp_path, memory_limit=10).train
    before = torch.get_rng_state()
    list(images.read([torch.arange(4), torch.arange(4, 10)]))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("text", "limit"), [("1000", 1000), ("2 KB", 2000), ("1.5mb", 1_500_000), ("4G", 4 * 10**9)]
)
def test_the_limit_comes_from_the_environment(text: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_MEMORY_LIMIT", text)
    assert loading.affordable_bytes() == limit


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_MEMORY_LIMIT", "much")
    with pytest.raises(InputError, match=r"ENGRAM_MEMORY_LIMIT must be a number of bytes .* got 'much'"):
        load("digits")


def test_the_default_limit_is_a_third_of_the_memory() -> None:
    assert 10**8 < loading.affordable_bytes() < 10**13


def test_importing_the_package_brings_no_torch() -> None:
    code = "import sys, engram.datasets, engram.datasets.find; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_what_is_fetched_is_known() -> None:
    assert set(PUBLISHED) <= set(DATASETS)
    for info in (DATASETS[name] for name in DATASETS):
        assert len(info.class_names) in (0, info.classes)
        assert len(info.superclasses) in (0, info.classes)
        assert info.part_of == "" or info.part_of in DATASETS


class TestRealData:
    def test_mnist(self, real_data: Path) -> None:
        mnist = load("mnist", real_data)
        assert (len(mnist.train), len(mnist.test), mnist.train.shape) == (60000, 10000, (1, 28, 28))
        assert mnist.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
        assert isinstance(mnist.train, InMemory)
        assert mnist.train.pixels.float().mean().item() / 255 == pytest.approx(0.1307, abs=1e-4)
        assert mnist.train.pixels.float().std().item() / 255 == pytest.approx(0.3081, abs=1e-4)

    def test_fashion_mnist(self, real_data: Path) -> None:
        fashion = load("fashion-mnist", real_data)
        assert fashion.train.labels.bincount().tolist() == [6000] * 10
        assert fashion.classes[int(fashion.train.labels[0])] == "Ankle boot"

    def test_a_part_of_devanagari(self, real_data: Path) -> None:
        if not (real_data / "devanagari.npz").is_file():
            pytest.skip("needs devanagari.npz beside mnist.npz")
        characters = load("devanagari", real_data)
        assert len(characters.classes) == int(characters.train.labels.max()) + 1 <= 46

    def test_cifar100(self, real_data: Path) -> None:
        if locate("cifar100", real_data) is None:
            pytest.skip("needs cifar100.npz, or the binary version of CIFAR-100, beside mnist.npz")
        cifar = load("cifar100", real_data)
        assert cifar.train.labels.bincount().tolist() == [500] * 100
        assert cifar.classes == DATASETS["cifar100"].class_names
        assert cifar.superclasses == DATASETS["cifar100"].superclasses
        assert cifar.superclass_names == DATASETS["cifar100"].superclass_names
        assert np.bincount(cifar.superclasses).tolist() == [5] * 20
