"""Rows are samples only if they are found among the samples."""

import pytest
import torch

from engram.datasets.stream import Stream
from engram.engine import sample_search
from engram.engine.sample_search import MOST_ROWS, SampleSearch
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


@pytest.mark.parametrize("one_by_one", [True, False])
def test_of_many_rows_some_are_compared(one_by_one: bool) -> None:
    rows = torch.cat([IMAGES, IMAGES, IMAGES]).flatten(1)
    assert len(rows) > 3 * MOST_ROWS
    found = SampleSearch(STREAM)(rows.unbind() if one_by_one else [rows], 0)
    assert found == pytest.approx(len(rows), abs=4)


def test_of_many_samples_on_disk_some_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(split("digits", setting="class"))
    monkeypatch.setattr(stream.train(0), "in_memory", False)
    search = SampleSearch(stream)
    assert search([IMAGES[:100]], 0) == 100 and search([IMAGES.mean(dim=0)], 0) == 0
    monkeypatch.setattr(sample_search, "FROM_DISK", 100)
    assert search([IMAGES[:100]], 0) == pytest.approx(100, abs=4) and search([IMAGES.mean(dim=0)], 0) == 0
