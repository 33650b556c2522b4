"""Runs as they lie on disk: one folder each, complete once its `result.json` is there."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.files import read_json
from engram.core.folder import ENDS, EXPERIMENT, PROBES, RESULT, TRACE
from engram.core.trace import Trace
from engram.metrics.curve import Curve
from engram.metrics.summary import missing, summarise

ProbeKey = tuple[str, int | None]
"""What a probe measured: its name, and the task it speaks of; None where it speaks of all."""


@dataclass(frozen=True)
class ProbeSeries:
    """What one probe measured over a run: its values, and after how many updates each was taken."""

    step: NDArray[np.int64]
    value: NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """One finished run. Its tables are read from disk when they are first asked for.

    Attributes:
        folder: Where it lies.
        experiment: What was asked for; only `id` and `label` are always there.
        result: What came out: metrics, matrix, timings, versions.
    """

    folder: Path
    experiment: Mapping[str, Any]
    result: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The run's name among all runs."""
        return str(self.experiment["id"])

    @property
    def label(self) -> str:
        """What people call the experiment."""
        return str(self.experiment["label"])

    @property
    def scenario(self) -> str:
        """The scenario's name, or nothing where the run came from somebody's own loop."""
        scenario = self.experiment.get("scenario")
        return str(scenario.get("name", "")) if isinstance(scenario, Mapping) else ""

    @property
    def seed(self) -> str:
        """The run's seed as text; a dash where none was recorded."""
        return str(self.experiment.get("seed", "–"))

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The final value of every metric; NaN where it is undefined.

        Metrics that were registered after the run was made are computed from its trace.
        """
        stored = self.result.get("metrics") or {}
        try:
            values = {
                str(name): float("nan") if value is None else float(value) for name, value in stored.items()
            }
        except (AttributeError, TypeError, ValueError):
            raise InputError(
                f"the metrics of {self.folder / RESULT} are no table of numbers: run it again with --again"
            ) from None
        lacking = missing(values, self.result.get("why"))
        return values | self._computed(lacking) if lacking else values

    def _computed(self, names: Collection[str]) -> dict[str, float]:
        """Metrics of the run's trace; none where that cannot be read: those stored are then all there are."""
        try:
            trace, ends, _ = self.trace, self.ends, self.curve
        except InputError:
            return {}
        classes = self.result.get("classes")
        learned = len(self.result.get("phases") or classes or ())
        measured = summarise(
            trace,
            ends=ends if len(ends) else None,
            classes_seen=classes[:learned] if classes else None,
            phases=self._phases(),
            only=names,
        )
        return measured.final

    @cached_property
    def trace(self) -> Trace:
        """Every evaluation of the run."""
        return Trace.load(self.folder / TRACE)

    @cached_property
    def ends(self) -> Trace:
        """The evaluations at the tasks' ends on full test sets; an empty trace where none were kept."""
        path = self.folder / ENDS
        return Trace.load(path) if path.is_file() else Trace()

    @cached_property
    def probes(self) -> dict[ProbeKey, ProbeSeries]:
        """What each probe measured, of each task or of all; empty where nothing was probed."""
        path = self.folder / PROBES
        if not path.is_file():
            return {}
        import polars as pl

        try:
            table = pl.read_parquet(path)
            if "task" not in table.columns:
                table = table.with_columns(task=pl.lit(None, dtype=pl.Int32))
            parts = table.select("step", "name", "task", "value").partition_by(
                "name", "task", maintain_order=True, as_dict=True
            )
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError(f"cannot read the probes {path}: {_first_line(error)}") from error
        return {
            (str(name), task): ProbeSeries(
                part["step"].to_numpy().astype(np.int64), part["value"].to_numpy().astype(np.float64)
            )
            for (name, task), part in parts.items()
        }

    @cached_property
    def task_names(self) -> list[str]:
        """The tasks' names as far as the experiment tells them."""
        scenario = self.experiment.get("scenario")
        listed = scenario.get("tasks") if isinstance(scenario, Mapping) else self.experiment.get("tasks")
        entries = listed if isinstance(listed, list) else []
        return [str(entry.get("name", "") if isinstance(entry, Mapping) else entry) for entry in entries]

    @cached_property
    def curve(self) -> Curve:
        """The trace as a table of accuracies, tasks in the order in which they were learned."""
        return self._curve_of(self.trace)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """`acc[learned, evaluated]`, on full test sets where the run kept such evaluations."""
        return self._curve_of(self.ends).matrix() if len(self.ends) else self.curve.matrix()

    def task_name(self, column: int) -> str:
        """What people call a task: its number in the order of learning, from 1, and its name, if any."""
        number, task = f"Task {column + 1}", self.curve.tasks[column]
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

    def _curve_of(self, trace: Trace) -> Curve:
        try:
            return Curve.of_trace(trace, phases=self._phases())
        except InputError as error:
            raise InputError(f"the run {self.folder} cannot be read: {error}") from error

    def _phases(self) -> list[list[int]] | None:
        """The tasks for each value of `learning`: as they were learned, else as they were meant to be."""
        learned = dict(self.result.get("phases") or ())
        if learned:
            return [list(learned.get(learning, [learning])) for learning in range(1 + max(learned))]
        scenario = self.experiment.get("scenario")
        meant = scenario.get("phases") if isinstance(scenario, Mapping) else None
        return [list(tasks) for tasks in meant] if meant else None


