"""TensorBoard, MLflow and Weights & Biases as observers of runs.

A tracker is told what happens in a run, in this process or in the worker processes of a sweep, and passes it
on: curves while the run is under way, and at its end its metrics, its settings and its report. Several runs
may be under way at the same time. Watching never changes a run; the libraries are imported on first use.
"""

from __future__ import annotations

import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

from engram.core.errors import unknown_name
from engram.engine.observers import Step, Watcher
from engram.interop.libraries import library
from engram.record.run import Run
from engram.results.runs import settings_of

_FLUSH_SECONDS: Final = 2.0


class Tracker(Watcher, ABC):
    """An observer that passes on what it is told to a tracking tool, one of its runs for each of ours."""

    def __init__(self) -> None:
        self._open: dict[str, Any] = {}

    def began(self, run: Run) -> None:
        """Open a run of the tool."""
        if run.id not in self._open:
            self._open[run.id] = self.open(run, settings_of(run))

    def updated(self, step: Step) -> None:
        """Log the loss where there is an evaluation; every update would be too much for most tools."""
        if step.accuracies:
            self.log(self._handle(step.run), {"loss": step.loss}, step.step)

    def evaluated(self, step: Step) -> None:
        """Log the accuracy of every task, and their mean."""
        names = step.run.task_names
        values = {f"accuracy/{_task(task, names)}": value for task, value in step.accuracies.items()}
        mean = sum(step.accuracies.values()) / len(step.accuracies)
        self.log(self._handle(step.run), {**values, "accuracy/mean": mean}, step.step)

    def ended(self, run: Run) -> None:
        """Log the metrics, attach the report, and close the tool's run; a failure is passed on as such."""
        if run.id not in self._open and not run.finished:
            return
        handle = self._handle(run)
        metrics = {f"metrics/{name}": value for name, value in run.metrics.items() if value == value}
        with tempfile.TemporaryDirectory() as folder:
            report = run.report(Path(folder) / "report.html") if run.finished and len(run.trace) else None
            self.close(handle, metrics, report, failed=run.failure is not None)
        del self._open[run.id]

    def _handle(self, run: Run) -> Any:
        self.began(run)
        return self._open[run.id]

    @abstractmethod
    def open(self, run: Run, settings: Mapping[str, object]) -> Any:
        """Open a run of the tool, and return what the other methods need."""

    @abstractmethod
    def log(self, handle: Any, values: Mapping[str, float], step: int) -> None:
        """Log numbers."""

    @abstractmethod
    def close(self, handle: Any, metrics: Mapping[str, float], report: Path | None, *, failed: bool) -> None:
        """Log the final metrics and the report, and close the tool's run."""


@final
class TensorBoard(Tracker):
    """Event files, one folder per run; the report is beside them.

    Args:
        where: The folder.
    """

    def __init__(self, where: str = "tensorboard") -> None:
        super().__init__()
        self.where = Path(where)
        self.library = _library("tensorboardX", "tensorboard")

    def open(self, run: Run, settings: Mapping[str, object]) -> Any:
        """A writer of event files."""
        writer = self.library.SummaryWriter(str(self.where / run.id))
        rows = "\n".join(f"| {name} | {value} |" for name, value in settings.items())
        writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")
        return writer

    def log(self, handle: Any, values: Mapping[str, float], step: int) -> None:
        """Write scalars."""
        for name, value in values.items():
            handle.add_scalar(name, value, step)

    def close(self, handle: Any, metrics: Mapping[str, float], report: Path | None, *, failed: bool) -> None:
        """Write the metrics as scalars, and copy the report."""
        self.log(handle, metrics, 0)
        handle.close()
        if report is not None:
            (Path(handle.logdir) / "report.html").write_bytes(report.read_bytes())


