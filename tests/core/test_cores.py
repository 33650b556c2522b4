import os
from pathlib import Path

import pytest

from engram.core import cores as module
from engram.core.cores import cores


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("max 100000", 8), ("300000 100000", 3), ("50000 100000", 1), ("1600000 100000", 8), ("broken", 8)],
)
def test_the_quota_of_a_container_counts(
    text: str, wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    monkeypatch.setattr(module, "_QUOTA", quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert cores() == wanted
