"""Two levels of samples, and thinned updates, on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.cli import main
from engram.core.errors import InputError
from engram.protocols.sweep_file import expand


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    out, err = capsys.readouterr()
    return ended.value.code, out, err


RUN = ["run", "split-digits", "finetune", "--updates", "6"]


def test_run_metrics_report_and_compare_know_two_levels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path)]
    code, _, err = run([*RUN, *out, "--samples", "two-level:20", "--json"], capsys)
    assert code == 0
    assert "20 of 72 samples of each task at every evaluation" in err
    code, shown, err = run([*RUN, *out, "--samples", "two-level:20"], capsys)
    assert code == 0 and "95 % interval" in shown
    folder = next(path for path in tmp_path.iterdir() if (path / "anchors.parquet").is_file())
    code, shown, err = run(["metrics", str(folder)], capsys)
    assert code == 0 and "two-level samples: 20 of the" in err.lower()
    page = (tmp_path / "split-digits-finetune.html").read_text()
    assert "Two-level samples: 20 of the" in page and "exact where they were asked" in page
    other = ["run", "split-digits", "er", *RUN[3:], *out, "--samples", "two-level:20", "--json"]
    assert run(other, capsys)[0] == 0
    code, shown, err = run(["compare", str(tmp_path)], capsys)
    assert (code, err) == (0, "") and "min-ACC" in shown
    code, shown, err = run(["table", str(tmp_path)], capsys)
    assert (code, err) == (0, "") and "min-ACC" in shown


def test_thinned_updates_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run([*RUN, "--out", str(tmp_path), "--every", "3"], capsys)
    assert code == 0
    line = "only every 3rd update was evaluated, so brief dips are missed"
    assert err.count(line) == 1 and "--samples two-level" not in err, "refused with so few samples"
    assert "Only every 3rd update" in (tmp_path / "split-digits-finetune.html").read_text()
    folder = next(path for path in tmp_path.iterdir() if path.is_dir())
    code, _, err = run(["metrics", str(folder), "--json"], capsys)
    assert code == 0 and err.count("nly every 3rd update") == 1
    code, _, err = run([*RUN, "--out", str(tmp_path / "all")], capsys)
    assert code == 0 and "missed" not in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--samples", "all"], "samples must be two-level or two-level:N"),
        (["--samples", "two-level"], "no task has more than"),
        (["--samples", "two-level:20", "--redraw"], "leave one of them out"),
        (["--samples", "two-level:20", "--full-ends"], "leave full_ends out"),
    ],
)
def test_bad_options_are_one_line(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run([*RUN, "--out", str(tmp_path / "new"), *options], capsys)
    assert (code, out) == (2, "")
    assert words in err and len(err.strip().splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_a_sweep_takes_two_levels() -> None:
    table = {"scenario": "split-digits", "method": "finetune", "samples": ["two-level:20", "two-level:30"]}
    experiments = expand(table).experiments
    assert [experiment.evaluation.samples for experiment in experiments] == table["samples"]
    with pytest.raises(InputError, match="no task has more than"):
        expand({**table, "samples": "two-level"})
