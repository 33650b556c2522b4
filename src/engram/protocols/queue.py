"""The queue protocol: many tasks, averages at every tenth, best and worst strength (Hsu et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engram.core.errors import InputError
from engram.core.jsons import JsonObject
from engram.metrics.intervals import over_seeds
from engram.protocols.candidates import Candidate, Grid, as_tried, best, combinations, grouped, table, varied
from engram.protocols.drive import Plan
from engram.protocols.selection import audited, selected
from engram.record.card import Selected
from engram.record.experiment import Experiment
from engram.record.run import Run

METRIC = "AA"


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """The outcome of a long queue of tasks.

    Attributes:
        tasks: The numbers of tasks after which averages are reported.
        candidates: All strengths that were tried, with the average after the last task as their score.
        averages: For each candidate, the averages at `tasks`, as means over seeds; empty if a run failed.
        results: For each candidate, its finished runs.
        best: The index of the candidate with the highest final average.
        worst: The index of the candidate with the lowest.
    """

    tasks: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    averages: tuple[tuple[float, ...], ...]
    results: tuple[tuple[Run, ...], ...]
    best: int
    worst: int

    def as_json(self) -> JsonObject:
        """All candidates, and the curves of the best and the worst."""
        rows = [
            {**candidate.as_json(), "averages": list(averages)}
            for candidate, averages in zip(self.candidates, self.averages, strict=True)
        ]
        return {
            "metric": METRIC,
            "selected_on": "test",
            "tasks": list(self.tasks),
            "candidates": rows,
            "choice": self.candidates[self.best].fields,
            "best": rows[self.best],
            "worst": rows[self.worst],
            **audited(self.results[self.best], self.choices),
        }

    @property
    def choices(self) -> tuple[Selected, ...]:
        """The data that the choice among candidates read; it takes effect from the first task on."""
        stream = self.results[self.best][0].experiment.scenario
        return selected("fields", self.candidates, phases=stream.phases)


def reported_tasks(n_tasks: int, *, every: int = 10) -> tuple[int, ...]:
    """The numbers of tasks after which Hsu et al. (2018) report averages: 1, 11, 21, …, and the last.

    Example:
        >>> reported_tasks(78)
        (1, 11, 21, 31, 41, 51, 61, 71, 78)
    """
    if every < 1:
        raise InputError(f"every must be at least 1 task, got {every}")
    return tuple(sorted({*range(1, n_tasks + 1, every), n_tasks}))


def queue(bases: Sequence[Experiment], fields: Grid | None = None, *, every: int = 10) -> Plan[QueueOutcome]:
    """Learn a long queue with every combination of fields; report averages at every tenth task.

    The average after task i is the mean accuracy of the tasks so far. Hsu et al. (2018) show the best and the
    worst strength of an unpublished grid, chosen by the final average on test data.

    Args:
        bases: The experiment, once per seed.
        fields: For each field, the values to try; usually of `strength`.
        every: The number of tasks between two reported averages.

    Example:
        >>> from engram.protocols.drive import drive
        >>> from engram.engine.recipe import experiment
        >>> def made_up(experiments):
        ...     final = [1 / planned.settings["strength"] for planned in experiments]
        ...     return [Run(planned=planned, stored={"AA": value}, by_task={"AA": [1.0] * 4 + [value]})
        ...             for planned, value in zip(experiments, final)]
        >>> plan = queue([experiment("split-digits", "ewc")], {"strength": [2, 10]}, every=3)
        >>> outcome = drive(plan, made_up)
        >>> outcome.tasks, outcome.averages[outcome.worst]
        ((1, 4, 5), (1.0, 1.0, 0.1))
    """
    if not bases:
        raise InputError("the queue protocol needs at least one experiment, one per seed")
    reported = reported_tasks(len(bases[0].scenario.phases), every=every)
    tried = [[varied(base, values) for base in bases] for values in combinations(fields or {})]
    runs = yield [planned for row in tried for planned in row]
    groups = grouped(runs, len(bases))
    rows = table([as_tried(row[0], fields or {}) for row in tried], groups, lambda run: run.metric(METRIC))
    done = tuple(tuple(run for run in group if run.failure is None) for group in groups)
    averages = tuple(
        tuple(over_seeds([run.after_each_task(METRIC)[n - 1] for run in group]).mean for n in reported)
        if len(group) == len(bases)
        else ()
        for group in done
    )
    return QueueOutcome(reported, rows, averages, done, best(rows), best(rows, lowest=True))
