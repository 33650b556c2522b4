"""Records are extended by the runs of one folder after the other."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from engram.core.jsons import JsonObject
from engram.papers import recorded, renew
from engram.papers.extend import record_of
from engram.papers.recorded import everything


def test_two_folders_extend_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, docs = tmp_path / "recorded", tmp_path / "docs"
    shutil.copytree(renew.RECORDS, records)
    shutil.copy(renew.RECORDS.parent / "explained.toml", tmp_path)
    docs.mkdir()
    shutil.copy(Path(__file__).parents[2] / "docs" / "reproduced.md", docs)

    def with_finished(name: str, folder: Path) -> JsonObject:
        written = record_of(name)
        return {**written, "from": [*written.get("from", []), folder.name]}

    monkeypatch.setattr(renew, "RECORDS", records)
    monkeypatch.setattr(renew, "with_finished", with_finished)
    monkeypatch.setattr(recorded, "files", lambda _: tmp_path)
    options = [word for folder in ("a", "b") for word in ("--extend", "002-table3", folder)]
    monkeypatch.setattr(sys, "argv", ["renew", *options, "--docs", str(docs)])
    everything.cache_clear()
    try:
        renew.main()
    finally:
        everything.cache_clear()
    assert json.loads((records / "002-table3.json").read_text())["from"] == ["a", "b"]
    assert (docs / "reproduction.md").is_file()