@final
class MLflow(Tracker):
    """Runs of an MLflow experiment, on a server or in a local database.

    Args:
        where: The tracking address, such as `http://localhost:5000`, or the path of a database file.
        experiment: The name of the MLflow experiment.
    """

    def __init__(self, where: str = "mlflow.db", experiment: str = "engram") -> None:
        super().__init__()
        _library("mlflow", "mlflow")
        address = where if "://" in where else f"sqlite:///{Path(where).resolve()}"
        self.client = import_module("mlflow.tracking").MlflowClient(tracking_uri=address)
        self.entities = import_module("mlflow.entities")
        known = self.client.get_experiment_by_name(experiment)
        if known is not None:
            self.experiment = known.experiment_id
        else:
            beside = None if "://" in where else (Path(where).resolve().parent / "mlartifacts").as_uri()
            self.experiment = self.client.create_experiment(experiment, artifact_location=beside)

    def open(self, run: Run, settings: Mapping[str, object]) -> Any:
        """A run of the experiment, and the values that are not sent yet."""
        name = self.client.create_run(
            self.experiment, run_name=run.id, tags={"engram.id": run.id}
        ).info.run_id
        parameters = [self.entities.Param(_plain(key), str(value)[:6000]) for key, value in settings.items()]
        # At most 100 parameters per call.
        for start in range(0, len(parameters), 100):
            self.client.log_batch(name, params=parameters[start : start + 100])
        return {"run": name, "waiting": [], "sent": time.monotonic()}

    def log(self, handle: Any, values: Mapping[str, float], step: int) -> None:
        """Collect values, and send them every few seconds: a call for each would be slower than training."""
        now = int(time.time() * 1000)
        handle["waiting"] += [self.entities.Metric(_plain(name), v, now, step) for name, v in values.items()]
        if time.monotonic() - handle["sent"] > _FLUSH_SECONDS:
            self._send(handle)

    def _send(self, handle: Any) -> None:
        waiting = handle["waiting"]
        for start in range(0, len(waiting), 1000):
            self.client.log_batch(handle["run"], metrics=waiting[start : start + 1000])
        handle["waiting"], handle["sent"] = [], time.monotonic()

    def close(self, handle: Any, metrics: Mapping[str, float], report: Path | None, *, failed: bool) -> None:
        """Send the rest and the report, and end the run."""
        self.log(handle, metrics, 0)
        self._send(handle)
        if report is not None:
            self.client.log_artifact(handle["run"], str(report))
        self.client.set_terminated(handle["run"], "FAILED" if failed else "FINISHED")


@final
class WandB(Tracker):
    """Runs of a Weights & Biases project; offline, unless the environment says otherwise.

    Args:
        where: The folder for offline runs, which `wandb sync` uploads.
        project: The name of the project.
    """

    def __init__(self, where: str = ".", project: str = "engram") -> None:
        super().__init__()
        self.library = _library("wandb", "wandb")
        self.where, self.project = Path(where), project

    def open(self, run: Run, settings: Mapping[str, object]) -> Any:
        """A run of the project."""
        self.where.mkdir(parents=True, exist_ok=True)
        return self.library.init(
            project=self.project,
            name=run.id,
            dir=str(self.where),
            mode=os.environ.get("WANDB_MODE", "offline"),
            config=dict(settings),
            reinit="create_new",
            settings=self.library.Settings(silent=True, console="off"),
        )

    def log(self, handle: Any, values: Mapping[str, float], step: int) -> None:
        """Log values; those of one step are one row."""
        handle.log(dict(values), step=step)

    def close(self, handle: Any, metrics: Mapping[str, float], report: Path | None, *, failed: bool) -> None:
        """Set the summary, attach the report, and finish the run."""
        handle.summary.update({name.removeprefix("metrics/"): value for name, value in metrics.items()})
        if report is not None:
            artefact = self.library.Artifact(f"report-{handle.id}", "report")
            artefact.add_file(str(report), policy="mutable")
            handle.log_artifact(artefact)
        handle.finish(exit_code=1 if failed else 0)


TRACKERS: Final[Mapping[str, Callable[..., Tracker]]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def tracker(text: str) -> Tracker:
    """A tracker from its name, and where it keeps its files: `tensorboard`, `mlflow:runs.db`, `wandb:folder`.

    Raises:
        InputError: There is no such tracker, or its library is not installed.

    Example:
        >>> tracker("tensorbord:logs")
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown tracker 'tensorbord'; did you mean 'tensorboard'? ...
    """
    name, _, where = text.partition(":")
    if name not in TRACKERS:
        raise unknown_name("tracker", name, TRACKERS)
    return TRACKERS[name](where) if where else TRACKERS[name]()


def _library(name: str, extra: str) -> ModuleType:
    return library(name, user="this tracker", install=f"engram-eval[{extra}]")


def _task(task: int, names: list[str]) -> str:
    named = names[task] if task < len(names) else ""
    # A slash would make a group of its own in the tools' pages.
    return f"task {task + 1} {named}".strip().replace("/", ",")


def _plain(name: str) -> str:
    """A name with the characters that MLflow accepts."""
    return "".join(letter if letter.isalnum() or letter in "_-. /:" else "_" for letter in name)
