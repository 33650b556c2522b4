"""Candidates: an experiment with some of its fields changed, and the table of their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

import numpy as np

from engram.core.errors import InputError, unknown_name
from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.record.experiment import Experiment
from engram.record.run import Run

Fields: TypeAlias = JsonMapping
"""Names of fields and their values; text is converted to the field's type."""

Grid: TypeAlias = Mapping[str, Sequence[Json]]
"""For each field, the values to try."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The scores of one combination of fields.

    Attributes:
        fields: The fields and their values.
        scores: One per run; NaN if the run failed.
        failures: Why runs failed.
        runs: The ids of its runs.
        judged: The data that the evaluations of its runs read, as pairs of part and task.
    """

    fields: JsonObject
    scores: tuple[float, ...]
    failures: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    judged: tuple[tuple[str, int], ...] = ()

    @property
    def score(self) -> float:
        """The mean over its runs; NaN if any run has no score, so that surviving seeds alone do not win."""
        return float(np.mean(self.scores)) if self.scores else math.nan

    def as_json(self) -> JsonObject:
        """The candidate as a row of a table."""
        return {
            "fields": self.fields,
            "score": self.score,
            "scores": list(self.scores),
            "failures": list(self.failures),
            "runs": list(self.runs),
        }


def combinations(grid: Grid) -> list[JsonObject]:
    """Every combination of the fields' values, the last field changing fastest; one empty one for no fields.

    Example:
        >>> combinations({"lr": [0.1, 0.01], "strength": [1, 10]})[:3]
        [{'lr': 0.1, 'strength': 1}, {'lr': 0.1, 'strength': 10}, {'lr': 0.01, 'strength': 1}]
        >>> combinations({})
        [{}]
    """
    for name, values in grid.items():
        if not values:
            raise InputError(f"the grid has no value for {name}: give at least one")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def varied(base: Experiment, fields: Fields) -> Experiment:
    """The experiment with some fields changed, checked and complete.

    A field is a hyper-parameter of the method or any option of the network, the optimiser, the training or
    the evaluation (`engram.engine.options`), such as `lr`, `hidden` (as `400x400`), `block`, `batch_size` or
    `epochs`.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> base = experiment("split-digits", "ewc")
        >>> other = varied(base, {"lr": "0.1", "strength": "7", "hidden": "32x16"})
        >>> other.optimizer.lr, other.settings["strength"], other.model.hidden
        (0.1, 7.0, (32, 16))
    """
    from engram.engine.check import complete
    from engram.engine.options import all_options, changed
    from engram.methods import METHODS
    from engram.methods.fields import fields_of
    from engram.models.spec import option_of

    hyper_parameters = [field.name for field in fields_of(METHODS[base.method])]
    settings = dict(base.settings)
    options: JsonObject = {}
    for name, value in fields.items():
        option = all_options().get(name) or option_of(name)
        if name in hyper_parameters:
            settings[name] = value
        elif option is not None:
            options[name] = option.check(value, text=True)
        else:
            raise unknown_name("field", name, [*hyper_parameters, *all_options()])
    return complete(replace(changed(base, options), settings=settings))


def as_tried(experiment: Experiment, fields: Fields) -> JsonObject:
    """The same fields with the values that the experiment has, converted from text.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> as_tried(varied(experiment("split-digits", "er"), {"lr": ".1"}), {"lr": ".1"})
        {'lr': 0.1}
    """
    from engram.engine.options import value_of

    settings = experiment.settings
    return {name: settings[name] if name in settings else value_of(experiment, name) for name in fields}


def table(
    fields: Sequence[JsonObject],
    runs_of_each: Sequence[Sequence[Run]],
    score: Callable[[Run], float],
) -> tuple[Candidate, ...]:
    """One row per candidate, from its runs."""
    return tuple(
        Candidate(
            chosen,
            tuple(score(run) if run.failure is None else math.nan for run in runs),
            tuple(run.failure.reason for run in runs if run.failure is not None),
            tuple(run.id for run in runs),
            tuple(sorted({pair for run in runs if run.failure is None for pair in judged_on(run)})),
        )
        for chosen, runs in zip(fields, runs_of_each, strict=True)
    )


def judged_on(run: Run) -> set[tuple[str, int]]:
    """The data that a run's evaluations read, by part and task; for a run without a card, as planned.

    Example:
        >>> from engram.scenarios import prefix, split
        >>> planned = Experiment(prefix(split("digits", setting="class"), 2), "er")
        >>> sorted(judged_on(Run(planned=planned)))
        [('test', 0), ('test', 1)]
    """
    if run.card is None:
        planned = run.experiment
        return {(planned.evaluation.on, task) for tasks in planned.scenario.phases for task in tasks}
    reads = [read for read in run.card.reads if read.reader == "evaluation"]
    return {(read.part, task) for read in reads for task in read.tasks}


def best(candidates: Sequence[Candidate], *, lowest: bool = False) -> int:
    """The index of the best candidate, the first of several that are equally good.

    Raises:
        InputError: None has a score.

    Example:
        >>> best([Candidate({}, (0.5,)), Candidate({}, (math.nan,)), Candidate({}, (0.7,))])
        2
    """
    scored = [place for place, candidate in enumerate(candidates) if not math.isnan(candidate.score)]
    if not scored:
        reasons = [reason for candidate in candidates for reason in candidate.failures]
        why = reasons[0] if reasons else "the score is undefined for all of them"
        raise InputError(f"none of {len(candidates)} candidates has a score, so none can be chosen: {why}")
    sign = -1 if lowest else 1
    return max(scored, key=lambda place: (sign * candidates[place].score, -place))


def grouped(flat: Sequence[Run], size: int) -> list[Sequence[Run]]:
    """Runs in their order, in groups of `size`."""
    return [flat[start : start + size] for start in range(0, len(flat), size)]
