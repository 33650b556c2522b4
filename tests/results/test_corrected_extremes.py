"""Corrected extremes are the same in evaluator, run, files, commands, table and report."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import engram
from engram.cli import main
from engram.core.files import read_json, write_json
from engram.core.folder import RESULT, TRACE
from engram.evaluation.evaluator import Evaluator
from engram.metrics.extremes import REDRAWN, estimate_extremes
from engram.protocols.sweep_file import expand
from engram.record.run import Run
from engram.results.report import write_report
from engram.results.runs import find_runs

NAMES = {"AF", "RAF", "min-ACC", "WC-ACC", "WF10", "WF100", "WFinf", "WP10", "WP100", "WPinf"}
WARNING = "redraw evaluates other samples every time"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A short run on 20 of about 70 samples of each task."""
    return engram.run("split-digits", "er", out=tmp_path_factory.mktemp("runs"), updates=8, subset=20)


@pytest.fixture
def old(run: Run, tmp_path: Path) -> Path:
    """The same run as an earlier version left it."""
    folder = run.save(tmp_path / "old" / run.id).folder
    assert folder is not None
    result = read_json(folder / RESULT)
    later = ("extremes", "sizes", "checksums", "digest")
    write_json(folder / RESULT, {key: result[key] for key in result if key not in later})
    return folder


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    out, err = capsys.readouterr()
    assert stopped.value.code == 0, err
    return out, err


