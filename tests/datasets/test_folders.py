"""Folders of images in the layouts in which data sets are published."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram.core.errors import InputError
from engram.datasets import InMemory, OnDisk, load

Painter = Callable[..., None]


@pytest.fixture
def paint(tmp_path: Path) -> Painter:
    """Writes an image of one brightness at a path below the test's folder."""

    def make(path: str, brightness: int = 0, *, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, brightness if mode == "L" else (brightness,) * 3).save(file)

    return make


def brightness(images: object) -> list[int]:
    assert isinstance(images, InMemory)
    return images.pixels[:, 0, 0, 0].tolist()


def test_tiny_imagenet(paint: Painter, tmp_path: Path) -> None:
    root = "tiny-imagenet-200"
    for i, wnid in enumerate(("n02", "n01")):
        for j in range(2):
            paint(f"{root}/train/{wnid}/images/{wnid}_{j}.png", 10 * i + j, size=(64, 64))
        paint(f"{root}/val/images/val_{i}.png", 100 + i, size=(64, 64))
    (tmp_path / root / "wnids.txt").write_text("n02\nn01\n")
    (tmp_path / root / "val/val_annotations.txt").write_text("val_1.png\tn01\t0\t0\nval_0.png\tn02\t0\t0\n")
    dataset = load("tiny-imagenet", tmp_path)
    assert dataset.classes == ("n01", "n02")
    assert dataset.train.shape == (3, 64, 64)
    assert brightness(dataset.train) == [10, 11, 0, 1]
    assert dataset.train.labels.tolist() == [0, 0, 1, 1]
    assert (brightness(dataset.test), dataset.test.labels.tolist()) == ([101, 100], [0, 1])
    (tmp_path / root / "val/val_annotations.txt").write_text("val_1.png\tn77\t0\t0\n")
    (tmp_path / root / "changed").touch()
    with pytest.raises(InputError, match="whose class is not a folder of train"):
        load("tiny-imagenet", tmp_path)


def test_imagenet_is_scaled_and_cut_to_size(tmp_path: Path) -> None:
    halves = Image.new("L", (600, 300))
    halves.paste(255, (150, 0, 450, 300))
    for part in ("train", "val"):
        (tmp_path / "imagenet" / part / "n01440764").mkdir(parents=True)
        halves.save(tmp_path / "imagenet" / part / "n01440764" / "a.JPEG", quality=95)
    dataset = load("imagenet", tmp_path)
    assert dataset.train.shape == (3, 224, 224)
    # The centre square is white from edge to edge; the black sides are cut off.
    assert isinstance(dataset.train, InMemory)
    assert int(dataset.train.pixels[0, :, :, 4:-4].min()) > 245


def test_imagenets_validation_images_must_be_sorted(paint: Painter, tmp_path: Path) -> None:
    paint("imagenet/train/n01440764/a.png")
    paint("imagenet/val/ILSVRC2012_val_00000001.png")
    with pytest.raises(InputError, match="sort the validation images into one folder per class"):
        load("imagenet", tmp_path)


@pytest.mark.parametrize("split", [("",), ("train/", "test/")])
def test_mini_imagenet_keeps_the_last_hundred_for_testing(
    split: tuple[str, ...], paint: Painter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engram.datasets.folders.MINI_IMAGENET_TRAIN", 3)
    for i in range(2):
        for j in range(4):
            paint(f"mini-imagenet/{split[i % len(split)]}n{i}/{j}.png", 10 * i + j, size=(84, 84))
    dataset = load("mini-imagenet", tmp_path)
    assert brightness(dataset.train) == [0, 1, 2, 10, 11, 12]
    assert brightness(dataset.test) == [3, 13]


def test_mini_imagenets_pickle_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "mini-imagenet").mkdir()
    (tmp_path / "mini-imagenet" / "mini-imagenet-cache-train.pkl").touch()
    with pytest.raises(InputError, match=r"one folder of 600 images per class .*cache-train\.pkl is pickled"):
        load("mini-imagenet", tmp_path)


@pytest.mark.parametrize(("home", "lists"), [("domainnet", "splits_mini/"), ("mini-domainnet", "")])
def test_domainnet_and_its_domains(home: str, lists: str, paint: Painter, tmp_path: Path) -> None:
    for i, domain in enumerate(("clipart", "painting", "real", "sketch")):
        for part in ("train", "test"):
            path = f"{domain}/zebra crossing/{part}.png"
            paint(f"{home}/{path}", 50 * i, size=(96, 96))
            file = tmp_path / home / f"{lists}{domain}_{part}.txt"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{path} 1\n")
    real = load("mini-domainnet-real", tmp_path)
    assert (brightness(real.train), real.train.labels.tolist()) == ([100], [1])
    assert real.classes == ("0", "zebra crossing")
    assert brightness(load("mini-domainnet", tmp_path).test) == [0, 50, 100, 150]
    (tmp_path / home / f"{lists}real_train.txt").write_text("real/zebra/1.png 126\n")
    (tmp_path / home / "changed").touch()
    with pytest.raises(InputError, match="has label 126"):
        load("mini-domainnet-real", tmp_path)


def test_the_full_domainnet_is_not_taken_for_the_mini_one(paint: Painter, tmp_path: Path) -> None:
    paint("domainnet/real/zebra/1.png")
    for part in ("train", "test"):
        (tmp_path / "domainnet" / f"real_{part}.txt").write_text("real/zebra/1.png 344\n")
    with pytest.raises(InputError, match="not found"):
        load("mini-domainnet-real", tmp_path)


