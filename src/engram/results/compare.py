"""Comparison of finished runs: which method is better, tested on paired seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, TypedDict, Unpack

import numpy as np

from engram.core.errors import InputError, unknown_name
from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.metrics.arrays import Vector
from engram.metrics.comparison import Ranking, Role, rank
from engram.metrics.paired import LEVEL, Test
from engram.metrics.registry import bounds_of, higher_is_better, users_metrics
from engram.metrics.spending import check_looks, level_of_look
from engram.record.run import Run
from engram.results.looks import Look
from engram.results.runs import RunGroup, Runs, group_key, group_runs, one_by_one, without_draw
from engram.results.summaries import resolution
from engram.results.test_data import notes_on_data, refuse_other_data

DEFAULT_METRICS: Final = ("ACC", "FORG", "min-ACC", "WC-ACC")

# These only record more; the metrics do not depend on them.
_RECORDED_BESIDES: Final = tuple(
    f"evaluation.{name}" for name in ("losses", "gradients", "balances", "transfer", "upstream")
)
_COMPARED: Final = ("format", "id", "label", "seed", "method", "settings", "scenario", "tasks", "evaluation")


class CompareOptions(TypedDict, total=False):
    """The options of a comparison; see `compare_runs`."""

    test: Test
    baseline: str
    more_seeds: Sequence[int]
    together: bool
    bootstrap: bool


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
        rankings: The ranking of the methods by each metric, the primary one first.
        undefined: The metrics that were left out, and why.
        notes: What can be said against the comparison: test data that are not recorded or differ.
        experiments: What identifies the experiment of each method in the log of comparisons.
        plan: The numbers of seeds at which the comparison is looked at; empty if it is not planned.
        variant: What tells this scenario from others with the same name and setting, if there are any.
        extended: Earlier looks with fewer seeds, as far as the log of comparisons tells.
    """

    scenario: str
    setting: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    left_out: Mapping[str, tuple[int, ...]]
    differences: Mapping[str, JsonMapping]
    rankings: Mapping[str, Ranking]
    undefined: Mapping[str, str]
    experiments: Mapping[str, str]
    notes: tuple[str, ...] = ()
    plan: tuple[int, ...] = ()
    variant: str = ""
    extended: tuple[Look, ...] = ()

    @property
    def title(self) -> str:
        """The scenario in words; empty for runs from a custom training loop."""
        name = f"{self.scenario} ({self.setting})" if self.scenario else ""
        return f"{name}, {self.variant}" if self.variant else name

    @property
    def primary(self) -> str:
        """The metric that decides."""
        return next(iter(self.rankings))

    def look(self) -> Look | None:
        """This comparison as an entry of the log; None if it had too few seeds to find anything."""
        metrics = tuple(name for name, ranking in self.rankings.items() if not ranking.too_few)
        ranking = self.rankings[self.primary]
        baseline = self.experiments.get(ranking.baseline, "")
        experiments = tuple(self.experiments.values())
        return Look(experiments, self.seeds, metrics, ranking.test, baseline, self.plan) if metrics else None

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
            "primary": self.primary,
            "plan": {"seeds": list(self.plan), "level": LEVEL} if self.plan else None,
            "variant": self.variant,
            "extended": [look.as_json() for look in self.extended],
        }


def compare_by_scenario(
    runs: Runs, *, metrics: Sequence[str] = (), **options: Unpack[CompareOptions]
) -> tuple[list[RunComparison], dict[str, str]]:
    """Compare the methods of each scenario.

    Args:
        runs: The runs, as returned by `find_runs`.
        metrics: As for `compare_runs`.
        options: As for `compare_runs`.

    Returns:
        One comparison per scenario; and the scenarios that cannot be compared, with the reason.

    Raises:
        InputError: No scenario can be compared.
    """
    parts = runs.by_scenario()
    if len(parts) < 2 or all(len(part.groups()) < 2 for part in parts):
        return [compare_runs(runs, metrics=metrics, **options)], {}
    comparisons, problems = [], {}
    for part, variant in zip(parts, scenario_variants([part[0] for part in parts]), strict=True):
        try:
            comparisons.append(replace(compare_runs(part, metrics=metrics, **options), variant=variant))
        except InputError as error:
            title = (
                f"{part[0].scenario or 'custom loops'}{f' ({part[0].setting})' if part[0].setting else ''}"
            )
            problems[f"{title}, {variant}" if variant else title] = str(error)
    if not comparisons:
        # That some scenario has a single method is beside the point if another has several.
        several = [len(part.groups()) > 1 for part in parts]
        reasons = [why for why, counts in zip(problems.values(), several, strict=True) if counts]
        raise InputError("; ".join(dict.fromkeys(reasons)))
    return comparisons, problems


def scenario_variants(runs: Sequence[Run]) -> list[str]:
    """For each scenario, what tells it from others with the same name and setting."""
    leaves = [_leaves({"": without_draw(one_by_one(run.description)).get("scenario")}) for run in runs]
    variants = []
    for run, ours in zip(runs, leaves, strict=True):
        alike = [
            theirs
            for other, theirs in zip(runs, leaves, strict=True)
            if (other.scenario, other.setting) == (run.scenario, run.setting)
        ]
        names = [name for name in ours if len({_written(theirs.get(name)) for theirs in alike}) > 1]
        variants.append(", ".join(f"{name.strip('.')} {_written(ours[name])}" for name in names[:3]))
    return variants


