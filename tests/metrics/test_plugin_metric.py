"""A metric of one's own is one function in one file; every command knows it, and finished runs gain it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.results.simulated import write_run

from engram.cli import main
from engram.core.errors import InputError
from engram.core.plugins import load_plugin
from engram.core.trace import Trace
from engram.evaluation.evaluator import Evaluator
from engram.metrics import METRICS
from engram.metrics.examples import worked_curve, worked_matrix
from engram.metrics.registry import users_metrics
from engram.metrics.summary import summarise
from engram.results.runs import find_runs

PLUGIN = '''\
import numpy as np

import engram


@engram.metric("worst-task", higher_is_better=True, source="Doe et al. (2026), Eq. 7")
def worst_task(acc):
    """The accuracy of the worst task learned so far, after each task.

    Formula: min_{j≤k} acc[k, j]
    Divisor: none
    NaN: undefined: no task was evaluated after it was learned
    """
    return np.array([np.nanmin(row[: k + 1]) for k, row in enumerate(acc)])
'''

MANY = """\
import numpy as np

import engram
from engram.metrics import History
from engram.metrics.streaming import CurrentAccuracy


@engram.metric("spread", higher_is_better=False, needs="curve", stream=CurrentAccuracy)
def spread(curve):
    return History(np.where(curve.being_learned(), curve.accuracy, np.nan))


@engram.metric("mean-last", higher_is_better=True, average=True)
def mean_last(acc):
    return acc[-1]


@engram.metric("per-class", higher_is_better=True, needs="classes")
def per_class(acc, classes):
    return acc[-1, 0] / classes[-1]


@engram.metric("ever-right", higher_is_better=True, needs="bits")
def ever_right(trace):
    return np.mean(np.any([trace.right(row) for row in range(len(trace))], axis=0))


@engram.metric("drop", higher_is_better=False, needs="curve", named_by="window")
def drop(curve, *, window=10):
    return 0.0 if window is None else window / 100


@engram.metric("asked", higher_is_better=True, needs="samples")
def asked(acc, samples):
    return np.nansum(samples[-1]) / 1000


@engram.metric("both", higher_is_better=True, needs=("matrix", "curve"))
def both(acc, curve):
    return len(curve) / 100 + acc[-1, 0]
"""

Engram = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of 15 lines; what it registers is forgotten after the test."""
    assert len([line for line in PLUGIN.splitlines() if line.strip()]) <= 15
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    script = tmp_path / "worst_task.py"
    script.write_text(PLUGIN)
    return script


