"""TensorBoard, MLflow and Weights & Biases, the real libraries with local stores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import engram
from engram.core.errors import InputError
from engram.engine.observers import Watcher
from engram.interop.importers import read_log
from engram.interop.trackers import Tracker, tracker
from engram.interop.wandb_files import records_in

SHORT: dict[str, Any] = {"updates": 3, "evaluation": {"subset": 20}}


class Noting(Tracker):
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, str, int]] = []
        self.closed: dict[str, tuple[int, bool, bool]] = {}

    def open(self, run: engram.Run, settings: Any) -> str:
        assert settings["method"] == run.method
        return run.id

    def log(self, handle: str, values: Any, step: int) -> None:
        self.rows += [(handle, name, step) for name in values]

    def close(self, handle: str, metrics: Any, report: Path | None, *, failed: bool) -> None:
        self.closed[handle] = (len(metrics), report is not None and report.stat().st_size > 1000, failed)


def test_curves_metrics_and_report_are_passed_on() -> None:
    noting = Noting()
    run = engram.run("split-digits", "er", observers=[noting], **SHORT)
    steps = {step for _, name, step in noting.rows if name == "accuracy/mean"}
    assert steps == set(range(1, 16))
    assert {name for _, name, _ in noting.rows} == {
        *("loss", "accuracy/mean"),
        *(f"accuracy/task {task + 1} {name.replace('/', ',')}" for task, name in enumerate(run.task_names)),
    }
    count, reported, failed = noting.closed[run.id]
    assert count == len([value for value in run.metrics.values() if value == value])
    assert reported
    assert not failed


@pytest.mark.slow
def test_runs_of_worker_processes_are_passed_on(tmp_path: Path) -> None:
    noting = Noting()
    plan = {"scenario": "split-digits", "method": ["er", "finetune"], "updates": 3, "subset": 20}
    runs = engram.sweep(plan, out=tmp_path, jobs=2, observers=[noting])
    assert set(noting.closed) == {run.id for run in runs}
    assert {handle for handle, _, _ in noting.rows} == set(noting.closed)


def test_tracking_changes_nothing() -> None:
    tracked = engram.run("split-digits", "er", observers=[Noting()], **SHORT)
    plain = engram.run("split-digits", "er", observers=[Watcher()], **SHORT)
    assert tracked.trace == plain.trace


def test_failed_runs_are_passed_on_as_failed() -> None:
    noting = Noting()
    with pytest.raises(InputError):
        engram.run("split-digits", "finetune", observers=[noting], lr=1e30, **SHORT)
    assert [failed for _, _, failed in noting.closed.values()] == [True]


class Failing(Noting):
    """A tracker whose tool fails after some values."""

    def log(self, handle: str, values: Any, step: int) -> None:
        if step > 4:
            raise OSError(28, "No space left on device")
        super().log(handle, values, step)


def test_a_tracker_that_fails_does_not_cost_the_run(tmp_path: Path) -> None:
    failing, other = Failing(), Noting()
    with pytest.warns(UserWarning, match="No space left on device; runs continue") as warned:
        run = engram.run("split-digits", "er", out=tmp_path, observers=[failing, other], **SHORT)
    assert len(warned) == 1
    assert run.finished and run.trace == engram.run("split-digits", "er", **SHORT).trace
    assert {step for _, _, step in failing.rows} == {1, 2, 3, 4}
    assert not failing.closed and set(other.closed) == {run.id}


def test_finished_runs_are_passed_on_with_their_curves(tmp_path: Path) -> None:
    live, later = Noting(), Noting()
    run = engram.run("split-digits", "er", out=tmp_path, observers=[live], **SHORT)
    engram.run("split-digits", "er", out=tmp_path, observers=[later], **SHORT)
    assert later.closed == live.closed
    assert set(later.rows) == {row for row in live.rows if row[1] != "loss"}
    assert run.id in later.closed


@pytest.mark.skipif(find_spec("wandb") is not None, reason="needs an environment without wandb")
@pytest.mark.parametrize("track", [["wandb"], ["wandb:there", "tensorboard"]])
def test_a_missing_library_is_named_before_anything_is_run(track: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"wandb needs wandb: pip install 'engram-eval\[wandb\]'"):
        engram.run("split-digits", "er", out=tmp_path / "runs", track=track, **SHORT)
    assert list(tmp_path.iterdir()) == []


def test_tracking_is_no_part_of_an_experiment() -> None:
    with pytest.raises(InputError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        engram.run("split-digits", "er", track="tensorbord", **SHORT)


def _engram(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engram", *map(str, words)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.integrations
def test_every_verb_that_runs_tracks(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="needs the extra tensorboard")
    (tmp_path / "sweep.toml").write_text(
        'scenario = "split-digits"\nmethod = ["er", "finetune"]\nupdates = 3\nsubset = 20\n'
    )
    (tmp_path / "run.toml").write_text('track = "tensorboard:logs/config"\n')
    short = ("--updates", 3, "--subset", 20)
    verbs: dict[str, tuple[object, ...]] = {
        "run": ("run", "split-digits", "er", *short, "--json"),
        "sweep": ("sweep", "sweep.toml", "--jobs", 2, "--json"),
        "protocol": ("protocol", "grid", "split-digits", "er", *short, "--grid", "lr=.1,.01", "--json"),
    }
    found = {}
    for name, words in verbs.items():
        done = _engram(*words, "--track", f"tensorboard:logs/{name}", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
        found[name] = {path.parent.name for path in (tmp_path / "logs" / name).glob("*/report.html")}
    assert {name: len(ids) for name, ids in found.items()} == {"run": 1, "sweep": 2, "protocol": 2}
    # Tracking does not change ids, so the sweep has the run that was there.
    assert found["run"] < found["sweep"]
    done = _engram("run", "split-digits", "er", *short, "--config", "run.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "logs" / "config").iterdir()} == found["run"]


@pytest.mark.integrations
def test_reproduce_tracks(tmp_path: Path, real_data: Path) -> None:
    pytest.importorskip("tensorboardX", reason="needs the extra tensorboard")
    words = ("reproduce", "002-table2", "--cells", "Split.*EWC", "--scale", "quick", "--seeds", 1, "--json")
    done = _engram(*words, "--data", real_data, "--track", "tensorboard:logs", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = {path.name for path in (tmp_path / "runs").iterdir() if (path / "result.json").is_file()}
    assert runs and runs == {path.name for path in (tmp_path / "logs").iterdir()}
    done = _engram(*words, "--done", "--track", "tensorboard:logs", folder=tmp_path)
    assert done.returncode == 2 and "--done runs nothing" in done.stderr


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mlflow_that_cannot_be_reached_is_named_before_anything_is_run(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    where = "http://localhost:9"
    done = _engram("run", "split-digits", "er", "--track", f"mlflow:{where}", folder=tmp_path)
    assert done.returncode == 2
    assert "cannot track with MLflow at http://localhost:9" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mlflow_has_one_run_for_each(tmp_path: Path) -> None:
    """Also when a run is passed on twice, or resumes."""
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    database = tmp_path / "runs.db"
    for _ in range(2):
        run = engram.run("split-digits", "er", out=tmp_path / "runs", track=f"mlflow:{database}", **SHORT)
    client = import_module("mlflow.tracking").MlflowClient(tracking_uri=f"sqlite:///{database}")
    experiment = client.get_experiment_by_name("engram").experiment_id
    [stored] = client.search_runs([experiment])
    client.set_terminated(stored.info.run_id, "FAILED")
    engram.run("split-digits", "er", out=tmp_path / "runs", track=f"mlflow:{database}", **SHORT)
    [again] = client.search_runs([experiment])
    assert again.info.run_id == stored.info.run_id
    assert again.info.status == "FINISHED" and again.data.tags["engram.id"] == run.id


@pytest.mark.integrations
def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="needs the extra tensorboard")
    run = engram.run("split-digits", "er", observers=[tracker(f"tensorboard:{tmp_path}")], **SHORT)
    folder = tmp_path / run.id
    assert (folder / "report.html").stat().st_size > 1000
    table = read_log(folder, pattern=r"accuracy/task_(?P<task>\d+)_.*")
    assert table["accuracy"].to_list() == pytest.approx(_accuracies(run), abs=1e-6)
    for place in (folder, tmp_path):
        assert read_log(place)["accuracy"].to_list() == table["accuracy"].to_list()


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mlflow(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    pytest.importorskip("sqlalchemy", reason="needs the extra mlflow")
    database = tmp_path / "runs.db"
    run = engram.run("split-digits", "er", observers=[tracker(f"mlflow:{database}")], **SHORT)
    client = import_module("mlflow.tracking").MlflowClient(tracking_uri=f"sqlite:///{database}")
    experiment = client.get_experiment_by_name("engram")
    [stored] = client.search_runs([experiment.experiment_id])
    assert stored.info.status == "FINISHED"
    assert stored.data.tags["engram.id"] == run.id
    assert stored.data.metrics["metrics/ACC"] == pytest.approx(run.metrics["ACC"])
    assert stored.data.params["method"] == "er"
    history = client.get_metric_history(stored.info.run_id, "accuracy/mean")
    assert [point.step for point in history] == list(range(1, 16))
    assert [file.path for file in client.list_artifacts(stored.info.run_id)] == ["report.html"]
    for place in (database, tmp_path):
        assert read_log(place)["accuracy"].to_list() == pytest.approx(_accuracies(run))


@pytest.mark.integrations
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = engram.run("split-digits", "er", observers=[tracker(f"wandb:{tmp_path}")], **SHORT)
    [file] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    record_type = import_module("wandb.proto.wandb_internal_pb2").Record
    kinds = [record_type.FromString(content).WhichOneof("record_type") for content in records_in(file)]
    assert kinds.count("history") == 15
    assert kinds.count("artifact") == 1
    assert wandb.run is None
    # The folder that was given to the tracker will do, and so will the run in it.
    for place in (tmp_path, tmp_path / "wandb", file.parent, file):
        assert read_log(place)["accuracy"].to_list() == pytest.approx(_accuracies(run))


@pytest.mark.parametrize(
    ("text", "message"), [("tensorbord", "did you mean 'tensorboard'"), ("", "unknown tracker")]
)
def test_wrong_names_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tracker(text)


def _accuracies(run: engram.Run) -> list[float]:
    rows = zip(run.trace.step, run.trace.task, run.trace.accuracy().tolist(), strict=True)
    return [value for step, _, value in sorted(rows) if step]
