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


def test_report_leaves_out_a_run_whose_trace_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, page = tmp_path / "runs", tmp_path / "page.html"
    write_run(runs, "er", seed=0, tasks=2, updates=5)
    damaged = write_run(runs, "er", seed=1, tasks=2, updates=5)
    trace = damaged / "trace.parquet"
    trace.write_bytes(trace.read_bytes()[:100])
    assert _report(runs, "-o", page) == 0
    error = capsys.readouterr().err
    assert error.startswith(f"left out: {damaged}: it is damaged: ")
    assert error.count("run it again") == error.count("\n") == 1
    assert "Left out: er-1 (damaged)." in page.read_text()
    page.unlink()
    assert _report(damaged, "-o", page) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith("error: nothing to report: ") and "trace.parquet" in error and error.count("\n") == 1
    )
    assert not page.exists()


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