@pytest.fixture
def engram(capsys: pytest.CaptureFixture[str]) -> Engram:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return call


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Runs that were made before anybody thought of the metric."""
    folder = tmp_path / "runs"
    for method in ("finetune", "er"):
        for seed in range(6):
            run = write_run(folder, method, seed=seed, tasks=3, updates=10, probes=False)
            assert "worst-task" not in json.loads((run / "result.json").read_text())["metrics"]
    return folder


def test_it_is_measured_with_all_others(plugin: Path, tmp_path: Path, engram: Engram) -> None:
    file = tmp_path / "matrix.csv"
    file.write_text(".98\n.91,.90\n.85,.92,.95\n")
    code, out, _ = engram("metrics", file, "--json", "--plugin", plugin)
    measured = json.loads(out)
    assert code == 0
    assert measured["final"]["worst-task"] == 0.85
    assert measured["by_task"]["worst-task"] == [0.98, 0.90, 0.85]
    _, out, _ = engram("metrics", file, "--plugin", plugin)
    assert "The accuracy of the worst" in out and out.count("worst-task") == 2


def test_it_is_listed_and_explained(plugin: Path, engram: Engram) -> None:
    code, out, _ = engram("list", "metrics", "--plugin", plugin, "--json")
    [entry] = [entry for entry in json.loads(out)["metrics"] if entry["name"] == "worst-task"]
    assert code == 0 and entry["title"] == "worst task" and entry["higher_is_better"] is True
    assert entry["source"] == "Doe et al. (2026), Eq. 7"
    _, out, _ = engram("explain", "WORST-task", "--plugin", plugin)
    for part in (
        "min_{j≤k} acc[k, j]",
        "Eq. 7",
        "Higher is better.",
        "worst-task = 0.600000",
        "worst_task.py",
    ):
        assert part in out


def test_finished_runs_gain_it(plugin: Path, runs: Path) -> None:
    load_plugin(plugin)
    assert users_metrics() == ("worst-task",)
    for run in find_runs([runs]):
        matrix = run.matrix
        assert run.metrics["worst-task"] == matrix[-1].min()
        assert run.metrics["ACC"] == run.stored["ACC"]


def test_nothing_is_read_where_nothing_is_missing(runs: Path) -> None:
    for run in find_runs([runs]):
        assert run.folder is not None
        replace(run, why={"FWT": "left out"}).save()
        (run.folder / "trace.parquet").write_bytes(b"")
    assert all("ACC" in run.metrics for run in find_runs([runs]))


@pytest.mark.parametrize("named", [True, False])
def test_runs_are_compared_by_it(named: bool, plugin: Path, runs: Path, engram: Engram) -> None:
    options = ["--metric", "Worst-Task"] if named else []
    code, out, _ = engram("compare", runs, "--plugin", plugin, "--json", *options)
    assert code == 0
    ranking = json.loads(out)["metrics"]["worst-task"]
    assert ranking["higher_is_better"] is True
    assert [place["method"] for place in ranking["ranking"]] == ["er", "finetune"]
    plugin.write_text(PLUGIN.replace("higher_is_better=True", "higher_is_better=False"))
    _, out, _ = engram("compare", runs, "--plugin", plugin, *options)
    assert "worst-task, in percent: lower is better" in out


def test_a_metric_without_its_plugin_has_no_direction(runs: Path, engram: Engram) -> None:
    for run in find_runs([runs]):
        replace(run, stored={**run.stored, "theirs": 0.5}).save()
    code, _, err = engram("compare", runs, "--metric", "theirs")
    assert code == 2 and err.count("\n") == 1
    assert "pass the file that registers it with --plugin" in err


def test_the_report_has_it(plugin: Path, runs: Path, tmp_path: Path, engram: Engram) -> None:
    code, _, _ = engram("report", runs, "--out", tmp_path / "report.html", "--plugin", plugin)
    page = (tmp_path / "report.html").read_text()
    assert code == 0
    assert "worst-task, worst task: The accuracy of the worst task learned so far" in page
    assert "Source: Doe et al. (2026), Eq. 7." in page


def test_grids_may_choose_by_it(plugin: Path) -> None:
    from engram.protocols.grid import metric_name

    load_plugin(plugin)
    assert metric_name("WORST-TASK") == "worst-task"
    assert METRICS["worst-task"].task_ends_suffice


def test_everything_that_a_metric_may_ask_for_and_return(plugin: Path) -> None:
    plugin.write_text(MANY)
    load_plugin(plugin)
    result = summarise(worked_curve())
    assert result.curve["spread"] == result.curve["current-ACC"]
    assert result.final["mean-last"] == pytest.approx(result.final["AvgAcc"])
    assert result.final["drop10"] == 0.1 and result.final["dropinf"] == 0.0
    assert result.final["both"] == 0.13 + 0.88
    for name, need in {"per-class": "classes", "ever-right": "bits", "asked": "samples"}.items():
        assert name not in result.final and need in result.why[name]
    assert summarise(worked_matrix(), classes_seen=[2, 4, 6, 8, 10]).final["per-class"] == 0.075
    trace = Trace()
    trace.add(step=1, learning=0, task=0, right=np.array([True, False]))
    trace.add(step=2, learning=0, task=0, right=np.array([False, False]))
    measured = summarise(trace).final
    assert measured["ever-right"] == 0.5 and measured["asked"] == 0.002


def test_bits_of_a_trace_file_are_read(plugin: Path, tmp_path: Path, engram: Engram) -> None:
    plugin.write_text(MANY)
    trace = Trace()
    trace.add(step=1, learning=0, task=0, right=np.array([True, False]))
    trace.save(tmp_path / "trace.parquet")
    code, out, _ = engram("metrics", tmp_path / "trace.parquet", "--json", "--plugin", plugin)
    assert code == 0 and json.loads(out)["final"]["ever-right"] == 0.5


BROKEN: dict[str, tuple[str, str]] = {
    "exception": (
        "1 / 0",
        "metric 'worst-task' failed in worst_task.py, line 14: ZeroDivisionError: division",
    ),
    "deep": (
        "np.linalg.inv(acc[:1, :0])",
        "failed in worst_task.py, line 14: LinAlgError: Last 2 dimensions",
    ),
    "too long": (
        "np.ones(9)",
        "metric 'worst-task' in worst_task.py, line 6 returned shape (9,) for 3 tasks",
    ),
    "matrix": ("acc", "returned shape (3, 3) for 3 tasks, expected a number"),
    "text": ("'high'", "line 6 returned str, expected a number or one number per task"),
    "nothing": ("{}", "returned dict, expected a number"),
    "infinite": ("np.inf", "returned an infinite number"),
}


@pytest.mark.parametrize("case", list(BROKEN))
def test_what_fails_is_one_line(case: str, plugin: Path, tmp_path: Path, engram: Engram) -> None:
    expression, message = BROKEN[case]
    plugin.write_text(PLUGIN.replace(PLUGIN.splitlines()[-1].strip(), f"return {expression}"))
    file = tmp_path / "matrix.csv"
    file.write_text(".98\n.91,.90\n.85,.92,.95\n")
    code, out, err = engram("metrics", file, "--plugin", plugin)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert message in err


def test_a_failing_metric_does_not_cost_the_run(plugin: Path, tmp_path: Path) -> None:
    import torch

    plugin.write_text(PLUGIN.replace(PLUGIN.splitlines()[-1].strip(), "return 1 / 0"))
    load_plugin(plugin)
    samples: Any = [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))]
    watch = Evaluator(samples, every=1)
    watch(torch.nn.Linear(2, 2), learning=0)
    with pytest.warns(UserWarning, match=r"metric 'worst-task' failed in worst_task\.py, line 14"):
        watch.save(tmp_path / "kept")
    stored = json.loads((tmp_path / "kept" / "result.json").read_text())
    assert "ACC" in stored["metrics"] and "worst-task" not in stored["why"]
    with pytest.raises(InputError, match=r"failed in worst_task\.py"):
        watch.metrics()
    # Mended, the run has it.
    plugin.write_text(PLUGIN)
    load_plugin(plugin)
    [run] = find_runs([tmp_path / "kept"])
    assert run.metrics["worst-task"] == run.metrics["ACC"]
