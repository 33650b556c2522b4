"""Grid search: every combination of fields, the best one chosen by a metric (De Lange et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from engram.core.errors import InputError, unknown_name
from engram.core.jsons import JsonObject
from engram.metrics.registry import computed, computed_name, higher_is_better
from engram.protocols.candidates import (
    Candidate,
    Grid,
    as_tried,
    best,
    combinations,
    grouped,
    table,
    varied,
)
from engram.protocols.drive import Plan, finished
from engram.protocols.selection import audited, selected
from engram.record.card import Selected
from engram.record.experiment import Experiment
from engram.record.run import Run
from engram.results.summaries import over_runs

SelectOn = Literal["test", "validation"]


@dataclass(frozen=True, slots=True)
class GridOutcome:
    """The outcome of a grid search.

    Attributes:
        metric: The metric that the choice was made by.
        on: The data that the choice was made on.
        candidates: All combinations that were tried.
        chosen: The index of the best.
        results: The runs of the choice on test data, one per seed.
    """

    metric: str
    on: SelectOn
    candidates: tuple[Candidate, ...]
    chosen: int
    results: tuple[Run, ...]

    @property
    def choices(self) -> tuple[Selected, ...]:
        """The data that the choice among candidates read; it takes effect from the first task on."""
        return selected("fields", self.candidates, phases=self.results[0].experiment.scenario.phases)

    @property
    def choice(self) -> JsonObject:
        """The fields of the best candidate."""
        return self.candidates[self.chosen].fields

    def as_json(self) -> JsonObject:
        """All candidates, the choice, and the results of the choice on test data."""
        return {
            "metric": self.metric,
            "selected_on": self.on,
            "candidates": [candidate.as_json() for candidate in self.candidates],
            "choice": self.choice,
            "summary": summary(self.results),
            "runs": [result.experiment.id for result in self.results],
            **audited(self.results, self.choices),
        }


def grid(
    bases: Sequence[Experiment],
    fields: Grid,
    *,
    metric: str = "ACC",
    on: SelectOn = "test",
    held_out: float = 0.2,
    search_seeds: int | None = None,
) -> Plan[GridOutcome]:
    """Try every combination of fields over seeds, and choose the one with the best mean of a metric.

    De Lange et al. (2023) choose by final ACC (for fine-tuning by WC-ACC) on test data, with five seeds
    everywhere, or with one seed for the search and five for the winner (`search_seeds=1`). If the choice is
    made on validation data, the learner never sees the held-out share, and the winner is run again and
    evaluated on test data. The metric's decorator says which direction is better. A combination with a failed
    run is kept in the table, but not chosen.

    Args:
        bases: The experiment, once per seed.
        fields: For each field, the values to try: see `engram.protocols.candidates.varied`.
        metric: The metric to choose by.
        on: Choose on `test` data, as published, or on `validation` data.
        held_out: The share of the training samples used for validation, if the scenario does not set one.
        search_seeds: How many of the seeds the search uses (default: all).

    Raises:
        InputError: Arguments do not allow a choice; raised before anything is run.

    Example:
        >>> from engram.protocols.drive import drive
        >>> from engram.engine.recipe import experiment
        >>> def made_up(experiments):
        ...     return [Run(planned=one, stored={"ACC": one.optimizer.lr}) for one in experiments]
        >>> outcome = drive(grid([experiment("split-digits", "er")], {"lr": [0.1, 0.5]}), made_up)
        >>> outcome.choice, [candidate.score for candidate in outcome.candidates]
        ({'lr': 0.5}, [0.1, 0.5])
    """
    if not bases:
        raise InputError("a grid needs at least one experiment, one per seed")
    if on not in ("test", "validation"):
        raise unknown_name("data to select on", on, ("test", "validation"))
    metric = metric_name(metric, bases)
    if search_seeds is not None and not 1 <= search_seeds <= len(bases):
        raise InputError(f"search_seeds must be between 1 and {len(bases)}, got {search_seeds}")
    if on == "validation":
        bases = [with_validation(base, held_out) for base in bases]
    searched = bases[:search_seeds]
    tried = [[varied(base, values) for base in bases] for values in combinations(fields)]
    runs = yield [judged(planned, on) for row in tried for planned in row[: len(searched)]]
    names = [as_tried(row[0], fields) for row in tried]
    rows = table(names, grouped(runs, len(searched)), lambda run: run.metric(metric))
    chosen = best(rows, lowest=not higher_is_better(metric))
    # Runs on test data are not repeated: their experiment, and so their folder, is the same.
    final = yield tried[chosen]
    return GridOutcome(metric, on, rows, chosen, tuple(finished(result) for result in final))


def metric_name(name: str, bases: Sequence[Experiment] = ()) -> str:
    """The name of a metric as results spell it, whatever its case.

    Args:
        name: The name as the user typed it.
        bases: The experiments whose runs must have the metric.

    Raises:
        InputError: There is no such metric, or these experiments are not evaluated as it needs.

    Example:
        >>> metric_name("wc-acc")
        'WC-ACC'
    """
    known = computed_name(name)
    if "initial" in computed()[known].needs and any(base.evaluation.tasks != "all" for base in bases):
        raise InputError(f"{known} needs the accuracies of tasks before they are learned: evaluate all tasks")
    return known


def with_validation(experiment: Experiment, held_out: float) -> Experiment:
    """The same experiment with a share of the training samples held out, if none are yet.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> with_validation(experiment("split-digits", "er"), 0.1).scenario.held_out
        0.1
    """
    share = experiment.scenario.held_out or held_out
    if not 0 < share < 1:
        raise InputError(
            f"held_out must be a share of the training samples above 0 and below 1, got {share:g}"
        )
    return replace(experiment, scenario=replace(experiment.scenario, held_out=share))


def judged(experiment: Experiment, on: SelectOn) -> Experiment:
    """The same experiment, evaluated on test or validation data."""
    return replace(experiment, evaluation=replace(experiment.evaluation, on=on))


def summary(results: Sequence[Run]) -> dict[str, JsonObject]:
    """Mean, sample SD and 95 % interval of every metric over runs."""
    return {name: over_runs(results, name).as_json() for name in results[0].metrics}
