"""Rows are samples only if they are found among the samples."""

import numpy as np
import pytest
import torch

from engram.datasets.register import dataset
from engram.datasets.stream import Stream, TaskData
from engram.engine import sample_search
from engram.engine.sample_search import FROM_DISK, MOST_ROWS, SampleSearch
from engram.scenarios import split

STREAM = Stream(split("digits", setting="class"))
IMAGES = STREAM.train(0).prepared(torch.arange(len(STREAM.train(0))))


def test_rows_are_found_however_they_are_held() -> None:
    search = SampleSearch(STREAM)
    rows = IMAGES[:6].flatten(1)
    assert search([rows[:2], rows[2:3].numpy(), (rows[3:] * 255).byte()], 0) == 6
    assert search([rows.to_sparse(), rows.to(torch.complex64)], 0) == 12
    # Places of a memory that are not filled yet.
    assert search([torch.cat([torch.zeros(1000, 64), rows])], 0) == 6
    assert search([torch.eye(64), torch.zeros(5, 64), IMAGES.mean(dim=0), IMAGES.var(dim=0)], 0) == 0
    assert search([], 0) == search([torch.zeros(0, 64)], 0) == 0
    # Those of the second task.
    later = STREAM.train(1).prepared(torch.arange(3))
    assert (search([later], 0), search([later], 1)) == (0, 3)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions")
def test_rows_are_found_in_numbers_of_any_type() -> None:
    search = SampleSearch(STREAM)
    rows = IMAGES[:6]
    assert search([rows.to(torch.float8_e5m2).float()], 0) == search([rows.to(torch.float8_e5m2)], 0)
    assert search([(rows * 1000).to(torch.uint16), (rows * 1000).to(torch.uint32)], 0) == 12
    assert search([torch.quantize_per_tensor(rows, 1 / 255, 0, torch.quint8)], 0) == 6
    assert search([rows.numpy().astype(kind) for kind in (">f4", np.longdouble, np.clongdouble)], 0) == 18


def test_what_has_no_numbers_has_no_samples() -> None:
    given_up = IMAGES[:6].clone()
    given_up.untyped_storage().resize_(0)
    texts, dates = np.full((6, 64), "a"), np.zeros((6, 64), dtype="datetime64[s]")
    fields = np.zeros((6, 64), dtype=[("a", "f4"), ("b", "i4")])
    search = SampleSearch(STREAM)
    assert search([given_up, torch.empty(6, 64, device="meta"), texts, dates, fields], 0) == 0
    assert search([torch.full((6, 64), value) for value in (torch.nan, torch.inf)], 0) == 0


@pytest.mark.parametrize("size", [2, 4, 15])
def test_inputs_of_few_values_are_samples_only_if_they_are_equal(size: int) -> None:
    """Of so few values, any row correlates with a sample."""
    x = np.random.default_rng(0).normal(5, 1, (200, size)).astype(np.float32)
    y = np.arange(200) % 2
    dataset(f"test-few-values-{size}", inputs="table")(lambda: ((x, y), (x, y)))
    stream = Stream(split(f"test-few-values-{size}", classes_per_task=1, setting="class"))
    rows = stream.train(0).prepared(torch.arange(100))
    search = SampleSearch(stream)
    assert search([rows[:5], rows[5:7].double()], 0) == 7
    means = torch.stack([part.mean(dim=0) for part in rows.split(20)])
    assert search([means], 0) == 0


@pytest.mark.parametrize("one_by_one", [True, False])
def test_of_many_rows_some_are_compared(one_by_one: bool) -> None:
    rows = torch.cat([IMAGES, IMAGES, IMAGES]).flatten(1)
    assert len(rows) > 3 * MOST_ROWS
    found = SampleSearch(STREAM)(rows.unbind() if one_by_one else [rows], 0)
    assert found == pytest.approx(len(rows), abs=4)


def _read_from_disk(task: int, monkeypatch: pytest.MonkeyPatch, *, at_most: int = FROM_DISK) -> Stream:
    """The data, with one task that has to be read from disk."""
    stream = Stream(split("digits", setting="class"))
    in_memory = stream.train

    def train(number: int) -> TaskData:
        data = in_memory(number)
        data.in_memory = number != task
        return data

    monkeypatch.setattr(stream, "train", train)
    monkeypatch.setattr(sample_search, "FROM_DISK", at_most)
    return stream


@pytest.mark.parametrize("at_most", [FROM_DISK, 100])
def test_of_many_samples_on_disk_some_are_compared(at_most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    search = SampleSearch(_read_from_disk(0, monkeypatch, at_most=at_most))
    kept = torch.cat([IMAGES[:100].flatten(1), torch.eye(64)])
    assert search([kept], 0) == pytest.approx(100, abs=4) and search([IMAGES.mean(dim=0)], 0) == 0
    # Those that are not compared.
    assert search([IMAGES[1:3]], 0) == (2 if at_most == FROM_DISK else 0)


def test_only_what_is_found_on_disk_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    search = SampleSearch(_read_from_disk(1, monkeypatch, at_most=30))
    assert search([IMAGES[:5], torch.eye(64)], 1) == 5
