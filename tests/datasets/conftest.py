"""What the tests of data sets share: nothing outside their own folders, and small files to read."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from engram.datasets import loading
from engram.datasets.formats import Pixels


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty cache and no data folder, so that no test sees this machine's files."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ENGRAM_CACHE", str(cache))
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    monkeypatch.delenv("ENGRAM_MEMORY_LIMIT", raising=False)
    loading._kept.clear()
    yield cache
    loading._kept.clear()


@pytest.fixture
def noise() -> Callable[..., Pixels]:
    """Random bytes of a shape, the same for the same shape."""

    def make(*shape: int) -> Pixels:
        return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)

    return make
