"""A user's own arrays, PyTorch data sets and folders of images."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.datasets import InMemory, OnDisk, arrays, image_folder, load, torch_dataset
from engram.datasets.formats import Pixels

Noise = Callable[..., Pixels]
Y = np.array([0, 1, 2, 0])


class TestArrays:
    def test_a_name_for_each_content(self, noise: Noise) -> None:
        x = noise(4, 8, 8)
        name = arrays("mine", x, Y, x, Y)
        assert name == arrays("mine", x.copy(), Y.tolist(), x, torch.from_numpy(Y))
        other = x.copy()
        other[0, 0, 0] ^= 1
        assert arrays("mine", other, Y, x, Y) != name
        assert arrays("mine", x, Y, x, np.array([0, 1, 2, 1])) != name
        assert name.startswith("mine-") and len(name) == len("mine-") + 8

    def test_it_is_registered_and_loads(self, noise: Noise) -> None:
        x = noise(4, 8, 9, 3)
        name = arrays("mine", x, Y, x[:2], Y[:2], classes=("a", "b", "c"))
        info = DATASETS[name]
        assert (info.classes, info.shape, info.train, info.test) == (3, (3, 8, 9), 4, 2)
        dataset = load(name)
        assert (dataset.name, dataset.classes) == (name, ("a", "b", "c"))
        assert torch.equal(
            next(dataset.train.read([torch.tensor([2])])), torch.from_numpy(x[2:3].transpose(0, 3, 1, 2))
        )

    def test_later_changes_to_the_users_array_change_nothing(self, noise: Noise) -> None:
        x = noise(4, 8, 8)
        name = arrays("mine", x, Y, x, Y)
        x[:] = 0
        assert int(next(load(name).train.read([torch.arange(4)])).max()) > 0

    def test_floating_point_stays_as_it_is(self) -> None:
        x = np.linspace(-1, 1, 12).reshape(4, 3)
        dataset = load(arrays("features", x, Y, torch.from_numpy(x), Y))
        batch = next(dataset.test.read([torch.arange(4)]))
        assert batch.dtype == torch.float32
        assert torch.allclose(batch, torch.from_numpy(x).float())
        assert dataset.train.shape == (3,)

    @pytest.mark.parametrize(
        ("change", "complaint"),
        [
            ({"y_train": [0, 1, 2]}, "y_train has 3 labels for 4 samples"),
            ({"y_train": [0, 1, -2, 0]}, "y_train has label -2"),
            ({"y_train": [0.0, 1.0, 2.0, 0.0]}, "must be one whole number per sample"),
            ({"y_train": [0, 1, 0, 1]}, "class 2 is tested but has no training samples"),
            ({"x_train": np.zeros((4, 9, 8), np.uint8)}, "training samples have shape"),
            ({"x_train": np.zeros((4, 8, 8), np.int64)}, "x_train holds int64"),
            ({"x_train": np.full((4, 8, 8), np.nan)}, "not finite"),
            ({"x_train": np.zeros(4, np.uint8)}, "first axis must be the samples"),
            ({"classes": ["a"]}, "1 class names for 3 classes"),
            ({"name": "my data"}, "'my data' cannot name a data set"),
        ],
    )
    def test_bad_input_is_one_line(self, change: dict[str, Any], complaint: str, noise: Noise) -> None:
        x = noise(4, 8, 8)
        valid: dict[str, Any] = {"name": "mine", "x_train": x, "y_train": Y, "x_test": x, "y_test": Y}
        with pytest.raises(InputError, match=complaint) as error:
            arrays(**{**valid, **change})
        assert "\n" not in str(error.value)


class Pairs:
    """A map-style data set as people write them, with `targets` if told."""

    def __init__(self, images: list[Any], labels: list[int], targets: list[int] | None = None) -> None:
        self.images, self.labels = images, labels
        if targets is not None:
            self.targets = targets

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.images[index], self.labels[index]


class TestTorchDataset:
    def test_tensors_arrays_and_pictures_give_the_same(self, noise: Noise) -> None:
        x = noise(4, 6, 5, 3)
        forms: list[list[Any]] = [
            [torch.from_numpy(image.transpose(2, 0, 1).copy()) for image in x],
            list(x),
            [Image.fromarray(image) for image in x],
        ]
        names = {torch_dataset("pairs", Pairs(f, Y.tolist()), Pairs(f, Y.tolist())) for f in forms}
        assert names == {arrays("pairs", x, Y, x, Y)}
        assert isinstance(load(names.pop()).train, InMemory)

    def test_pytorchs_own_data_sets(self) -> None:
        tensors = TensorDataset(torch.rand(4, 1, 3, 3), torch.from_numpy(Y))
        name = torch_dataset("floats", tensors, tensors)
        batch = next(load(name).train.read([torch.tensor([1, 0])]))
        assert torch.equal(batch, tensors.tensors[0][[1, 0]])

    @pytest.mark.parametrize("targets", [None, [0, 1, 2, 0], [2, 1, 0, 2]])
    def test_what_does_not_fit_stays_where_it_is(
        self, targets: list[int] | None, noise: Noise, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ENGRAM_MEMORY_LIMIT", "100")
        x = noise(4, 6, 5, 3)
        # The third case has targets that its items contradict, as a target_transform makes them.
        pairs = Pairs(list(x), Y.tolist(), targets)
        name = torch_dataset("pairs", pairs, pairs)
        dataset = load(name)
        assert isinstance(dataset.train, OnDisk)
        assert dataset.train.labels.tolist() == Y.tolist()
        batch = next(dataset.train.read([torch.tensor([3, 1])]))
        assert torch.equal(batch, torch.from_numpy(x[[3, 1]].transpose(0, 3, 1, 2)))
        other = Pairs(list(255 - x), Y.tolist(), targets)
        assert torch_dataset("pairs", other, pairs) != name

    @pytest.mark.parametrize(
        ("images", "labels", "complaint"),
        [
            ([], [], "is empty"),
            ([np.zeros((2, 2)), np.zeros((3, 2))], [0, 0], "sample 1 of the train set has shape"),
            ([np.zeros((2, 2))] * 2, [0, -1], "has label -1"),
        ],
    )
    def test_bad_input_is_one_line(self, images: list[Any], labels: list[int], complaint: str) -> None:
        with pytest.raises(InputError, match=complaint) as error:
            torch_dataset("pairs", Pairs(images, labels), Pairs(images, labels))
        assert "\n" not in str(error.value)

    def test_items_must_be_pairs(self) -> None:
        with pytest.raises(InputError, match="item 0 of the train set must be"):
            torch_dataset("bare", [torch.zeros(1, 2, 2)], [torch.zeros(1, 2, 2)])


class TestImageFolder:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for label, name in enumerate(("ape", "bee")):
            for i in range(10):
                file = tmp_path / name / f"{i}.png"
                file.parent.mkdir(exist_ok=True)
                Image.new("L", (6, 4), 100 * label + i).save(file)
        return tmp_path

    def test_a_part_of_each_class_is_for_testing(self, folder: Path) -> None:
        name = image_folder("pets", folder)
        dataset = load(name)
        assert load(name) is dataset
        assert dataset.classes == ("ape", "bee")
        assert dataset.train.shape == (1, 4, 6)
        assert dataset.train.labels.bincount().tolist() == [8, 8]
        assert dataset.test.labels.bincount().tolist() == [2, 2]
        seen = [
            int(batch[0, 0, 0, 0])
            for part in (dataset.train, dataset.test)
            for batch in part.read([torch.tensor([i]) for i in range(len(part))])
        ]
        assert sorted(seen) == [*range(10), *range(100, 110)]

    def test_the_draw_follows_the_seed(self, folder: Path) -> None:
        assert image_folder("pets", folder, seed=1) == image_folder("pets", folder, seed=1)
        assert image_folder("pets", folder, seed=1) != image_folder("pets", folder, seed=2)

    def test_train_and_test_folders_are_kept(self, folder: Path) -> None:
        for part, digit in (("train", "1"), ("test", "2")):
            for name in ("ape", "bee"):
                (folder / part / name).mkdir(parents=True)
                (folder / name / f"{digit}.png").rename(folder / part / name / f"{digit}.png")
        dataset = load(image_folder("pets", folder, size=(2, 2)))
        assert (len(dataset.train), len(dataset.test), dataset.train.shape) == (2, 2, (1, 2, 2))

    def test_large_folders_stay_on_disk(self, folder: Path) -> None:
        assert isinstance(load(image_folder("pets", folder), memory_limit=10).train, OnDisk)

    @pytest.mark.parametrize(
        ("break_it", "complaint"),
        [
            (lambda f: f / "nowhere", "is not a folder"),
            (lambda f: f / "ape", "no training images found"),
        ],
    )
    def test_bad_folders(self, break_it: Callable[[Path], Path], complaint: str, folder: Path) -> None:
        with pytest.raises(InputError, match=complaint):
            image_folder("pets", break_it(folder))

    def test_a_class_needs_two_images(self, folder: Path) -> None:
        (folder / "cat").mkdir()
        with pytest.raises(InputError, match="cat has 0 images"):
            image_folder("pets", folder)

    def test_a_fraction_out_of_range(self, folder: Path) -> None:
        with pytest.raises(InputError, match="test_fraction must be above 0 and below 1, got 1"):
            image_folder("pets", folder, test_fraction=1)
