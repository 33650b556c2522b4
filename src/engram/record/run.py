"""A run: its experiment, its results and its cost, as one value with one `load` and one `save`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import Damaged, InputError, unknown_name
from engram.core.files import as_input_error, is_file, read_json, remove_file, write_json
from engram.core.folder import EXPERIMENT, FAILURE, RESULT, TRACE, Reading, finite, looks_like_run, versions
from engram.core.jsons import JsonMapping, JsonObject
from engram.core.leases import holder_of
from engram.core.scores import Scores
from engram.core.trace import Trace
from engram.metrics.anchored import Levels, levels_of
from engram.metrics.curve import Curve
from engram.metrics.extremes import Extremes, estimate_extremes
from engram.record.account import Account
from engram.record.answers import Answers
from engram.record.card import Card
from engram.record.choices import choices_of
from engram.record.confusion import Confusion, confusion_of
from engram.record.description import read_description, save_description
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.half_checked import HalfChecked
from engram.record.later import LazyField, nothing
from engram.record.parallel import ParallelRecord
from engram.record.result import Seconds, with_result
from engram.record.revisions import revisions_of
from engram.record.samples import Samples
from engram.record.seal import CHECKSUMS, check_record, digest_of, read_object, sealed
from engram.record.tables import ProbeKey, ProbeSeries, StoredTables, Tables, probe_series
from engram.record.test_data import TestData
from engram.record.weights import network_of

if TYPE_CHECKING:
    from engram.metrics.summary import Measurement
    from engram.models.network import Network
    from engram.record.weights import NetworkSource

REPAIR = "run it again with --again, or delete its folder"
"""What to do about a finished run whose files are damaged, or not those that are wanted."""

Status = Literal["done", "running", "failed", "damaged", "unfinished", "missing"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Run:
    """One run of an experiment, or of the user's own loop: finished, failed, under way or not begun.

    Attributes:
        description: What `experiment.json` says: `id`, `label`, and every field of the experiment.
        planned: The experiment itself, where it is at hand; `experiment` rebuilds it where it is not.
        folder: The folder of the run; None for one that was never saved.
        finished: Whether it came to its end.
        failure: Why it did not; None where it did, or where that is unknown.
        stored: The metrics that were computed when the run ended; NaN where one is undefined.
        by_task: For each metric, one value per task.
        why: For each metric that is undefined or left out, the reason; for each that does not count
            everything, what it leaves out.
        estimates: The extremes, corrected for the bias of subsets, as computed when the run ended; None for
            runs of earlier versions. `extremes` computes them then.
        sizes: How many samples the whole test set of each task has; None where that was not recorded.
        classes: How many classes are in use after each phase; None where that is unknown.
        phases: For each value of the trace's `learning`, the tasks that were learned then.
        test_data: The fingerprint of each task's test set; empty where none was recorded.
        updates: How many updates were made.
        evaluations: How many evaluations were made.
        seconds: How long it took.
        account: What the method kept and spent; None for the user's own loop.
        card: What was known, kept and spent, as measured; None where nothing was recorded.
        precision: What was evaluated in half precision; None where that was not asked for.
        parallel: What evaluator processes did; None where all was evaluated in line, as is usual.
        weights: The files of weights that the run kept, with the SHA-256 of their content.
        versions: The versions of what computed the numbers.
        tables: The trace and the other tables.

    Example:
        >>> trace = Trace()
        >>> trace.add(step=1, learning=0, task=0, right=np.array([True, True, False, True]))
        >>> run = Run(description={"id": "mine", "label": "mine"}, finished=True, tables=Tables(trace))
        >>> run.curve.accuracy, run.status
        (array([[0.75]]), 'done')
    """

    description: JsonMapping = field(default_factory=dict)
    planned: Experiment | None = None
    folder: Path | None = None
    finished: bool = False
    failure: Failure | None = None
    stored: Mapping[str, float] = field(default_factory=dict)
    by_task: LazyField[Mapping[str, Sequence[float]]] = LazyField(dict)
    why: LazyField[Mapping[str, str]] = LazyField(dict)
    estimates: LazyField[Extremes | None] = LazyField(nothing)
    sizes: tuple[int, ...] | None = None
    classes: tuple[int, ...] | None = None
    phases: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    test_data: tuple[TestData, ...] = ()
    updates: int = 0
    evaluations: int = 0
    seconds: Seconds = field(default_factory=Seconds)
    account: LazyField[Account | None] = LazyField(nothing)
    card: LazyField[Card | None] = LazyField(nothing)
    precision: HalfChecked | None = None
    parallel: ParallelRecord | None = None
    weights: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    tables: Tables = field(default_factory=Tables)

    def __post_init__(self) -> None:
        if self.planned is not None and not self.description:
            object.__setattr__(self, "description", self.planned.as_json())

    # The experiment ------------------------------------------------------------------------------

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment as a value; where only its description was loaded, it is rebuilt from that.

        Raises:
            InputError: The run was recorded in somebody's own training loop, or the code of its method, model
                or data set is not loaded or has changed.
        """
        if self.planned is not None:
            return self.planned
        if "scenario" not in self.description:
            raise InputError(f"the run {self.id} was recorded in a training loop: it has no experiment")
        try:
            rebuilt = Experiment.of_json(self.description)
        except InputError as error:
            raise InputError(f"the experiment of the run {self.id} cannot be rebuilt: {error}") from error
        if self.id in rebuilt.earlier_ids:
            changes = [item.change for item in revisions_of(rebuilt)][rebuilt.earlier_ids.index(self.id) :]
            raise InputError(
                f"the experiment of the run {self.id} cannot be rebuilt: it ran before a correction "
                f"({'; '.join(changes)}); run it again for the new result"
            )
        if rebuilt.id != self.id:
            raise InputError(
                f"the experiment of the run {self.id} cannot be rebuilt: "
                "its method, model or data set is not loaded, or its code has changed"
            )
        return rebuilt

    @property
    def id(self) -> str:
        """The run's name among all runs."""
        return str(self.description.get("id", ""))

    @property
    def label(self) -> str:
        """What people call the experiment."""
        return str(self.description.get("label", self.id))

    @property
    def method(self) -> str:
        """The method's name, or an empty string for a run of the user's own loop."""
        return str(self.description.get("method", ""))

    @property
    def scenario(self) -> str:
        """The scenario's name, or an empty string for a run of the user's own loop."""
        scenario = self.description.get("scenario")
        return str(scenario.get("name", "")) if isinstance(scenario, Mapping) else ""

    @property
    def setting(self) -> str:
        """`task`, `domain` or `class`, or an empty string for a run of the user's own loop."""
        scenario = self.description.get("scenario")
        setting = scenario.get("setting") if isinstance(scenario, Mapping) else None
        return str(setting.get("kind", "")) if isinstance(setting, Mapping) else ""

    @property
    def seed(self) -> int | None:
        """The run's seed; None where none was recorded."""
        seed = self.description.get("seed")
        return seed if isinstance(seed, int) else None

    # Results -------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """Whether it is done, or running now; what is neither is run by the same command.

        An unfinished run was interrupted or killed, and resumes from its checkpoint if it has one.
        """
        if self.finished:
            return "done"
        if self.failure is not None and self.failure.kind is FailureKind.DAMAGED:
            return "damaged"
        if self.folder is not None and holder_of(self.folder) is not None:
            return "running"
        if self.failure is not None and self.failure.kind is not FailureKind.INTERRUPTED:
            return "failed"
        # A run with a description but without a folder has not begun.
        begun = self.failure is not None or (self.folder is not None and is_file(self.folder / EXPERIMENT))
        return "unfinished" if begun else "missing"

    @property
    def trace(self) -> Trace:
        """Every evaluation of the run."""
        return self.tables.trace

    @property
    def ends(self) -> Trace:
        """The evaluations at task ends on full test sets; an empty trace where none were kept."""
        return self.tables.ends

    @property
    def scores(self) -> Scores:
        """The score of every sample in every evaluation; empty where none were recorded."""
        return self.tables.scores

    @property
    def readings(self) -> tuple[Reading, ...]:
        """What probes measured, in the order of measuring."""
        return self.tables.readings

    @property
    def samples(self) -> Samples | None:
        """The ids, labels and slices of the test samples; None where they were not recorded."""
        return self.tables.samples

    @property
    def answers(self) -> Answers:
        """What was answered in each evaluation; empty unless that was asked for."""
        return self.tables.answers

    def confusion(self, *, task: int | None = None, step: int | None = None) -> Confusion:
        """How often each class was answered for the samples of each class; see `confusion_of`."""
        return confusion_of(self.tables, task=task, step=step)

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """The final value of every metric; NaN where it is undefined.

        Metrics that were registered after the run was made are computed from its trace.
        """
        from engram.metrics.summary import missing

        lacking = missing(self.stored, self.why) if self.finished else ()
        return {**self.stored, **self._computed(lacking)} if lacking else self.stored

    def _computed(self, names: Collection[str]) -> dict[str, float]:
        """Metrics of the run's trace; empty where that cannot be read, so that only stored ones remain."""
        try:
            _ = self.trace, self.ends, self.curve
        except Damaged as error:
            warnings.warn(f"{error}; metrics that are not stored are left out", stacklevel=4)
            return {}
        except InputError:
            return {}
        return self.measure(only=names).final

    def measure(self, *, only: Collection[str] | None = None) -> Measurement:
        """All metrics, or some of them, computed from the trace and the scores.

        Args:
            only: The metrics to compute, by the names used in results (default: all).
        """
        from engram.metrics.scores import with_scores
        from engram.metrics.summary import summarise

        if self.only_scores:
            return with_scores(None, self.scores, phases=self._phases(), only=only)
        measured = summarise(
            self.trace,
            ends=self.ends if len(self.ends) else None,
            classes_seen=self._classes_seen(),
            phases=self._phases(),
            choices=choices_of(self.description),
            redrawn=self.redrawn,
            only=only,
        )
        return with_scores(measured, self.scores, phases=self._phases(), only=only)

    @property
    def only_scores(self) -> bool:
        """Whether scores were recorded, and no right and wrong answers."""
        return len(self.scores) > 0 and not len(self.trace)

    def refuse_only_scores(self) -> None:
        """Refuse what needs right and wrong answers if only scores were recorded.

        Raises:
            InputError: Only scores were recorded.
        """
        if self.only_scores:
            where = self.folder or self.id
            raise InputError(
                f"the run {where} has only scores, no right and wrong answers: `engram metrics` shows them; "
                "give right= to record both"
            )

    @cached_property
    def extremes(self) -> Extremes:
        """min-ACC, WF10 and the other extremes, corrected for the bias of subsets, with 95 % intervals.

        They were stored when the run ended; for runs of earlier versions they are computed from the trace,
        in about 0.4 s for 2,400 evaluations of five tasks. See `engram.metrics.extremes.estimate_extremes`.
        """
        if self.estimates is not None:
            return self.estimates
        if not self.finished:
            return Extremes(why="the run is not finished")
        return estimate_extremes(
            self.trace,
            sizes=self._test_sizes(),
            redrawn=self.redrawn,
            ends=self.ends if len(self.ends) else None,
            classes_seen=self._classes_seen(),
            phases=self._phases(),
        )

    @property
    def levels(self) -> Levels | None:
        """How many samples were asked at every evaluation, and how many at anchors; None with one level."""
        return levels_of(self.trace) if self.tables.has_anchors else None

    @property
    def redrawn(self) -> bool:
        """Whether other samples were drawn for every evaluation."""
        evaluation = self.description.get("evaluation")
        return isinstance(evaluation, Mapping) and bool(evaluation.get("redraw"))

    def _test_sizes(self) -> dict[int, int]:
        """How many samples the whole test sets have, as far as this was recorded or can be concluded."""
        if self.sizes is not None:
            return dict(enumerate(self.sizes))
        if len(self.ends):
            return dict(zip(self.ends.task, self.ends.total, strict=True))
        evaluation = self.description.get("evaluation")
        if not isinstance(evaluation, Mapping) or "subset" not in evaluation:
            return {}
        # A task with fewer samples than the subset was evaluated on all of them.
        most = math.inf if evaluation["subset"] is None else evaluation["subset"]
        totals = zip(self.trace.task, self.trace.total, strict=True)
        return {task: total for task, total in totals if total < most}

    def _classes_seen(self) -> tuple[int, ...] | None:
        """How many classes are in use after each phase that was learned."""
        return self.classes[: len(self.phases or self.classes)] if self.classes else None

    def metric(self, name: str) -> float:
        """A metric at the end of the run; NaN where it is undefined.

        Raises:
            InputError: There is no such metric.

        Example:
            >>> Run(stored={"ACC": 0.9}).metric("ACC")
            0.9
        """
        if name in self.metrics:
            return self.metrics[name]
        if name in self.why and not len(self.trace):
            raise InputError(f"{name} {self.why[name]}")
        raise unknown_name("metric", name, self.metrics)

    def after_each_task(self, name: str) -> list[float]:
        """A metric after each task; NaN where it is undefined."""
        if name not in self.by_task:
            raise unknown_name("metric", name, self.by_task)
        return list(self.by_task[name])

    def reading(self, name: str) -> dict[tuple[int, int | None], float]:
        """What a probe measured last, by the task that was learned and the task it was measured on."""
        return {(learning, task): value for _, learning, task, what, value in self.readings if what == name}

    @cached_property
    def probes(self) -> dict[ProbeKey, ProbeSeries]:
        """What each probe measured, of each task or of all; empty where nothing was probed."""
        return probe_series(self.readings)

    @cached_property
    def curve(self) -> Curve:
        """The trace as a table of accuracies, tasks in the order in which they were learned."""
        return self._curve_of(self.tables)

    @property
    def tasks(self) -> Sequence[int | str]:
        """The tasks that were evaluated, in the order in which they were learned."""
        from engram.metrics.scores import curve_of_scores

        return curve_of_scores(self.scores, self._phases()).tasks if self.only_scores else self.curve.tasks

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """`acc[learned, evaluated]`, on full test sets where the run kept such evaluations."""
        return self._curve_of(Tables(self.ends)).matrix() if len(self.ends) else self.curve.matrix()

    def _curve_of(self, tables: Tables) -> Curve:
        try:
            return tables.curve(self._phases())
        except InputError as error:
            self.refuse_only_scores()
            if isinstance(error, Damaged):
                raise Damaged(f"{error}; {REPAIR}") from error
            raise InputError(f"the run {self.folder or self.id} cannot be read: {error}") from error

    def _phases(self) -> list[Sequence[int]] | None:
        """The tasks for each value of `learning`: as they were learned, else as they were meant to be."""
        if self.phases:
            return [self.phases.get(learning, (learning,)) for learning in range(1 + max(self.phases))]
        scenario = self.description.get("scenario")
        planned = scenario.get("phases") if isinstance(scenario, Mapping) else None
        return [list(tasks) for tasks in planned] if planned else None

    # Display -------------------------------------------------------------------------------------

    @cached_property
    def task_names(self) -> list[str]:
        """The tasks' names as far as the experiment tells them."""
        scenario = self.description.get("scenario")
        listed = scenario.get("tasks") if isinstance(scenario, Mapping) else self.description.get("tasks")
        entries = listed if isinstance(listed, Sequence) and not isinstance(listed, str) else []
        return [str(entry.get("name", "") if isinstance(entry, Mapping) else entry) for entry in entries]

    def task_name(self, column: int) -> str:
        """What people call a task: its number in the order of learning, from 1, and its name, if any."""
        number, task = f"Task {column + 1}", self.tasks[column]
        name = self.task_names[task] if isinstance(task, int) and task < len(self.task_names) else str(task)
        plain = ("", str(task), str(column + 1), number.lower(), f"task {task}")
        return number if name.lower() in plain else f"{number} ({name})"

    def phase_name(self, phase: int) -> str:
        """What people call what was learned: one task, or several together."""
        columns = self.curve.phases[phase]
        if len(columns) == 1:
            return self.task_name(columns[0])
        numbers = [str(column + 1) for column in columns]
        return f"Tasks {' + '.join(numbers)}" if len(numbers) <= 3 else f"Tasks {numbers[0]} … {numbers[-1]}"

    def __repr__(self) -> str:
        """What it is and how it did, on one line."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        if self.failure is not None:
            return f"<Run {self.label}{seed}: {self.failure.kind}: {self.failure.reason}>"
        if not self.finished:
            return f"<Run {self.label}{seed}: {self.status}>"
        shown = [(name, self.stored.get(name, math.nan)) for name in ("ACC", "FORG", "min-ACC", "WC-ACC")]
        figures = ", ".join(f"{name} {value:.4f}" for name, value in shown if not math.isnan(value))
        return f"<Run {self.label}{seed}: {figures or 'no metrics'}; {self.updates} updates>"

    def report(self, page: str | Path = "report.html") -> Path:
        """Write one self-contained HTML page about this run, and say where it is."""
        # The one door upwards: a run knows how to be shown.
        from engram.results.report import write_report

        write_report([self], Path(page))
        return Path(page)

    def model(self, source: NetworkSource | None = None, *, task: int | None = None) -> Network:
        """The network with the weights that the run kept: see `engram.record.weights.network_of`."""
        code = self.description.get("code")
        return network_of(self.folder, self.weights, code, task=task, source=source)

    # On disk -------------------------------------------------------------------------------------

    def save(self, folder: str | Path | None = None) -> Run:
        """Write the run's files, and return the saved run.

        The result comes last, so its presence means that the run is complete; a run that failed has
        `failure.json` instead.

        Args:
            folder: Where to write it (default: the folder that it was loaded from).

        Raises:
            InputError: It has no folder, or one that holds other runs, or cannot be written.
        """
        place = self.folder if folder is None else Path(folder)
        if place is None:
            raise InputError("the run has no folder yet: name one, as in run.save('runs/mine')")
        _refuse_folder_of_runs(place)
        save_description(place, self.description)
        failed = None
        if self.failure is not None and not self.finished:
            # Before the tables: where memory ran out, writing them may be the end of the process.
            failed = {"id": self.id, "label": self.label, **self.failure.as_json()}
            write_json(place / FAILURE, sealed(failed))
        checksums = self.tables.save(place) if self.finished or len(self.trace) else {}
        used = dict(self.versions) or versions()
        if checksums:
            checksums[EXPERIMENT] = digest_of(finite(dict(self.description)))
        if failed is not None and checksums:
            write_json(place / FAILURE, sealed({**failed, CHECKSUMS: checksums}))
        if self.finished:
            remove_file(place / FAILURE)
            result = {**self.result(), "versions": used, CHECKSUMS: checksums}
            write_json(place / RESULT, sealed(finite(result)))
        return replace(self, folder=place, versions=used)

    def result(self) -> JsonObject:
        """What `result.json` says, but for the versions."""
        account = {} if self.account is None else {"account": self.account.as_json()}
        card = {} if self.card is None else {"card": self.card.as_json()}
        precision = {} if self.precision is None else {"precision": self.precision.as_json()}
        parallel = {}
        if self.parallel is not None and self.parallel.kept:
            parallel = {"parallel": self.parallel.as_json()}
        extremes = {} if self.estimates is None else {"extremes": self.estimates.as_json()}
        sizes = {} if self.sizes is None else {"sizes": list(self.sizes)}
        return {
            "id": self.id,
            "seed": self.seed,
            "metrics": dict(self.stored),
            "by_task": self.by_task,
            "why": self.why,
            **extremes,
            **sizes,
            "classes": self.classes,
            "phases": [[learning, list(tasks)] for learning, tasks in self.phases.items()],
            "test_data": [task.as_json() for task in self.test_data],
            "updates": self.updates,
            "evaluations": self.evaluations,
            "seconds": {
                "train": self.seconds.train,
                "evaluate": self.seconds.evaluate,
                "total": self.seconds.total,
            },
            **account,
            **card,
            **precision,
            **parallel,
            **({"weights": dict(self.weights)} if self.weights else {}),
        }

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """The run in a folder, finished or not. Its tables are read on first use.

        Raises:
            InputError: The folder does not exist or holds no run.
            Damaged: A file in it is missing, or is not what was written.
        """
        place = Path(folder)
        if not place.is_dir():
            raise InputError(f"no such run: {place} is not a folder; name a folder that `engram run` wrote")
        if not looks_like_run(place):
            raise InputError(
                f"{place} is not a run: it has no {EXPERIMENT}; name a folder that `engram run` wrote"
            )
        return _read(place, read_description(place), None)

    @classmethod
    def find(cls, experiment: Experiment, out: Path) -> Run:
        """The state of an experiment, as its folder in `out` shows it; `missing` where there is no folder.

        Where a file of the folder is damaged, the run has a failure that says which.

        Example:
            >>> from engram.scenarios import split
            >>> Run.find(Experiment(split("digits", setting="class"), "er"), Path("nowhere")).status
            'missing'
        """
        description = experiment.as_json()
        folder = out / str(description["id"])
        try:
            run = _read(folder, description, experiment)
            # Answers do not change the id, but a run without them is not what was asked for.
            lacking = run.finished and experiment.evaluation.answers and not run.tables.has_answers
            return replace(run, finished=False) if lacking else run
        except Damaged as error:
            failure = Failure(FailureKind.DAMAGED, str(error))
            return Run(description=description, planned=experiment, folder=folder, failure=failure)


def _refuse_folder_of_runs(place: Path) -> None:
    """Refuse to make a run of a folder that holds runs, which nothing would find any more.

    Raises:
        InputError: It does.
    """
    if looks_like_run(place) or not place.is_dir():
        return
    with as_input_error(f"cannot write {place}"):
        folders = [path for path in place.iterdir() if not path.name.startswith(".")]
    if any(looks_like_run(folder) for folder in folders):
        raise InputError(
            f"{place} is a folder of runs: name one in it for this run, such as {place / 'mine'}"
        )


def _read(folder: Path, description: JsonMapping, planned: Experiment | None) -> Run:
    run = Run(description=description, planned=planned, folder=folder, tables=StoredTables(folder))
    if is_file(folder / RESULT):
        if not (folder / TRACE).is_file():
            raise Damaged(f"{folder / TRACE} is missing")
        result = read_object(folder / RESULT)
        check_record(result, folder / RESULT, description, planned=planned is not None)
        checksums = result.get(CHECKSUMS)
        tables = StoredTables(folder, None if checksums is None else dict(checksums))
        return with_result(run, result, str(folder / RESULT), tables)
    if is_file(folder / FAILURE):
        path = folder / FAILURE
        failure = Failure.of_json(read_json(path), source=str(path))
        check_record(written := read_object(path), path, description, planned=planned is not None)
        return replace(run, failure=failure, tables=StoredTables(folder, written.get(CHECKSUMS)))
    return run
