"""The contract of executors, for those of this machine; `tests/interop` has those of clusters."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.executors.contract import CHECKS, Make

from engram.executors import Processes, Serial


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", [Serial, pytest.param(Processes, marks=pytest.mark.slow)])
def test_contract(make: Make, check: Callable[[Make, Path], None], tmp_path: Path) -> None:
    check(make, tmp_path)
