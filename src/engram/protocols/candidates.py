"""Candidates: an experiment with some of its fields changed, and the table of how each did."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from engram.core.errors import InputError, unknown_name
from engram.record.experiment import Experiment
from engram.record.run import Run

Fields = Mapping[str, Any]
"""Names of fields and their values; text is converted to the field's type."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """How one combination of fields did.

    Attributes:
        fields: What distinguishes it.
        scores: One a run; NaN where the run failed.
        failures: Why runs failed.
        runs: The ids of its runs.
        judged: The parts of the data, and of which tasks, that the evaluations of its runs read.
    """

    fields: dict[str, Any]
    scores: tuple[float, ...]
    failures: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    judged: tuple[tuple[str, int], ...] = ()

    @property
    def score(self) -> float:
        """The mean over its runs; NaN where one of them has none, so that a lucky survivor does not win."""
        return float(np.mean(self.scores)) if self.scores else math.nan

    def as_json(self) -> dict[str, Any]:
        """The candidate as a row of a table."""
        return {
            "fields": self.fields,
            "score": self.score,
            "scores": list(self.scores),
            "failures": list(self.failures),
            "runs": list(self.runs),
        }


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the fields' values, the last field changing first; one empty one for no fields.

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

    A field is one of the method, of the optimiser (`lr`, `momentum`, `weight_decay`), of the network
    (`hidden` as `400x400`, `dropout_input`, `dropout_hidden`, `block`), or `batch_size`, `epochs`, `updates`.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> base = experiment("split-digits", "ewc")
        >>> other = varied(base, {"lr": "0.1", "strength": "7", "hidden": "32x16"})
        >>> other.optimizer.lr, other.settings["strength"], other.model.hidden
        (0.1, 7.0, (32, 16))
    """
    from engram.engine.check import complete
    from engram.methods import METHODS
    from engram.methods.fields import fields_of

    own = [field.name for field in fields_of(METHODS[base.method])]
    settings = dict(base.settings)
    parts: dict[str, dict[str, Any]] = {"optimizer": {}, "model": {}, "experiment": {}}
    for name, value in fields.items():
        if name in own:
            settings[name] = value
        elif name in _SHARED:
            part, convert = _SHARED[name]
            parts[part][name] = _converted(name, value, convert)
        else:
            raise unknown_name("field", name, [*own, *_SHARED])
    changed = replace(
        base,
        settings=settings,
        optimizer=replace(base.optimizer, **parts["optimizer"]),
        model=replace(base.model, **parts["model"]),
        **parts["experiment"],
    )
    if "epochs" in parts["experiment"] and "updates" not in parts["experiment"]:
        # Passes that were asked for are not to be overruled by the benchmark's own number of updates.
        changed = replace(changed, updates=None)
    return complete(changed)


def as_tried(experiment: Experiment, fields: Fields) -> dict[str, Any]:
    """The same fields with the values that the experiment really has, converted from text.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> as_tried(varied(experiment("split-digits", "er"), {"lr": ".1"}), {"lr": ".1"})
        {'lr': 0.1}
    """
    holders = {"optimizer": experiment.optimizer, "model": experiment.model, "experiment": experiment}
    return {
        name: getattr(holders[_SHARED[name][0]], name)
        if name not in experiment.settings
        else experiment.settings[name]
        for name in fields
    }


def table(
    fields: Sequence[dict[str, Any]],
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
    """The data that a run's evaluations read, by part and task; as it was asked for where it has no card.

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
    """The place of the best candidate, the first of several that are equally good.

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
    """Runs in their order, `size` at a time."""
    return [flat[start : start + size] for start in range(0, len(flat), size)]


def _widths(value: Any) -> tuple[int, ...]:
    parts = value.split("x") if isinstance(value, str) else value
    return tuple(int(part) for part in parts)


def _converted(name: str, value: Any, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}={value!r} cannot be used in a grid: {_HINTS[convert]}") from None


_HINTS: dict[Callable[[Any], Any], str] = {
    float: "give a number",
    int: "give a whole number",
    _widths: "give hidden widths like 400x400",
}
_SHARED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "lr": ("optimizer", float),
    "momentum": ("optimizer", float),
    "weight_decay": ("optimizer", float),
    "hidden": ("model", _widths),
    "dropout_input": ("model", float),
    "dropout_hidden": ("model", float),
    "block": ("model", int),
    "batch_size": ("experiment", int),
    "epochs": ("experiment", int),
    "updates": ("experiment", int),
}
"""Fields that every method shares: where they are, and how text becomes their value."""