def estimated(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    extremes: dict[str, Any] = json.loads(printed(["metrics", *arguments, "--json"], capsys)[0])["extremes"]
    return extremes


def test_a_run_stores_its_estimates_and_the_sizes_of_its_test_sets(run: Run) -> None:
    assert run.folder is not None
    stored, loaded = run.estimates, Run.load(run.folder)
    assert stored is not None and stored.values.keys() == NAMES
    assert loaded.estimates == loaded.extremes == stored
    assert loaded.sizes == run.sizes and len(run.sizes or ()) == 5 and min(run.sizes or ()) > 60
    assert all(value.low <= value.corrected <= value.high for value in stored.values.values())
    # The metric stays as it was measured.
    assert run.metrics["WF10"] == run.measure().final["WF10"] > stored.values["WF10"].corrected


def test_commands_and_files_agree(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.folder is not None and run.estimates is not None and run.sizes is not None
    expected = run.estimates.as_json()
    assert estimated([str(run.folder)], capsys) == expected
    sizes = ",".join(map(str, run.sizes))
    counts = ["--classes", "2,2,2,2,2", "--test-sizes", sizes]
    assert estimated([str(run.folder / TRACE), *counts], capsys) == expected
    assert estimated([str(run.folder), *counts], capsys) == expected
    unknown = estimated([str(run.folder / TRACE)], capsys)["values"]["WF10"]
    known = expected["values"]["WF10"]
    assert unknown["high"] - unknown["low"] > known["high"] - known["low"]


def test_a_table_without_bits_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.csv"
    file.write_text("step,learning,task,correct,total\n1,0,0,9,10\n2,1,0,4,10\n2,1,1,2,10\n")
    assert estimated([str(file)], capsys) == {
        "values": {},
        "why": "needs a trace with bits, which record the samples that were right",
    }
    assert "extremes are not corrected: needs a trace with bits" in printed(["metrics", str(file)], capsys)[0]
    with pytest.raises(SystemExit):
        main(["metrics", str(file), "--test-sizes", "20,20"])
    assert "needs a trace with bits" in capsys.readouterr().err


def test_a_run_of_an_earlier_version_gains_them_from_its_trace(old: Path, run: Run) -> None:
    loaded = Run.load(old)
    assert loaded.estimates is None and loaded.sizes is None
    # The size of its test sets is unknown, so intervals are wider.
    assert loaded.extremes == estimate_extremes(run.trace, classes_seen=run.classes)
    assert loaded.extremes.values.keys() == NAMES
    runs = find_runs(old.parent)
    assert "WF10 low" not in runs.frame().columns
    assert runs.frame(compute_extremes=True)["WF10 low"][0] == loaded.extremes.values["WF10"].low


def test_an_earlier_run_on_whole_test_sets_is_known_to_be_exact(old: Path, run: Run) -> None:
    described = read_json(old / "experiment.json")
    described["evaluation"]["subset"] = 1000
    write_json(old / "experiment.json", described)
    loaded = Run.load(old)
    assert loaded.extremes.exact
    assert loaded.extremes.values["WF10"].corrected == run.metrics["WF10"]


def test_the_table_has_three_columns_more_for_every_extreme(run: Run) -> None:
    assert run.folder is not None and run.estimates is not None
    frame = find_runs(run.folder).frame()
    for name in NAMES:
        value = run.estimates.values[name]
        shown = frame.select(f"{name} corrected", f"{name} low", f"{name} high").row(0)
        assert shown == (value.corrected, value.low, value.high)


def test_the_report_shows_them(run: Run, old: Path, tmp_path: Path) -> None:
    page, plain = tmp_path / "new.html", tmp_path / "old.html"
    write_report([run], page)
    write_report(find_runs(old), plain)
    assert run.estimates is not None
    value = run.estimates.values["min-ACC"]
    text = f"corrected {100 * value.corrected:.1f} ({100 * value.low:.1f} to {100 * value.high:.1f})"
    assert text in page.read_text() and "without the bias of the subset" in page.read_text()
    assert "corrected" not in plain.read_text().partition("<script")[0]


def test_people_see_them_after_a_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.folder is not None and run.estimates is not None
    command = ["run", "split-digits", "er", "--updates", "8", "--subset", "20", "-q"]
    out, _ = printed([*command, "--out", str(run.folder.parent)], capsys)
    assert "On the whole test sets, as estimated from the subsets" in out
    assert f"{100 * run.estimates.values['min-ACC'].corrected:.2f}" in out


def test_whole_test_sets_print_nothing_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(["run", "split-digits", "er", "--updates", "2", "-q", "--out", str(tmp_path)], capsys)
    assert "min-ACC" in out and "subsets" not in out
    whole = find_runs(tmp_path)[0].estimates
    assert whole is not None and whole.exact


def test_the_evaluator_says_the_same_as_the_run_it_saves(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    tasks = [
        (torch.randn(60, 4, generator=generator), torch.randint(0, 3, (60,), generator=generator))
        for _ in range(2)
    ]
    watch, network = Evaluator(tasks, subset=30), nn.Linear(4, 3)
    for learning in range(2):
        for _ in range(5):
            with torch.no_grad():
                network.weight += 0.5 * torch.randn(3, 4, generator=generator)
            watch(network, learning=learning)
    saved = watch.save(tmp_path / "mine")
    assert saved.estimates == watch.extremes() == Run.load(tmp_path / "mine").extremes
    assert saved.sizes == (60, 60) and watch.extremes().values["WF10"].high > 0


@pytest.mark.filterwarnings("default")
def test_redraw_warns_and_is_not_corrected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "split-digits", "er", "--updates", "2", "--subset", "20", "--redraw"]
    out, err = printed([*command, "--out", str(tmp_path), "--json"], capsys)
    assert err.count(WARNING) == 1 and "min-ACC is up to 4 points too low" in err
    assert json.loads(out)["runs"][0]["extremes"] == {"values": {}, "why": REDRAWN}
    out, _ = printed([*command, "--out", str(tmp_path)], capsys)
    assert f"extremes are not corrected: {REDRAWN}" in out


def test_redraw_warns_from_python_and_in_a_sweep() -> None:
    with pytest.warns(UserWarning, match=WARNING) as warned:
        one = engram.run("split-digits", "er", redraw=True, updates=1, subset=20)
    assert len(warned) == 1 and one.extremes.why == REDRAWN
    with pytest.warns(UserWarning, match=WARNING) as warned:
        expand({"scenario": "split-digits", "method": ["er", "finetune"], "redraw": True, "subset": 20})
    assert len(warned) == 1


def test_the_explanation_mentions_subsets(capsys: pytest.CaptureFixture[str]) -> None:
    assert "on subsets" in printed(["explain", "min-ACC"], capsys)[0]
    assert "on subsets" not in printed(["explain", "ACC"], capsys)[0]
