"""TensorBoard, MLflow and Weights & Biases, the real libraries with local stores."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import engram
from engram.core.errors import InputError
from engram.engine.observers import Watcher
from engram.interop.importers import read_log
from engram.interop.trackers import Tracker, tracker

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


@pytest.mark.integrations
def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="needs the extra tensorboard")
    run = engram.run("split-digits", "er", observers=[tracker(f"tensorboard:{tmp_path}")], **SHORT)
    folder = tmp_path / run.id
    assert (folder / "report.html").stat().st_size > 1000
    table = read_log(folder, pattern=r"accuracy/task_(?P<task>\d+)_.*")
    assert table["accuracy"].to_list() == pytest.approx(_accuracies(run), abs=1e-6)


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


@pytest.mark.integrations
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    engram.run("split-digits", "er", observers=[tracker(f"wandb:{tmp_path}")], **SHORT)
    [file] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    record_type = import_module("wandb.proto.wandb_internal_pb2").Record
    kinds = [
        record_type.FromString(content).WhichOneof("record_type") for content in _records(file.read_bytes())
    ]
    assert kinds.count("history") == 15
    assert kinds.count("artifact") == 1
    assert wandb.run is None


@pytest.mark.parametrize(
    ("text", "message"), [("tensorbord", "did you mean 'tensorboard'"), ("", "unknown tracker")]
)
def test_wrong_names_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tracker(text)


def _records(content: bytes) -> Iterator[bytes]:
    """The records of a log in blocks of 32 KiB, each piece with seven bytes before it (LevelDB's format)."""
    place, record = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        # 1 is a whole record, 4 the last piece of one.
        if kind in (1, 4):
            yield record
            record = b""


def _accuracies(run: engram.Run) -> list[float]:
    rows = zip(run.trace.step, run.trace.task, run.trace.accuracy().tolist(), strict=True)
    return [value for step, _, value in sorted(rows) if step]
