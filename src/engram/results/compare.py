"""Comparison of finished runs: which method is better, tested on paired seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engram.core.errors import InputError, unknown_name
from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.metrics.comparison import Ranking, rank
from engram.metrics.paired import Test
from engram.metrics.registry import higher_is_better, users_metrics
from engram.record.run import Run
from engram.results.runs import RunGroup, group_runs, without_draw
from engram.results.test_data import notes_on_data, refuse_other_data

DEFAULT_METRICS: Final = ("ACC", "FORG", "min-ACC", "WC-ACC")

# These only record more; the metrics do not depend on them.
_RECORDED_BESIDES: Final = tuple(
    f"evaluation.{name}" for name in ("losses", "gradients", "balances", "transfer", "upstream")
)
_COMPARED: Final = ("format", "id", "label", "seed", "method", "settings", "scenario", "tasks", "evaluation")


@dataclass(frozen=True)
class RunComparison:
    """Runs of several methods on one scenario, paired by seed.

    Attributes:
        scenario: The name of the scenario; empty for runs from a custom training loop.
        setting: The setting of the scenario; empty likewise.
        methods: The label of each group of runs, in the order of the runs.
        seeds: The seeds that all methods have.
        left_out: For each method, the seeds that not all other methods have.
        differences: Fields other than the method and its settings in which the experiments differ, with the
            value for each method.
        rankings: The ranking of the methods by each metric.
        undefined: The metrics that were left out, and why.
        notes: What can be said against the comparison: test data that are not recorded or differ.
    """

    scenario: str
    setting: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    left_out: Mapping[str, tuple[int, ...]]
    differences: Mapping[str, JsonMapping]
    rankings: Mapping[str, Ranking]
    undefined: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def as_json(self) -> JsonObject:
        """The comparison as JSON, with null for undefined and infinite numbers."""
        return {
            "scenario": self.scenario,
            "setting": self.setting,
            "methods": list(self.methods),
            "seeds": list(self.seeds),
            "left_out": {name: list(seeds) for name, seeds in self.left_out.items()},
            "differences": {field: dict(values) for field, values in self.differences.items()},
            "metrics": {name: ranking.as_json() for name, ranking in self.rankings.items()},
            "undefined": dict(self.undefined),
            "notes": list(self.notes),
        }


def compare_runs(
    runs: Iterable[Run], *, metrics: Sequence[str] = (), test: Test = "sign-flip"
) -> RunComparison:
    """Compare the methods of some runs, paired by seed.

    Runs that differ only in the seed belong to one method. Seeds that every method has are compared; the
    others are listed in `left_out`. All runs must share scenario, setting and evaluation and, for each seed,
    the same draw of the scenario (permutations, class orders) and the same test data. Each metric is compared
    on the seeds for which every method has a value. P-values are corrected for the pairs of methods, but not
    for the number of metrics.

    Args:
        runs: The runs, as returned by `find_runs`.
        metrics: The metrics to compare (default: those of ACC, FORG, min-ACC, WC-ACC and plugins that the
            runs have).
        test: The test of each pair: `sign-flip` or `t`.

    Raises:
        InputError: There is nothing to compare, or the runs are not comparable.
    """
    # A run that was never saved has no folder that identifies it.
    distinct = {run.folder or id(run): run for run in runs}
    groups = group_runs(distinct.values())
    if len(groups) < 2:
        names = ", ".join(group.label for group in groups) or "none"
        raise InputError(
            f"nothing to compare: runs of at least two experiments are required, got {len(groups)} ({names})"
        )
    _refuse_different(groups)
    by_seed = {group.label: _by_seed(group) for group in groups}
    shared = sorted(set.intersection(*(set(seeds) for seeds in by_seed.values())))
    if not shared:
        listed = "; ".join(f"{name}: {_listed(seeds)}" for name, seeds in by_seed.items())
        raise InputError(f"no seed was run with every method ({listed}): run all methods with the same seeds")
    for seed in shared:
        _refuse_other_draw({name: seeds[seed] for name, seeds in by_seed.items()}, seed)
        refuse_other_data({name: seeds[seed] for name, seeds in by_seed.items()}, seed)

    paired = {name: [seeds[seed] for seed in shared] for name, seeds in by_seed.items()}
    rankings, undefined = _rankings(_chosen(metrics, paired), paired, test)
    first = groups[0].runs[0]
    left_out = {name: tuple(sorted(set(seeds) - set(shared))) for name, seeds in by_seed.items()}
    return RunComparison(
        scenario=first.scenario,
        setting=first.setting,
        methods=tuple(by_seed),
        seeds=tuple(shared),
        left_out={name: seeds for name, seeds in left_out.items() if seeds},
        differences=_differences(groups),
        rankings=rankings,
        undefined=undefined,
        notes=notes_on_data(paired),
    )


def _rankings(
    metrics: Iterable[str], paired: Mapping[str, Sequence[Run]], test: Test
) -> tuple[dict[str, Ranking], dict[str, str]]:
    """The ranking by each metric, and why a metric has none."""
    rankings, undefined = {}, {}
    for metric in metrics:
        table = np.array([[run.metrics.get(metric, np.nan) for run in runs] for runs in paired.values()])
        known = np.isfinite(table).all(axis=0)
        if known.any():
            values = dict(zip(paired, table[:, known], strict=True))
            rankings[metric] = rank(values, higher_is_better=_direction(metric), test=test)
        else:
            lacking = [name for name, row in zip(paired, table, strict=True) if not np.isfinite(row).all()]
            undefined[metric] = (
                f"no seed has a value for every method; values are missing for {', '.join(lacking)}"
            )
    if not rankings:
        raise InputError(f"nothing to compare: {'; '.join(f'{n}: {why}' for n, why in undefined.items())}")
    return rankings, undefined


def _direction(metric: str) -> bool:
    """Whether higher values of a metric are better."""
    try:
        return higher_is_better(metric)
    except InputError:
        raise InputError(
            f"the runs have a metric {metric!r} that is not registered, so its direction is unknown: "
            "pass the file that registers it with --plugin"
        ) from None


def _refuse_different(groups: Sequence[RunGroup]) -> None:
    """Raise unless all groups have the same scenario, tasks and evaluation."""

    def evaluated(group: RunGroup) -> JsonObject:
        experiment = without_draw(_one_by_one(group.runs[0].description))
        fields = {name: experiment.get(name) for name in ("scenario", "tasks", "evaluation")}
        return {
            name: value for name, value in _leaves(fields).items() if not name.startswith(_RECORDED_BESIDES)
        }

    first, *others = groups
    for other in others:
        ours, theirs = evaluated(first), evaluated(other)
        for name in dict.fromkeys([*ours, *theirs]):
            if ours.get(name) != theirs.get(name):
                raise InputError(
                    f"{first.label} and {other.label} cannot be compared: {name} is "
                    f"{_written(ours.get(name))} in one and {_written(theirs.get(name))} in the other; "
                    "all runs must have the same scenario, setting and evaluation"
                )


def _one_by_one(experiment: JsonMapping) -> JsonMapping:
    """The experiment as if its tasks had been learned one after the other.

    This makes a baseline that learns all tasks at once (`offline`) comparable with the other methods.
    """
    scenario = experiment.get("scenario")
    if not isinstance(scenario, Mapping) or len(scenario.get("phases") or ()) != 1:
        return experiment
    phases = [[task] for task in sorted(scenario["phases"][0])]
    return {**experiment, "scenario": {**scenario, "phases": phases}}


def _by_seed(group: RunGroup) -> dict[int, Run]:
    by_seed: dict[int, Run] = {}
    for run in group.runs:
        seed = run.description.get("seed")
        if not isinstance(seed, int):
            raise InputError(
                f"the run {_place(run)} has no seed: runs are paired by seed, so each must record its seed"
            )
        if seed in by_seed:
            raise InputError(
                f"two runs of {group.label} have the seed {seed}: {_place(by_seed[seed])} and {_place(run)}; "
                "leave one out"
            )
        by_seed[seed] = run
    return by_seed


def _place(run: Run) -> str:
    """The folder of a run, or its id if it was never saved."""
    return str(run.folder or run.id)


def _refuse_other_draw(runs: Mapping[str, Run], seed: int) -> None:
    (first, reference), *others = runs.items()
    for name, run in others:
        ours, theirs = (_one_by_one(drawn.description).get("scenario") for drawn in (reference, run))
        if ours != theirs:
            raise InputError(
                f"{first} and {name} cannot be compared: with seed {seed} they learned different tasks "
                f"({_place(reference)} and {_place(run)})"
            )


def _chosen(metrics: Sequence[str], paired: Mapping[str, Sequence[Run]]) -> list[str]:
    """The names of metrics as the runs spell them."""
    known = dict.fromkeys(name for runs in paired.values() for run in runs for name in run.metrics)
    if not metrics and known.keys().isdisjoint(DEFAULT_METRICS):
        raise InputError(
            f"the runs have none of {', '.join(DEFAULT_METRICS)}: choose another metric; "
            f"known: {', '.join(known) or 'none'}"
        )
    if not metrics:
        return [name for name in (*DEFAULT_METRICS, *users_metrics()) if name in known]
    spelled = {name.lower(): name for name in known}
    chosen = []
    for name in metrics:
        if name.lower() not in spelled:
            raise unknown_name("metric", name, known)
        chosen.append(spelled[name.lower()])
    return list(dict.fromkeys(chosen))


def _differences(groups: Sequence[RunGroup]) -> dict[str, JsonObject]:
    """The fields other than the method and its settings that differ between groups."""
    fields = {
        group.label: _leaves({n: v for n, v in group.runs[0].description.items() if n not in _COMPARED})
        for group in groups
    }
    names = dict.fromkeys(name for leaves in fields.values() for name in leaves)
    by_name = {name: {label: leaves.get(name) for label, leaves in fields.items()} for name in names}
    return {name: values for name, values in by_name.items() if len(set(map(_written, values.values()))) > 1}


def _leaves(value: JsonMapping, path: str = "") -> JsonObject:
    leaves: JsonObject = {}
    for name, inner in value.items():
        leaves |= _leaves(inner, f"{path}{name}.") if isinstance(inner, Mapping) else {f"{path}{name}": inner}
    return leaves


def _written(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, seeds))
