"""Files that a command writes: never in place of what it reads, nor in the folder of a run."""

import subprocess
import sys
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
    (tmp_path / "lm" / "arc").mkdir(parents=True)
    samples = '{"doc_id": 0, "doc": {}, "acc": 1}\n{"doc_id": 1, "doc": {}, "acc": 0}\n'
    (tmp_path / "lm" / "arc" / "samples_arc_2024-01-01T00-00-00.jsonl").write_text(samples)
    for loop in ("loop", "loop.csv"):
        (tmp_path / loop).symlink_to(loop)
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
        "gate lm lm --html lm/arc/samples_arc_2024-01-01T00-00-00.jsonl",
        "report runs -o loop",
        "import log.csv -o loop.csv",
        "compact runs -o loop",
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


@pytest.mark.parametrize("folder", [".", "one/.."])
def test_a_store_is_written_beside_the_current_folder(
    engram: Engram, place: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(place / "runs")
    done = engram("compact", folder)
    assert done.returncode == 0 and Path(done.stdout.strip()) == place.resolve() / "runs-compact", done.stderr


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


def test_a_link_into_the_folder_of_a_run_names_that_folder(engram: Engram, place: Path) -> None:
    (place / "page.html").symlink_to(place / "runs" / "one" / "page.html")
    done = engram("report", "runs", "-o", "page.html")
    assert done.returncode == 2 and f"{place / 'runs' / 'one'} is the folder of a run" in done.stderr


@pytest.mark.parametrize("stream", ["/dev/stdout", "/dev/fd/1", "/dev/fd/3"])
def test_what_was_written_to_an_open_file_stays(place: Path, stream: str) -> None:
    (place / "log.md").write_text("before\n")
    command = f"{sys.executable} -m engram.cli gate hist/v1.csv hist/v2.csv --markdown {stream}"
    done = subprocess.run(f"{command} >> log.md 3>&1", shell=True, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1 and not done.stderr
    first, title, *_, last = (place / "log.md").read_text().splitlines()
    assert first == "before" and title.startswith("### Forgetting gate") and "max-drop" in last


def test_a_page_on_standard_output_is_all_there_is(place: Path) -> None:
    line = f"{sys.executable} -m engram.cli report runs -o /dev/stdout"
    subprocess.run(f"{line} > page.html", shell=True, check=True)
    subprocess.run(f"{line} | cat > piped.html", shell=True, check=True)
    page = (place / "page.html").read_text()
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n")
    assert (place / "piped.html").read_text() == page
    stopped = subprocess.run(f"{line} | head -1", shell=True, capture_output=True, check=True)
    assert stopped.stdout == b"<!doctype html>\n" and not stopped.stderr


def test_two_outputs_are_two_files(engram: Engram, place: Path) -> None:
    command = ["gate", "hist/v1.csv", "hist/v2.csv"]
    done = engram(*command, "--junit", "gate.xml", "--html", "hist/../gate.xml")
    assert done.returncode == 2 and "--junit and --html name the same file, gate.xml" in done.stderr
    assert not (place / "gate.xml").exists()
    assert engram(*command, "--junit", "/dev/null", "--html", "/dev/null").returncode == 1