@dataclass(frozen=True)
class RunGroup:
    """Runs of one experiment that differ in nothing but the seed.

    Attributes:
        label: What people call the experiment, different for every group of a collection.
        runs: The runs, ordered by seed.
    """

    label: str
    runs: tuple[Run, ...]


def load_run(folder: Path) -> Run:
    """One finished run from its folder.

    A folder that is not a run, or one that was never finished, is refused in one line.
    """
    if not folder.is_dir():
        raise InputError(f"no such run: {folder} is not a folder; give a folder that `engram run` left")
    if not _looks_like_run(folder):
        raise InputError(
            f"{folder} is not a run: it has no {EXPERIMENT}; give a folder that `engram run` left"
        )
    for name in (RESULT, EXPERIMENT, TRACE):
        if not (folder / name).is_file():
            raise InputError(
                f"the run {folder} is not complete: {name} is missing; run it again or leave it out"
            )
    experiment, result = (_read_object(folder / name) for name in (EXPERIMENT, RESULT))
    for name in ("id", "label"):
        if name not in experiment:
            raise InputError(f"{folder / EXPERIMENT} has no {name!r}: it was not written by engram")
    return Run(folder, experiment, result)


def find_runs(paths: Iterable[Path]) -> list[Run]:
    """All finished runs in some places, each once, in the order of the paths and then of the folders' names.

    A path is a run's folder, which must be complete, or a folder of runs, of which those that are still
    under way are left out (`unfinished_runs` names them).
    """
    places = list(paths)
    found: dict[Path, Run] = {}
    for place in places:
        for folder in _run_folders(place):
            if folder == place or _is_complete(folder):
                found.setdefault(folder.resolve(), load_run(folder))
    if not found:
        where = ", ".join(str(place) for place in places) or "nowhere"
        raise InputError(f"no finished run found in {where}: give run folders, or a folder that holds some")
    return list(found.values())


def unfinished_runs(paths: Iterable[Path]) -> list[Path]:
    """The run folders in some folders of runs that `find_runs` leaves out, because they are not complete."""
    return [folder for place in paths for folder in _run_folders(place) if not _is_complete(folder)]


def group_runs(runs: Iterable[Run]) -> list[RunGroup]:
    """Put together the runs that differ only in the seed, in the order in which groups first appear.

    Two runs belong together where their experiments are equal without `id`, `seed` and what the seed drew.
    Groups whose labels are the same are told apart by the fields in which they differ.
    """
    members: dict[str, list[Run]] = {}
    for run in runs:
        known = without_draw(run.experiment)
        key = {name: value for name, value in known.items() if name not in ("id", "seed")}
        members.setdefault(json.dumps(key, sort_keys=True), []).append(run)
    groups = [sorted(group, key=_seed_order) for group in members.values()]
    labels = _distinct_labels([group[0] for group in groups])
    return [RunGroup(label, tuple(group)) for label, group in zip(labels, groups, strict=True)]


def without_draw(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment whose scenario says how many tasks it has, but not what its seed drew for them."""
    scenario = experiment.get("scenario")
    if not isinstance(scenario, Mapping):
        return dict(experiment)
    return {**experiment, "scenario": {**scenario, "tasks": len(scenario.get("tasks", ()))}}


def _looks_like_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (EXPERIMENT, RESULT, TRACE))


def _is_complete(folder: Path) -> bool:
    return (folder / RESULT).is_file()


def _run_folders(place: Path) -> list[Path]:
    if not place.is_dir():
        raise InputError(f"no such run: {place} is not a folder; give a folder that `engram run` left")
    if _looks_like_run(place):
        return [place]
    return [folder for folder in sorted(place.iterdir()) if folder.is_dir() and _looks_like_run(folder)]


def _read_object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object: it was not written by engram")
    return value


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _seed_order(run: Run) -> tuple[float, str]:
    seed = run.experiment.get("seed")
    return float(seed) if isinstance(seed, int | float) else float("inf"), run.id


def _distinct_labels(runs: list[Run]) -> list[str]:
    """A label for each of some runs: as short as possible, but no two the same.

    The method's name where nothing else is needed; else the label, with the fields that set runs of the same
    label apart.
    """
    methods = [str(run.experiment.get("method", "")) for run in runs]
    shown = [without_draw(run.experiment) for run in runs]
    scenarios = {json.dumps(each.get("scenario"), sort_keys=True) for each in shown}
    if all(methods) and len(set(methods)) == len(runs) and len(scenarios) == 1:
        return methods
    labels = []
    for run, known in zip(runs, shown, strict=True):
        alike = [each for other, each in zip(runs, shown, strict=True) if other.label == run.label]
        fields = [dict(_leaves(each)) for each in alike]
        names = {name for field in fields for name in field if name not in ("id", "seed")}
        differing = sorted(name for name in names if len({field.get(name) for field in fields}) > 1)
        own = dict(_leaves(known))
        marks = [f"{name.removeprefix('settings.')}={own[name]}" for name in differing if name in own]
        labels.append(f"{run.label} ({', '.join(marks[:3])})" if marks else run.label)
    # Three fields may not be enough; a number always is.
    return [f"{x} #{labels[:i].count(x) + 1}" if labels.count(x) > 1 else x for i, x in enumerate(labels)]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, str(value) if isinstance(value, str | int | float) else json.dumps(value)
