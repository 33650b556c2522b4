"""Grid search: every combination of fields, the best one chosen by a metric (000)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from engram.core.errors import InputError, unknown_name
from engram.metrics.intervals import over_seeds
from engram.metrics.registry import computed, computed_name, higher_is_better
from engram.protocols.candidates import (
    Candidate,
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

SelectOn = Literal["test", "validation"]


@dataclass(frozen=True, slots=True)
class GridOutcome:
    """What a grid search found.

    Attributes:
        metric: By what the choice was made.
        on: On which data.
        candidates: All that were tried.
        chosen: The place of the best.
        results: The runs of the choice on test data, one a seed.
    """

    metric: str
    on: SelectOn
    candidates: tuple[Candidate, ...]
    chosen: int
    results: tuple[Run, ...]

    @property
    def choices(self) -> tuple[Selected, ...]:
        """What the choice among candidates read; it takes effect from the first task on."""
        return selected("fields", self.candidates, phases=self.results[0].experiment.scenario.phases)

    @property
    def choice(self) -> dict[str, Any]:
        """The fields of the best candidate."""
        return self.candidates[self.chosen].fields

    def as_json(self) -> dict[str, Any]:
        """The whole table, the choice, and how the choice does on test data."""
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
    fields: Mapping[str, Sequence[Any]],
    *,
    metric: str = "ACC",
    on: SelectOn = "test",
    held_out: float = 0.2,
    search_seeds: int | None = None,
) -> Plan[GridOutcome]:
    """Try every combination of fields over seeds, and choose the one with the best mean of a metric.

    000 chooses by final ACC (for fine-tuning alone by WC-ACC) on test data, with five seeds everywhere, or
    with one seed for the search and five for the winner (`search_seeds=1`). On validation data the learner
    never sees the held-out share; the choice is then run again and asked on test data. The metric's
    decorator says which direction is better. A combination with a failed run is kept in the table, but not
    chosen.

    Args:
        bases: The experiment with each seed.
        fields: For each field, the values to try: see `engram.protocols.candidates.varied`.
        metric: By what to choose.
        on: Choose on `test` data, as published, or on `validation` data.
        held_out: The share of the training samples that is for validation, unless the scenario says it.
        search_seeds: How many of the seeds the search uses; all unless given.

    Raises:
        InputError: Nothing can be chosen this way; said before anything is run.

    Example:
        >>> from engram.protocols.drive import drive
        >>> from engram.engine.recipe import experiment
        >>> def made_up(experiments):
        ...     return [Run(planned=each, stored={"ACC": each.optimizer.lr}) for each in experiments]
        >>> found = drive(grid([experiment("split-digits", "er")], {"lr": [0.1, 0.5]}), made_up)
        >>> found.choice, [candidate.score for candidate in found.candidates]
        ({'lr': 0.5}, [0.1, 0.5])
    """
    if not bases:
        raise InputError("a grid needs an experiment: give one a seed")
    if on not in ("test", "validation"):
        raise unknown_name("data to select on", on, ("test", "validation"))
    metric = metric_name(metric, bases)
    if search_seeds is not None and not 1 <= search_seeds <= len(bases):
        raise InputError(f"search_seeds={search_seeds} cannot be used: give 1 to {len(bases)}")
    if on == "validation":
        bases = [with_validation(base, held_out) for base in bases]
    searched = bases[:search_seeds]
    tried = [[varied(base, values) for base in bases] for values in combinations(fields)]
    asked = [judged(each, on) for row in tried for each in row[: len(searched)]]
    found = yield asked
    names = [as_tried(row[0], fields) for row in tried]
    rows = table(names, grouped(found, len(searched)), lambda result: result.metric(metric))
    chosen = best(rows, lowest=not higher_is_better(metric))
    # What was run on test data already is not run again: its experiment, and so its folder, is the same.
    final = yield tried[chosen]
    return GridOutcome(metric, on, rows, chosen, tuple(finished(result) for result in final))


def metric_name(name: str, bases: Sequence[Experiment] = ()) -> str:
    """A metric as results spell it, however it is typed.

    Args:
        name: What was typed.
        bases: The experiments whose results are to have it.

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
    """The same experiment, with a share of the training samples held out unless some are already.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> with_validation(experiment("split-digits", "er"), 0.1).scenario.held_out
        0.1
    """
    share = experiment.scenario.held_out or held_out
    if not 0 < share < 1:
        raise InputError(
            f"held_out={share:g} cannot be used: give a share of the training samples above 0 and below 1"
        )
    return replace(experiment, scenario=replace(experiment.scenario, held_out=share))


def judged(experiment: Experiment, on: SelectOn) -> Experiment:
    """The same experiment, evaluated on these data."""
    return replace(experiment, evaluation=replace(experiment.evaluation, on=on))


def summary(results: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Mean, sample SD and 95 % interval of every metric over runs."""
    found = {}
    for name in results[0].metrics:
        found[name] = over_seeds([result.metric(name) for result in results]).as_json()
    return found
