from pathlib import Path

import pytest
from tests.results.simulated import write_run

from engram.cli import main


def _report(*arguments: object) -> object:
    with pytest.raises(SystemExit) as ended:
        main(["report", *map(str, arguments)])
    return ended.value.code


def test_report_prints_the_path_of_the_page_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs", "er", seed=0, tasks=2, updates=5)
    begun = write_run(tmp_path / "runs", "er", seed=1, tasks=2, updates=5)
    (begun / "result.json").unlink()
    page = tmp_path / "pages" / "mine.html"
    assert _report(tmp_path / "runs", "-o", page) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{page}\n"
    assert f"left out: {begun}: it is not finished" in printed.err
    assert "Left out: er-1 (unfinished)." in page.read_text()
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_report_goes_to_report_html_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path, "er", seed=0, tasks=2, updates=5)
    monkeypatch.chdir(tmp_path)
    assert _report(run) == 0
    assert (tmp_path / "report.html").is_file()


def test_report_refuses_what_is_no_run_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _report(tmp_path / "absent", "-o", tmp_path / "page.html") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: no such run: ")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
