"""The queue protocol: many tasks, the average at every tenth, the best and the worst strength (002)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engram.core.errors import InputError
from engram.metrics.intervals import over_seeds
from engram.protocols.candidates import Candidate, as_tried, best, combinations, grouped, table, varied
from engram.protocols.drive import Plan
from engram.protocols.selection import audited, selected
from engram.record.card import Selected
from engram.record.experiment import Experiment
from engram.record.run import Run

METRIC = "AA"


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """What a long queue left.

    Attributes:
        tasks: After how many tasks averages are reported.
        candidates: All strengths that were tried, with the average after the last task as their score.
        averages: For each candidate, the averages at `tasks`, over seeds; empty where a run failed.
        results: For each candidate, its finished runs.
        best: The place of the candidate with the highest final average.
        worst: That of the lowest.
    """

    tasks: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    averages: tuple[tuple[float, ...], ...]
    results: tuple[tuple[Run, ...], ...]
    best: int
    worst: int

    def as_json(self) -> dict[str, Any]:
        """The table, and the curves of the best and the worst."""
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
        """What the choice among candidates read; it takes effect from the first task on."""
        stream = self.results[self.best][0].experiment.scenario
        return selected("fields", self.candidates, phases=stream.phases)


def reported_tasks(n_tasks: int, *, every: int = 10) -> tuple[int, ...]:
    """After how many tasks 002 reports averages: 1, 11, 21, …, and the last.

    Example:
        >>> reported_tasks(78)
        (1, 11, 21, 31, 41, 51, 61, 71, 78)
    """
    if every < 1:
        raise InputError(f"every={every} tasks cannot be used: give 1 or more")
    return tuple(sorted({*range(1, n_tasks + 1, every), n_tasks}))


def queue(
    bases: Sequence[Experiment], fields: Mapping[str, Sequence[Any]] | None = None, *, every: int = 10
) -> Plan[QueueOutcome]:
    """Learn a long queue with every combination of fields; report averages at every tenth task.

    The average after task i is the mean over the tasks so far of their accuracies. 002 shows the best and the
    worst strength of a grid that it does not publish, chosen by the final average on test data.

    Args:
        bases: The experiment with each seed.
        fields: The values to try, usually of `strength`.
        every: After every how many tasks averages are reported.

    Example:
        >>> from engram.protocols.drive import drive
        >>> from engram.engine.recipe import experiment
        >>> def made_up(experiments):
        ...     final = [1 / each.settings["strength"] for each in experiments]
        ...     return [Run(planned=each, stored={"AA": value}, by_task={"AA": [1.0] * 4 + [value]})
        ...             for each, value in zip(experiments, final)]
        >>> plan = queue([experiment("split-digits", "ewc")], {"strength": [2, 10]}, every=3)
        >>> found = drive(plan, made_up)
        >>> found.tasks, found.averages[found.worst]
        ((1, 4, 5), (1.0, 1.0, 0.1))
    """
    if not bases:
        raise InputError("the queue protocol needs an experiment: give one a seed")
    reported = reported_tasks(len(bases[0].scenario.phases), every=every)
    tried = [[varied(base, values) for base in bases] for values in combinations(fields or {})]
    found = yield [each for row in tried for each in row]
    groups = grouped(found, len(bases))
    rows = table(
        [as_tried(row[0], fields or {}) for row in tried], groups, lambda result: result.metric(METRIC)
    )
    done = tuple(tuple(run for run in group if run.failure is None) for group in groups)
    averages = tuple(
        tuple(over_seeds([run.after_each_task(METRIC)[n - 1] for run in runs]).mean for n in reported)
        if len(runs) == len(bases)
        else ()
        for runs in done
    )
    return QueueOutcome(reported, rows, averages, done, best(rows), best(rows, lowest=True))
