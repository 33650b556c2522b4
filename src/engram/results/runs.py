"""Collections of runs: loaded from folders, grouped over seeds, and laid out as a table."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from engram.core.collection import without_collection
from engram.core.errors import Damaged, InputError, unknown_name
from engram.core.folder import looks_like_run
from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.record.failure import Failure, FailureKind
from engram.record.incomplete import what_to_do, why_incomplete
from engram.record.run import Run

if TYPE_CHECKING:
    import polars

    from engram.models.network import Network
    from engram.record.weights import NetworkSource
    from engram.results.compare import CompareOptions, RunComparison
    from engram.results.table import Table


class Runs(Sequence[Run]):
    """Finished runs, in the order in which they were loaded or made.

    Attributes:
        incomplete: Runs that failed, were killed, are still running or are damaged; they are not part of the
            sequence. `status` and `failure` of each say why.

    Example:
        >>> runs = Runs([Run(description={"id": "a", "label": "er"}, finished=True, stored={"ACC": 0.5})])
        >>> runs
        <Runs: 1 finished>
        >>> runs.frame().select("id", "ACC").rows()
        [('a', 0.5)]
    """

    def __init__(self, runs: Iterable[Run], *, incomplete: Iterable[Run] = ()) -> None:
        self._runs, self.incomplete = tuple(runs), tuple(incomplete)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, place: int) -> Run: ...

    @overload
    def __getitem__(self, place: slice) -> Runs: ...

    def __getitem__(self, place: int | slice) -> Run | Runs:
        """One run by its index, or several by a slice."""
        return Runs(self._runs[place]) if isinstance(place, slice) else self._runs[place]

    def __repr__(self) -> str:
        """The number of runs and their labels."""
        labels = [f"{group.label} × {len(group.runs)}" for group in self.groups()] if len(self) > 1 else []
        shown = ", ".join(labels[:6]) + (f" and {len(labels) - 6} more" if len(labels) > 6 else "")
        rest = f", {len(self.incomplete)} not finished" if self.incomplete else ""
        return f"<Runs: {len(self)} finished{rest}{f': {shown}' if shown else ''}>"

    def model(self, source: NetworkSource | None = None, *, task: int | None = None) -> Network:
        """The network of the only run, with the weights that it kept; see `Run.model`.

        Raises:
            InputError: There is not exactly one run.
        """
        if len(self) != 1:
            raise InputError(
                f"a network is that of one run, and these are {len(self)}: choose one, runs[0].model()"
            )
        return self[0].model(source, task=task)

    def groups(self) -> list[RunGroup]:
        """The runs grouped by experiment: those of a group differ only in the seed."""
        return group_runs(self)

    def frame(self, *, compute_extremes: bool = False) -> polars.DataFrame:
        """A data frame with one row per run, and every setting and metric as columns.

        Settings have the names of their fields (`optimizer.lr`, `settings.memory`); lists are JSON text.
        Undefined metrics and settings that a run does not have are null.

        Extremes such as min-ACC have three more columns: `min-ACC corrected`, `min-ACC low` and `min-ACC
        high`, the value without the bias of a subset and its 95 % interval; see `Run.extremes`.

        Args:
            compute_extremes: Whether to compute these for runs of earlier versions too, which did not store
                them: up to half a second per run.
        """
        import polars as pl

        rows = [_row(run, compute_extremes=compute_extremes) for run in self]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        return pl.DataFrame({name: _column(name, values) for name, values in columns.items()})

    def compare(self, *metrics: str, **options: Unpack[CompareOptions]) -> RunComparison:
        """Test methods against each other, paired by seed; see `engram.results.compare.compare_runs`.

        All runs must be of one scenario; `by_scenario` separates them.
        """
        from engram.results.compare import compare_runs

        return compare_runs(self, metrics=metrics, **options)

    def by_scenario(self) -> list[Runs]:
        """The runs of each scenario, in order of first appearance."""
        parts: dict[str, list[Run]] = {}
        for run in self:
            parts.setdefault(scenario_key(run), []).append(run)
        return [Runs(part) for part in parts.values()]

    def table(self, *metrics: str, by: Sequence[str] = (), best: bool = False) -> Table:
        """Lay out the runs as a table over seeds, one block per scenario.

        `markdown()`, `latex()` and `frame()` of the table write it; `engram.results.table.table_of` has the
        details.
        """
        from engram.results.table import table_of

        return table_of(self, metrics, by=by, best=best)

    def report(self, page: str | Path = "report.html") -> Path:
        """Write one self-contained HTML page about these runs, and return its path."""
        from engram.results.report import write_report

        write_report(self, Path(page))
        return Path(page)


@without_collection()
def find_runs(paths: Iterable[str | Path] | str | Path) -> Runs:
    """All runs in some folders, without duplicates, ordered by path and then by folder name.

    A path is the folder of a finished run, a folder of runs, or a compact store, which may be at any address
    that Polars reads (`s3://bucket/runs`). Runs that are not finished, or damaged, are in `incomplete`. A run
    and its copy, such as that in the compact store of its folder, are one run; a warning names the copy.

    Raises:
        InputError: There is no finished run, or a run that was named itself is not finished or damaged.
    """
    from engram.results.store import is_store, read_store

    places = [paths] if isinstance(paths, str | Path) else list(paths)
    finished: dict[Path | str, Run] = {}
    incomplete: dict[Path | str, Run] = {}
    for place in places:
        if is_store(place):
            finished |= {f"{place}/{run.id}": run for run in read_store(place)}
            continue
        for folder in run_folders(Path(place)):
            run = load_run(folder)
            if folder == Path(place) and not run.finished:
                raise InputError(_cannot_be_used(run))
            (finished if run.finished else incomplete).setdefault(folder.resolve(), run)
    if not finished:
        where = ", ".join(str(place) for place in places) or "no path"
        rest = "".join(f"; {run.folder}: {why_incomplete(run)}" for run in [*incomplete.values()][:3])
        if len(incomplete) > 3:
            rest += f"; and {len(incomplete) - 3} more that are not finished"
        raise InputError(
            f"no finished run found in {where}: pass run folders, or a folder that contains runs{rest}"
        )
    return Runs(_without_copies(finished), incomplete=incomplete.values())


def _without_copies(runs: Mapping[Path | str, Run]) -> list[Run]:
    """The runs, by their places, without copies of earlier ones."""
    by_id: dict[str, list[tuple[Path | str, Run]]] = {}
    kept, copies = [], []
    for place, run in runs.items():
        alike = by_id.setdefault(run.id, [])
        first = next((other for other, known in alike if _same_record(run, known)), None)
        if first is None:
            alike.append((place, run))
            kept.append(run)
        else:
            copies.append(f"left out: {place}: it is a copy of {first}")
    if copies:
        more = f"; so are {len(copies) - 1} more runs" if len(copies) > 1 else ""
        warnings.warn(f"{copies[0]}{more}", stacklevel=4)
    return kept


def _same_record(one: Run, other: Run) -> bool:
    """Whether two runs of one id are one run: a repeated one takes another time, to the microsecond."""
    facts, others = (
        (
            run.seconds,
            run.updates,
            run.evaluations,
            # NaN is not equal to itself.
            {name: repr(value) for name, value in run.stored.items()},
            run.description,
        )
        for run in (one, other)
    )
    return facts == others


def _cannot_be_used(run: Run) -> str:
    if run.failure is not None and run.failure.kind is FailureKind.DAMAGED:
        return f"{run.failure.reason}; {what_to_do(run)}"
    return f"the run {run.folder} cannot be used: {why_incomplete(run)}; {what_to_do(run)}"


def load_run(folder: Path) -> Run:
    """The run in a folder, or, as `STORE/ID`, in a compact store; a damaged one has a failure that says so.

    Raises:
        InputError: There is no such run.
    """
    from engram.results.store import is_store, read_store

    try:
        if not folder.exists() and is_store(folder.parent):
            runs = {run.id: run for run in read_store(folder.parent)}
            if folder.name not in runs:
                raise unknown_name("run", folder.name, runs)
            return runs[folder.name]
        return Run.load(folder)
    except Damaged as error:
        damage = Failure(FailureKind.DAMAGED, str(error))
        return Run(description={"id": folder.name, "label": folder.name}, folder=folder, failure=damage)


def one_run(place: str | Path) -> Run:
    """The finished run at a place: its folder, or its id in a compact store (`STORE/ID`).

    Raises:
        InputError: There is none, or it is not finished; or a store has several.
        Damaged: It is not what was written.
    """
    from engram.results.store import is_store, read_store, store_of

    if (named := store_of(place)) is not None:
        store, name = named
        by_id = {run.id: run for run in read_store(store)}
        if name not in by_id:
            raise unknown_name("run", name, by_id)
        return by_id[name]
    if is_store(place):
        runs = read_store(place)
        if len(runs) != 1:
            raise InputError(f"{place} is a store of {len(runs)} runs: name one, as in {place}/{runs[0].id}")
        return runs[0]
    run = load_run(Path(place))
    if not run.finished:
        raise InputError(_cannot_be_used(run))
    return run


def run_folders(place: Path) -> list[Path]:
    """A folder itself, if it is that of a run; else all folders of runs in it, ordered by name.

    Raises:
        InputError: It is not a folder.
    """
    if not place.is_dir():
        raise InputError(f"no such run: {place} is not a folder; pass a folder written by `engram run`")
    if looks_like_run(place):
        return [place]
    return [
        folder
        for folder in sorted(place.iterdir())
        if folder.is_dir() and not folder.name.startswith(".") and looks_like_run(folder)
    ]


def _row(run: Run, *, compute_extremes: bool) -> JsonObject:
    """A run as a row of the data frame."""
    extremes = run.extremes if compute_extremes else run.estimates
    metrics = {name: None if math.isnan(value) else value for name, value in run.metrics.items()}
    return {
        "id": run.id,
        "label": run.label,
        **settings_of(run),
        **metrics,
        **({} if extremes is None else extremes.columns()),
        "updates": run.updates,
        "evaluations": run.evaluations,
        "train_seconds": run.seconds.train,
        "evaluate_seconds": run.seconds.evaluate,
        "folder": None if run.folder is None else str(run.folder),
    }


def settings_of(run: Run) -> JsonObject:
    """What was run, as flat fields: `scenario`, `method`, `optimizer.lr`, `settings.memory` and so on.

    Example:
        >>> settings_of(Run(description={"id": "a", "method": "er", "settings": {"memory": 100}}))
        {'scenario': '', 'setting': '', 'method': 'er', 'seed': None, 'settings.memory': 100}
    """
    known = {name: value for name, value in run.description.items() if name not in _IN_COLUMNS}
    named = {"scenario": run.scenario, "setting": run.setting, "method": run.method, "seed": run.seed}
    return {**named, **dict(_leaves(known, lists=True))}


_IN_COLUMNS = ("id", "label", "scenario", "method", "seed", "format", "tasks")


def _column(name: str, values: list[Json]) -> polars.Series:
    """A column of the data frame; values of mixed types become text."""
    import polars as pl

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        values = [None if value is None else float(value) for value in values]
    elif len(kinds) > 1:
        values = [None if value is None else str(value) for value in values]
    return pl.Series(name, values)


@dataclass(frozen=True)
class RunGroup:
    """Runs of one experiment that differ only in the seed.

    Attributes:
        label: The name of the experiment, unique within a collection.
        runs: The runs, ordered by seed.
    """

    label: str
    runs: tuple[Run, ...]

    def first(self, most: int) -> RunGroup:
        """The group with at most so many of its runs."""
        return self if len(self.runs) <= most else RunGroup(self.label, self.runs[:most])


def group_runs(runs: Iterable[Run]) -> list[RunGroup]:
    """Group the runs that differ only in the seed, in order of first appearance.

    Two runs belong to one group if their experiments are equal except for `id`, `seed` and what the seed
    drew. Groups with the same label are told apart by the fields in which they differ.
    """
    members: dict[str, list[Run]] = {}
    keys: dict[tuple[object, ...], str] = {}
    # All are held at the same time, because their parts are recognised by their addresses: runs of a store
    # share those that are equal.
    described = [(run, run.description) for run in runs]
    for run, description in described:
        parts = tuple((name, id(part)) for name, part in description.items() if name not in _OWN)
        if parts not in keys:
            keys[parts] = group_key(run)
        members.setdefault(keys[parts], []).append(run)
    groups = [sorted(group, key=_seed_order) for group in members.values()]
    labels = _distinct_labels([group[0] for group in groups])
    return [RunGroup(label, tuple(group)) for label, group in zip(labels, groups, strict=True)]


def without_damaged(runs: Iterable[Run], *, most: int | None = None) -> Runs:
    """The runs, with those whose tables are damaged among the incomplete ones.

    Args:
        runs: Finished runs.
        most: How many runs of each group are looked at, where only the tables of so many are used.

    Example:
        >>> without_damaged([Run(description={"id": "a", "label": "er"}, finished=True)])
        <Runs: 1 finished>
    """
    runs = runs if isinstance(runs, Runs) else Runs(runs)
    damaged: dict[int, Run] = {}
    for group in runs.groups():
        sound = 0
        for run in group.runs:
            failure = _damage(run) if most is None or sound < most else None
            if failure is None:
                sound += 1
            else:
                damaged[id(run)] = replace(run, finished=False, failure=failure)
    whole = (run for run in runs if id(run) not in damaged)
    return Runs(whole, incomplete=(*runs.incomplete, *damaged.values()))


def _damage(run: Run) -> Failure | None:
    """What is wrong with the tables that say how a run went."""
    try:
        _ = run.trace, run.ends, run.scores, run.readings
    except Damaged as error:
        return Failure(FailureKind.DAMAGED, str(error))
    return None


def group_key(run: Run) -> str:
    """What the runs of one group have in common, as text.

    Example:
        >>> group_key(Run(description={"id": "a", "seed": 1, "method": "er"}))
        '{"method": "er"}'
    """
    known = without_draw(run.description)
    return json.dumps({name: known[name] for name in known if name not in _OWN}, sort_keys=True)


_OWN = ("id", "seed")
"""What the runs of one group do not have in common."""


def without_draw(experiment: JsonMapping) -> JsonObject:
    """An experiment without what its seed drew: of the scenario's tasks, only their number is kept."""
    scenario = experiment.get("scenario")
    if not isinstance(scenario, Mapping):
        return dict(experiment)
    return {**experiment, "scenario": {**scenario, "tasks": len(scenario.get("tasks", ()))}}


