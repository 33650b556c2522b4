"""Data sets of Hugging Face and torchvision, as their interfaces are, without either library."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import engram
from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.datasets import load, torch_dataset
from engram.scenarios import split


class ClassLabel:
    """As `datasets.ClassLabel`."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.num_classes = names, len(names)


class Column:
    """A column of a data set as `datasets` 4 and later gives it."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __getitem__(self, index: int) -> Any:
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)


class HuggingFace:
    """As `datasets.Dataset`: rows are dicts, columns are reached by name, and it is not a Mapping."""

    def __init__(self, columns: dict[str, list[Any]], names: list[str]) -> None:
        self._columns = columns
        self.features = {name: object() for name in columns} | {"label": ClassLabel(names)}
        self.column_names = list(columns)

    def __len__(self) -> int:
        return len(self._columns["label"])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return Column(self._columns[key])
        return {name: values[key] for name, values in self._columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[row] for row in range(len(self)))


class DatasetDict(dict[str, HuggingFace]):
    """As `datasets.DatasetDict`."""


class TorchVision:
    """As `torchvision.datasets.MNIST`: PIL images and numbers, with `targets`, `classes` and a transform."""

    def __init__(self, images: np.ndarray[Any, Any], targets: list[int]) -> None:
        self.data, self.targets = torch.from_numpy(images), torch.tensor(targets)
        self.classes = ["0 - zero", "1 - one"]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return Image.fromarray(self.data[index].numpy(), mode="L"), int(self.targets[index])


LABELS = [0, 1, 0, 1, 0, 1, 0, 1]


def rows(**columns: list[Any]) -> HuggingFace:
    return HuggingFace({**columns, "label": LABELS}, ["cat", "dog"])


def test_a_dataset_dict_of_pictures() -> None:
    draw = np.random.default_rng(0)
    pictures = [Image.fromarray(draw.integers(0, 255, (6, 5, 3)).astype(np.uint8)) for _ in LABELS]
    both = DatasetDict(train=rows(image=pictures), test=rows(image=pictures))
    info = DATASETS[torch_dataset("pets", both)]
    assert (info.shape, info.class_names, info.inputs, info.bytes) == (
        (3, 6, 5),
        ("cat", "dog"),
        "image",
        True,
    )


def test_tokens_of_a_tokenizer() -> None:
    ids = [[label, 5, 9, 0] for label in LABELS]
    mask = [[1, 1, 1, 0]] * len(LABELS)
    data = rows(input_ids=ids, attention_mask=mask, text=["some text"] * len(LABELS))
    name = torch_dataset("texts", data, data)
    info = DATASETS[name]
    assert (info.shape, info.inputs, info.vocabulary) == ((4,), "tokens", 10)
    assert next(iter(load(name).train.read([torch.tensor([1])]))).tolist() == [ids[1]]
    run = engram.run(split(name, 1, setting="class"), "er", updates=1)
    assert run.experiment.model.name == "embedding-mlp" and run.experiment.model.vocabulary == 10


def test_torchvision_as_it_is() -> None:
    images = np.random.default_rng(0).integers(0, 255, (8, 7, 7)).astype(np.uint8)
    data = TorchVision(images, LABELS)
    info = DATASETS[torch_dataset("digits-of-mine", data, data)]
    assert (info.shape, info.class_names) == ((1, 7, 7), ("0 - zero", "1 - one"))


def test_series_as_lists() -> None:
    data = rows(signal=[[[0.5, 1.0], [1.5, 2.0], [0.0, 0.0]]] * len(LABELS))
    info = DATASETS[torch_dataset("signals", data, data)]
    assert (info.shape, info.inputs, info.bytes) == ((3, 2), "series", False)


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ({"a": [1.0] * 8, "b": [2.0] * 8}, {}, "which is the sample of the train set?"),
        ({"x": [[1.0]] * 8}, {"label": "kind"}, "the label of the train set cannot be 'kind'"),
        ({"x": [[1.0]] * 8}, {"x": "y"}, "the sample of the train set cannot be 'y'"),
        ({"x": [[1.0]] * 7 + [[1.0, 2.0]]}, {}, "sample 7 of the train set has shape"),
        ({"x": ["some text"] * 8}, {}, "its samples must be numbers"),
        ({"x": [[1.0, [2.0]]] * 8}, {}, "is ragged"),
    ],
)
def test_bad_items_are_one_line(columns: dict[str, Any], options: dict[str, str], complaint: str) -> None:
    data = rows(**columns)
    with pytest.raises(InputError, match=complaint) as error:
        torch_dataset("bad", data, data, **options)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_a_mapping_must_have_both_parts() -> None:
    with pytest.raises(InputError, match="a mapping with train and test"):
        torch_dataset("half", DatasetDict(train=rows(x=[[1.0]] * 8)))


def test_a_plugins_function_may_return_them() -> None:
    @engram.dataset("test-dataset-dict")
    def both() -> DatasetDict:
        return DatasetDict(train=rows(x=[[1.0, 2.0]] * 8), test=rows(x=[[1.0, 2.0]] * 8))

    assert DATASETS["test-dataset-dict"].inputs == "table"
    assert engram.run("split:test-dataset-dict", "finetune", classes_per_task=1, updates=1).updates == 2
