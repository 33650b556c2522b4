"""Files that a command writes: never in place of what it reads, nor in the folder of a run."""

from pathlib import Path

import pytest
from tests.cli.command import Engram
from tests.results.simulated import write_run

ROWS = "id,correct\n1,1\n2,0\n"


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a run, versions of a model, and a log of accuracies."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs", "er", seed=0, tasks=2, updates=5).rename(tmp_path / "runs" / "one")
    (tmp_path / "hist").mkdir()
    for version in ("v1.csv", "v2.csv"):
        (tmp_path / "hist" / version).write_text(ROWS)
    (tmp_path / "link.csv").symlink_to(tmp_path / "hist" / "v2.csv")
    (tmp_path / "log.csv").write_text("step,task 0 accuracy,task 1 accuracy\n1,0.5,\n2,0.4,0.9\n")
    (tmp_path / "own.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "history hist -o hist/v2.csv",
        "history hist -o link.csv",
        "gate hist/v1.csv hist/v2.csv --junit hist/v2.csv",
        "gate hist/v1.csv hist/v2.csv --markdown hist/v1.csv",
        "gate hist/v1.csv hist/v2.csv --html link.csv",
        "import log.csv -o log.csv",
        "report runs --plugin own.py -o own.py",
        "report runs -o runs/one/result.json",
        "table runs -o runs/one/table.csv",
        "compute runs -o runs/one/compute.html",
        "autopsy runs/one -o runs/one/card.json",
        "samples runs/one -o runs/one/trace.parquet",
    ],
)
def test_what_is_read_is_not_replaced(engram: Engram, place: Path, command: str) -> None:
    before = _contents(place)
    done = engram(*command.split())
    assert done.returncode == 2 and done.stderr.startswith("error: cannot write "), done.stderr
    assert len(done.stderr.splitlines()) == 1 and _contents(place) == before


def test_tables_of_a_store_are_not_replaced(engram: Engram, place: Path) -> None:
    assert engram("compact", "runs", "-o", "store").returncode == 0
    before = _contents(place / "store")
    for command in (["table", "store"], ["samples", "store/er-0"]):
        for table in before:
            done = engram(*command, "-o", table)
            assert done.returncode == 2 and "this command reads it" in done.stderr, done.stderr
    assert _contents(place / "store") == before


def test_a_page_beside_runs_and_versions_is_written_again(engram: Engram, place: Path) -> None:
    for _ in range(2):
        assert engram("history", "hist", "-o", "hist/history.html").returncode == 0
        assert engram("table", "runs", "-o", "runs/table.parquet").returncode == 0


@pytest.mark.parametrize(
    "command", ["report runs -o", "history hist -o", "gate hist/v1.csv hist/v1.csv --markdown"]
)
def test_an_empty_name_is_one_line(engram: Engram, place: Path, command: str) -> None:
    done = engram(*command.split(), "")
    assert done.returncode == 2 and done.stderr.startswith("error: cannot write "), done.stderr
    assert "name a file" in done.stderr