def one_by_one(experiment: JsonMapping) -> JsonMapping:
    """The experiment as if its tasks had been learned one after the other.

    This makes a baseline that learns all tasks at once (`offline`) comparable with the other methods.

    Example:
        >>> one_by_one({"scenario": {"phases": [[1, 0]]}})
        {'scenario': {'phases': [[0], [1]]}}
    """
    scenario = experiment.get("scenario")
    if not isinstance(scenario, Mapping) or len(scenario.get("phases") or ()) != 1:
        return experiment
    phases = [[task] for task in sorted(scenario["phases"][0])]
    return {**experiment, "scenario": {**scenario, "phases": phases}}


def scenario_key(run: Run) -> str:
    """What the scenarios of comparable runs have in common, as text; the same for all custom loops."""
    return json.dumps(without_draw(one_by_one(run.description)).get("scenario"), sort_keys=True)


def _seed_order(run: Run) -> tuple[float, str]:
    seed = run.description.get("seed")
    return float(seed) if isinstance(seed, int | float) else float("inf"), run.id


def _distinct_labels(runs: list[Run]) -> list[str]:
    """Short, unique labels for some runs.

    The name of the method if that is unique; otherwise the label of the run, with the fields in which runs of
    the same label differ.
    """
    methods = [str(run.description.get("method", "")) for run in runs]
    experiments = [without_draw(run.description) for run in runs]
    scenarios = {json.dumps(experiment.get("scenario"), sort_keys=True) for experiment in experiments}
    if all(methods) and len(set(methods)) == len(runs) and len(scenarios) == 1:
        return methods
    labels = []
    leaves = [dict(_leaves(experiment)) for experiment in experiments]
    for run, fields in zip(runs, leaves, strict=True):
        same_label = [other for peer, other in zip(runs, leaves, strict=True) if peer.label == run.label]
        names = {name for other in same_label for name in other if name not in ("id", "seed")}
        differing = sorted(name for name in names if len({other.get(name) for other in same_label}) > 1)
        marks = [f"{name.removeprefix('settings.')}={fields[name]}" for name in differing if name in fields]
        labels.append(f"{run.label} ({', '.join(marks[:3])})" if marks else run.label)
    # Three fields may not be enough to tell runs apart: these are numbered.
    return [f"{x} #{labels[:i].count(x) + 1}" if labels.count(x) > 1 else x for i, x in enumerate(labels)]


def _leaves(value: Json, path: str = "", *, lists: bool = False) -> Iterator[tuple[str, Json]]:
    """Every value in nested mappings by its dotted name, as text; with `lists`, only lists become text."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name), lists=lists)
    elif lists:
        yield path, json.dumps(value) if isinstance(value, list | tuple) else value
    else:
        yield path, str(value) if isinstance(value, str | int | float) else json.dumps(value)
