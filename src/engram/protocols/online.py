"""The online protocol: every sample is shown once, metrics relative to chance (Michel et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from engram.core.errors import InputError
from engram.core.jsons import JsonObject
from engram.metrics.curve import Curve
from engram.metrics.intervals import over_seeds
from engram.protocols.candidates import Grid
from engram.protocols.drive import Plan
from engram.protocols.grid import GridOutcome, SelectOn, grid
from engram.record.experiment import Experiment
from engram.record.run import Run
from engram.scenarios import online as shown_once

CURVES = ("AA", "AF", "RAA", "RAF")


@dataclass(frozen=True, slots=True)
class OnlineOutcome:
    """The outcome of one pass over every task.

    Attributes:
        search: How the fields were chosen, and the runs of the choice.
        curves: AA, AF, RAA and RAF after each task, as means over seeds; NaN where undefined.
        spreads: Their sample SD over seeds.
        matrices: For each run, the accuracies of all tasks so far after each task: row k has those after
            task k, NaN where a task was not evaluated.
    """

    search: GridOutcome
    curves: dict[str, list[float]]
    spreads: dict[str, list[float]]
    matrices: dict[str, list[list[float]]] = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        """The curves, the matrix of each run by its id, and how the fields were chosen."""
        return {
            **self.search.as_json(),
            "curves": self.curves,
            "spreads": self.spreads,
            "final": self.final,
            "matrix": self.matrices,
        }

    @property
    def final(self) -> dict[str, float]:
        """The values after the last task."""
        return {name: values[-1] for name, values in self.curves.items()}


def online(
    bases: Sequence[Experiment],
    fields: Grid | None = None,
    *,
    metric: str = "AA",
    on: SelectOn = "test",
    held_out: float = 0.2,
) -> Plan[OnlineOutcome]:
    """Learn each task in one pass, and follow AA, AF, RAA and RAF from task to task.

    After task k all tasks so far are evaluated: row k of the accuracy matrix. RAA and RAF relate accuracy and
    forgetting to those of a random classifier, so that values after few and after many classes are
    comparable; see `engram.metrics.matrix`. AF and RAF are undefined after the first task.

    Args:
        bases: The experiment, once per seed; every stream is shown once, whatever its number of passes.
        fields: Fields to choose first: see `engram.protocols.grid.grid`.
        metric: The metric to choose them by.
        on: The data to choose them on.
        held_out: The share of training samples used for validation.

    Example:
        >>> from engram.protocols.drive import drive
        >>> from engram.engine.recipe import experiment
        >>> def made_up(experiments):
        ...     curves = {name: [0.9, 0.5] for name in CURVES}
        ...     return [Run(planned=one, stored={"AA": 0.5}, by_task=curves) for one in experiments]
        >>> outcome = drive(online([experiment("split-digits", "er")]), made_up)
        >>> outcome.curves["RAA"], outcome.search.results[0].experiment.scenario.passes
        ([0.9, 0.5], 1)
    """
    if not bases:
        raise InputError("the online protocol needs at least one experiment, one per seed")
    for name in ("epochs", "updates"):
        if name in (fields or {}):
            raise InputError(f"the online protocol shows every sample once: leave {name} out of the grid")
    once = [replace(base, scenario=shown_once(base.scenario)) for base in bases]
    search = yield from grid(once, fields or {}, metric=metric, on=on, held_out=held_out)
    over = {name: _over_runs(search.results, name) for name in CURVES}
    return OnlineOutcome(
        search,
        {name: [mean for mean, _ in points] for name, points in over.items()},
        {name: [sd for _, sd in points] for name, points in over.items()},
        {result.experiment.id: _matrix(result) for result in search.results if len(result.trace)},
    )


def _matrix(result: Run) -> list[list[float]]:
    """The accuracy of each task after each task."""
    phases = result.experiment.scenario.phases
    by_learning = {tasks[-1]: tasks for tasks in phases}
    n_tasks = 1 + max(by_learning)
    together = [by_learning.get(learning, (learning,)) for learning in range(n_tasks)]
    rows: list[list[float]] = Curve.of_trace(result.trace, phases=together).matrix().tolist()
    return rows


def _over_runs(results: Sequence[Run], name: str) -> list[tuple[float, float]]:
    """Mean and SD of a metric over runs, after each task."""
    rows = zip(*(result.after_each_task(name) for result in results), strict=True)
    summaries = [over_seeds(values) for values in rows]
    return [(summary.mean, summary.sd) for summary in summaries]
