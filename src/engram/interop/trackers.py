"""TensorBoard, MLflow and Weights & Biases as observers of runs.

A tracker is told what happens in a run, in this process or in the worker processes of a sweep, and passes it
on: curves while the run is under way, and at its end its metrics, its settings and its report. Several runs
may be under way at the same time. Watching never changes a run; the libraries are imported on first use.

A tracker that fails (a full disk, a server that is gone) never costs a run: it is named in one warning and
told nothing more. The same command, typed again, passes on the finished runs that the tool does not have.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

from engram.core.errors import InputError, unknown_name
from engram.core.files import make_folder
from engram.engine.observers import Step, Watcher
from engram.interop.libraries import check_library, library
from engram.record.run import Run
from engram.results.runs import settings_of

_FLUSH_SECONDS: Final = 2.0


class Tracker(Watcher, ABC):
    """An observer that passes on what it is told to a tracking tool, one of its runs for each of ours.

    Attributes:
        stopped: Why it is told nothing more; empty while it works.
    """

    def __init__(self) -> None:
        self._open: dict[str, Any] = {}
        self.stopped = ""

    def began(self, run: Run) -> None:
        """Open a run of the tool."""
        self._attempt(lambda: self._handle(run))

    def updated(self, step: Step) -> None:
        """Log the loss where there is an evaluation; every update would be too much for most tools."""
        if step.accuracies or step.pending:
            self._attempt(lambda: self.log(self._handle(step.run), {"loss": step.loss}, step.step))

    def evaluated(self, step: Step) -> None:
        """Log the accuracy of every task, and their mean."""
        self._attempt(lambda: self._log_accuracies(step.run, step.accuracies, step.step))

    def ended(self, run: Run) -> None:
        """Log the metrics, attach the report, and close the tool's run; a failure is passed on as such.

        Of a run that had finished before, the curves are logged as well, unless the tool has it already.
        """
        self._attempt(lambda: self._end(run))

    def _attempt(self, action: Callable[[], object]) -> None:
        """Pass something on; a tool that fails is told nothing more, because runs matter more."""
        if self.stopped:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever a tool raises, the run continues
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.stopped = reason
            warnings.warn(
                f"the tracker {type(self).__name__} failed and gets nothing more: {reason}; runs continue, "
                "and the same command passes on what is missing when it is run again",
                stacklevel=2,
            )

    def _handle(self, run: Run) -> Any:
        if run.id not in self._open:
            self._open[run.id] = self.open(run, settings_of(run))
        return self._open[run.id]

    def _log_accuracies(self, run: Run, accuracies: Mapping[int, float], step: int) -> None:
        names = run.task_names
        values = {f"accuracy/{_task(task, names)}": value for task, value in accuracies.items()}
        mean = sum(accuracies.values()) / len(accuracies)
        self.log(self._handle(run), {**values, "accuracy/mean": mean}, step)

    def _end(self, run: Run) -> None:
        if run.id not in self._open:
            if not run.finished or self.has(run):
                return
            for step, accuracies in _curve(run).items():
                self._log_accuracies(run, accuracies, step)
        metrics = {f"metrics/{name}": value for name, value in run.metrics.items() if value == value}
        with tempfile.TemporaryDirectory() as folder:
            report = run.report(Path(folder) / "report.html") if run.finished and len(run.trace) else None
            self.close(self._handle(run), metrics, report, failed=run.failure is not None)
        del self._open[run.id]

    def has(self, run: Run) -> bool:
        """Whether the tool has a finished run already."""
        return False

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
        self.library = _library("tensorboardX", "tensorboard")
        self.where = Path(where)
        make_folder(self.where)

    def has(self, run: Run) -> bool:
        """Whether the report is there, which is written last."""
        return (self.where / run.id / "report.html").is_file()

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
        if "://" not in where:
            make_folder(Path(where).resolve().parent)
        # By default MLflow tries for minutes to reach a server, and training would wait.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        address = where if "://" in where else f"sqlite:///{Path(where).resolve()}"
        try:
            self._connect(address, where, experiment)
        except Exception as error:
            # MLflow, SQLAlchemy and requests have no common error.
            reason = str(error).strip().splitlines()[0]
            raise InputError(f"cannot track with MLflow at {where}: {reason}") from error

    def _connect(self, address: str, where: str, experiment: str) -> None:
        self.client = import_module("mlflow.tracking").MlflowClient(tracking_uri=address)
        self.entities = import_module("mlflow.entities")
        known = self.client.get_experiment_by_name(experiment)
        if known is not None:
            self.experiment = known.experiment_id
        else:
            beside = None if "://" in where else (Path(where).resolve().parent / "mlartifacts").as_uri()
            self.experiment = self.client.create_experiment(experiment, artifact_location=beside)

    def open(self, run: Run, settings: Mapping[str, object]) -> Any:
        """A run of the experiment, and the values that are not sent yet; one that did not finish goes on."""
        stored = self._stored(run)
        if stored is not None and stored.info.status != "FINISHED":
            name = stored.info.run_id
            self.client.update_run(name, status="RUNNING")
        else:
            created = self.client.create_run(self.experiment, run_name=run.id, tags={"engram.id": run.id})
            name = created.info.run_id
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

    def has(self, run: Run) -> bool:
        """Whether the experiment has a finished run with this id."""
        stored = self._stored(run)
        return stored is not None and stored.info.status == "FINISHED"

    def _stored(self, run: Run) -> Any:
        """The latest run of the experiment with this id, or None."""
        stored = self.client.search_runs(
            [self.experiment], f"tags.`engram.id` = '{run.id}'", max_results=1, order_by=["start_time DESC"]
        )
        return stored[0] if stored else None

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
        make_folder(self.where)

    def open(self, run: Run, settings: Mapping[str, object]) -> Any:
        """A run of the project."""
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


def trackers_of(texts: str | Iterable[str] | None) -> list[Tracker]:
    """The trackers of `--track`, before anything is run: none of them is made unless all libraries are there.

    Raises:
        InputError: A name is unknown or repeated, a library is not installed, or a store cannot be used.

    Example:
        >>> trackers_of(None), trackers_of([])
        ([], [])
        >>> trackers_of(["wandb", "wandb"])
        Traceback (most recent call last):
        engram.core.errors.InputError: the tracker 'wandb' is named twice: leave one out
    """
    named = [texts] if isinstance(texts, str) else list(texts or ())
    repeated = next((text for number, text in enumerate(named) if text in named[:number]), None)
    if repeated is not None:
        raise InputError(f"the tracker {repeated!r} is named twice: leave one out")
    for text in named:
        name = text.partition(":")[0]
        if name in _LIBRARIES:
            check_library(_LIBRARIES[name], user=f"the tracker {name}", install=f"engram-eval[{name}]")
    return [tracker(text) for text in named]


_LIBRARIES: Final = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}


def _library(name: str, extra: str) -> ModuleType:
    return library(name, user=f"the tracker {extra}", install=f"engram-eval[{extra}]")


def _curve(run: Run) -> dict[int, dict[int, float]]:
    """The accuracy of every task at every evaluation after the first update, from the trace."""
    if not len(run.trace):
        return {}
    table = zip(run.curve.step.tolist(), run.curve.accuracy.tolist(), strict=True)
    return {
        step: {int(task): value for task, value in zip(run.curve.tasks, row, strict=True) if value == value}
        for step, row in table
        if step
    }


def _task(task: int, names: list[str]) -> str:
    named = names[task] if task < len(names) else ""
    # A slash would make a group of its own in the tools' pages.
    return f"task {task + 1} {named}".strip().replace("/", ",")


def _plain(name: str) -> str:
    """A name with the characters that MLflow accepts."""
    return "".join(letter if letter.isalnum() or letter in "_-. /:" else "_" for letter in name)