def test_clear_by_years_without_the_background(paint: Painter, tmp_path: Path) -> None:
    for part in ("train_image_only", "test"):
        for bucket in (1, 10):
            for i, name in enumerate(("BACKGROUND", "bus", "camera")):
                paint(
                    f"clear10/{part}/labeled_images/{bucket}/{name}/x.png", 10 * bucket + i, size=(224, 224)
                )
    whole = load("clear10", tmp_path)
    assert whole.classes == ("bus", "camera")
    assert sorted(brightness(whole.train)) == [11, 12, 101, 102]
    assert brightness(load("clear10-2014", tmp_path).test) == [101, 102]
    (tmp_path / "clear10/train_image_only/class_names.txt").write_text("camera\nBACKGROUND\nbus\n")
    (tmp_path / "clear10/changed").touch()
    assert load("clear10-2005", tmp_path).classes == ("camera", "bus")


def test_notmnist_leaves_out_what_is_no_image(paint: Painter, tmp_path: Path) -> None:
    for part in ("notMNIST_large", "notMNIST_small"):
        for i, letter in enumerate("AB"):
            paint(f"{part}/{letter}/one.png", 50 + i, size=(28, 28), mode="L")
    (tmp_path / "notMNIST_large/A/broken.png").touch()
    dataset = load("notmnist", tmp_path)
    assert brightness(dataset.train) == [50, 51]
    assert dataset.train.shape == (1, 28, 28)
    assert dataset.train.labels.tolist() == [0, 1]


def test_fruits_are_the_ten_largest_classes(paint: Painter, tmp_path: Path) -> None:
    for i in range(11):
        for part in ("Training", "Test"):
            for j in range(1 if i == 4 else 3 if i == 7 else 2):
                paint(f"fruits-360/{part}/Fruit {i}/{j}.png", i, size=(100, 100))
    dataset = load("fruits-360", tmp_path)
    assert dataset.classes == tuple(f"Fruit {i}" for i in (7, 0, 1, 2, 3, 5, 6, 8, 9, 10))
    assert brightness(dataset.test)[:4] == [7, 7, 7, 0]


def test_devanagari_counts_characters_as_people_do(paint: Painter, tmp_path: Path) -> None:
    for part in ("Train", "Test"):
        for name in ("character_10_yna", "character_2_kha", "digit_0"):
            paint(f"DevanagariHandwrittenCharacterDataset/{part}/{name}/1.png", size=(32, 32), mode="L")
    dataset = load("devanagari", tmp_path)
    assert dataset.classes == ("character_2_kha", "character_10_yna", "digit_0")


def test_madbase_has_its_digits_in_the_file_names(paint: Painter, tmp_path: Path) -> None:
    for part in ("TrainingSet", "TestingSet"):
        for digit in (3, 0):
            paint(
                f"MAHDBase_{part}/Part01/writer001_pass01_digit{digit}.bmp",
                digit,
                size=(28, 28),
                mode="L",
            )
    dataset = load("madbase", tmp_path)
    assert dataset.train.labels.tolist() == [0, 3]
    assert brightness(dataset.test) == [0, 3]


def test_a_class_that_is_only_tested_is_refused(paint: Painter, tmp_path: Path) -> None:
    paint("imagenet/train/n01/a.png")
    paint("imagenet/val/n02/a.png")
    with pytest.raises(InputError, match="has the class 'n02', which"):
        load("imagenet", tmp_path)


def test_images_that_do_not_fit_in_memory_are_read_when_asked(paint: Painter, tmp_path: Path) -> None:
    for part in ("notMNIST_large", "notMNIST_small"):
        for i in range(5):
            paint(f"{part}/A/{i}.png", 10 * i, size=(28, 28), mode="L")
    inside = load("notmnist", tmp_path)
    outside = load("notmnist", tmp_path, memory_limit=1000)
    assert isinstance(inside.train, InMemory)
    assert isinstance(outside.train, OnDisk)
    import torch

    batches = [torch.tensor([4, 0]), torch.tensor([], dtype=torch.int64), torch.tensor([2, 2, 1])]
    for a, b in zip(inside.train.read(batches), outside.train.read(batches), strict=True):
        assert a.dtype == b.dtype == torch.uint8
        assert torch.equal(a, b)
    Path(tmp_path / "notMNIST_large/A/3.png").write_bytes(b"no longer an image")
    with pytest.raises(InputError, match=r"cannot read the image .*3\.png") as error:
        list(outside.train.read([torch.tensor([3])]))
    assert "\n" not in str(error.value)


def test_without_pillow_one_line_says_how_to_get_it(
    paint: Painter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("train", "val"):
        paint(f"imagenet/{part}/n01440764/a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match=r"pip install 'engram-eval\[images\]'"):
        load("imagenet", tmp_path)


def test_grey_and_palette_images_become_colour_where_colour_is_wanted(tmp_path: Path) -> None:
    for part, mode in (("train", "L"), ("val", "P")):
        folder = tmp_path / "imagenet" / part / "n01440764"
        folder.mkdir(parents=True)
        Image.fromarray(np.full((224, 224), 77, np.uint8)).convert(mode).save(folder / "a.png")
    dataset = load("imagenet", tmp_path)
    assert isinstance(dataset.test, InMemory)
    assert dataset.test.pixels[0, :, 0, 0].tolist() == [77, 77, 77]