def compare_runs(
    runs: Iterable[Run],
    *,
    metrics: Sequence[str] = (),
    test: Test = "sign-flip",
    baseline: str = "",
    more_seeds: Sequence[int] = (),
    together: bool = False,
    bootstrap: bool = False,
) -> RunComparison:
    """Compare the methods of some runs, paired by seed.

    Runs that differ only in the seed belong to one method. Seeds that every method has are compared; the
    others are listed in `left_out`. All runs must share scenario, setting and evaluation and, for each seed,
    the same draw of the scenario (permutations, class orders) and the same test data. Each metric is compared
    on the seeds for which every method has a value. P-values are corrected for the pairs of methods. The
    first metric is the primary one; the others are exploratory, unless all are corrected together.

    Args:
        runs: The runs, as returned by `find_runs`.
        metrics: The metrics to compare (default: those of ACC, FORG, min-ACC, WC-ACC and plugins that the
            runs have).
        test: The test of each pair: `sign-flip` or `t`.
        baseline: Compare all other methods with this one only, and correct for that number of tests.
        more_seeds: The numbers of seeds at which the comparison is looked at, such as (6, 12), fixed before
            the first look. Each look then has a level of its own, which together are 5 %.
        together: Whether p-values are corrected for all metrics together, so that none is exploratory.
        bootstrap: Whether to compute BCa bootstrap intervals, which need ten seeds.

    Raises:
        InputError: There is nothing to compare, or the runs are not comparable.
    """
    if more_seeds:
        check_looks(more_seeds)
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
    judged = _Judged(
        test=test,
        level=level_of_look(more_seeds, len(shared)) if more_seeds else LEVEL,
        baseline=_spelled(baseline, by_seed) if baseline else "",
        together=together,
        bootstrap=bootstrap,
    )
    rankings, undefined = _rankings(chosen_metrics(metrics, distinct.values()), paired, judged)
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
        experiments={group.label: _identity(group) for group in groups},
        plan=tuple(more_seeds),
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """How methods are judged."""

    test: Test
    level: float
    baseline: str
    together: bool
    bootstrap: bool


def _identity(group: RunGroup) -> str:
    return sha256(group_key(group.runs[0]).encode()).hexdigest()[:16]


def _spelled(name: str, labels: Iterable[str]) -> str:
    """The label of a method from its name: in any capitalisation, or as far as it is unambiguous."""
    known = list(labels)
    for same in (
        [label for label in known if label.lower() == name.lower()],
        [label for label in known if label.lower().startswith(name.lower())],
    ):
        if len(same) == 1:
            return same[0]
    raise unknown_name("baseline", name, known)


def _rankings(
    metrics: Iterable[str], paired: Mapping[str, Sequence[Run]], judged: _Judged
) -> tuple[dict[str, Ranking], dict[str, str]]:
    """The ranking by each metric, and why a metric has none."""
    tables, undefined = _tables(metrics, paired)
    run = next(iter(paired.values()))[0]

    def ranked(metric: str, role: Role, other_p: Sequence[float] = ()) -> Ranking:
        return rank(
            tables[metric],
            higher_is_better=_direction(metric),
            test=judged.test,
            level=judged.level,
            baseline=judged.baseline,
            bounds=bounds_of(metric),
            resolution=resolution(run, metric),
            bootstrap=judged.bootstrap,
            role=role,
            other_p=other_p,
        )

    rankings = {
        metric: ranked(metric, "exploratory" if number else "primary") for number, metric in enumerate(tables)
    }
    if judged.together and len(rankings) > 1:
        p = {metric: [pair.p for pair in ranking.pairs] for metric, ranking in rankings.items()}
        rankings = {
            metric: ranked(
                metric, "corrected", [value for other in p if other != metric for value in p[other]]
            )
            for metric in rankings
        }
    return rankings, undefined


def _tables(
    metrics: Iterable[str], paired: Mapping[str, Sequence[Run]]
) -> tuple[dict[str, dict[str, Vector]], dict[str, str]]:
    """For each metric, the values of each method by seed; and why a metric has none."""
    tables, undefined = {}, {}
    for metric in metrics:
        table = np.array([[run.metrics.get(metric, np.nan) for run in runs] for runs in paired.values()])
        known = np.isfinite(table).all(axis=0)
        if known.any():
            tables[metric] = dict(zip(paired, table[:, known], strict=True))
        else:
            lacking = [name for name, row in zip(paired, table, strict=True) if not np.isfinite(row).all()]
            undefined[metric] = (
                f"no seed has a value for every method; values are missing for {', '.join(lacking)}"
            )
    if not tables:
        raise InputError(f"nothing to compare: {'; '.join(f'{n}: {why}' for n, why in undefined.items())}")
    return tables, undefined


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
        experiment = without_draw(one_by_one(group.runs[0].description))
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
        ours, theirs = (one_by_one(drawn.description).get("scenario") for drawn in (reference, run))
        if ours != theirs:
            raise InputError(
                f"{first} and {name} cannot be compared: with seed {seed} they learned different tasks "
                f"({_place(reference)} and {_place(run)})"
            )


def chosen_metrics(metrics: Sequence[str], runs: Iterable[Run]) -> list[str]:
    """The names of metrics as the runs spell them; without any, the usual ones that the runs have.

    Raises:
        InputError: No run has such a metric.

    Example:
        >>> chosen_metrics(["acc"], [Run(stored={"ACC": 0.5})])
        ['ACC']
    """
    known = dict.fromkeys(name for run in runs for name in run.metrics)
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
