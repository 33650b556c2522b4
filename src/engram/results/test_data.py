"""Whether runs were evaluated on the same test data, judged by the fingerprints that they carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from engram.core.errors import InputError
from engram.record.run import Run
from engram.record.test_data import other_tasks

if TYPE_CHECKING:
    from engram.results.runs import RunGroup


def refuse_other_data(runs: Mapping[str, Run], seed: int) -> None:
    """Refuse methods that were evaluated on different test data with the same seed.

    Raises:
        InputError: The test set of a task differs; the message names the runs and the task.
    """
    for (first, one), (second, other) in combinations(runs.items(), 2):
        differing = other_tasks(one.test_data, other.test_data)
        if differing:
            raise InputError(
                f"{first} and {second} cannot be compared: with seed {seed} they were evaluated on different "
                f"test data ({_difference(one, other, differing[0])}; {_place(one)} and {_place(other)})"
            )


def notes_on_data(paired: Mapping[str, Sequence[Run]]) -> tuple[str, ...]:
    """What can be said against a comparison of runs whose test sets are the same, as far as that is known.

    Args:
        paired: For each method, its runs, in the same order of seeds.
    """
    unknown = [name for name, runs in paired.items() if not all(run.test_data for run in runs)]
    notes = []
    if unknown:
        notes.append(
            f"the test data of {_listed(unknown)} are not recorded, so it could not be checked whether all "
            "methods were evaluated on the same"
        )
    for name, runs in paired.items():
        if note := other_data_among(runs):
            notes.append(f"{name}: {note}")
    drawn = [
        name
        for name, runs in paired.items()
        if any(_drawn_apart(*pair) for pair in zip(next(iter(paired.values())), runs, strict=True))
    ]
    if drawn:
        notes.append(
            f"{_listed([next(iter(paired)), *drawn])} were evaluated on different samples of the same test "
            "sets, which adds noise to their differences"
        )
    return tuple(notes)


def other_data_among(runs: Sequence[Run]) -> str:
    """That runs of one experiment with the same tasks were evaluated on different test data; empty if not.

    Seeds that draw different tasks (permutations, class orders) are not compared.
    """
    first = runs[0]
    for run in runs[1:]:
        if _tasks(run) == _tasks(first) and (differing := other_tasks(first.test_data, run.test_data)):
            return (
                f"seeds {first.seed} and {run.seed} were evaluated on different test data "
                f"({_difference(first, run, differing[0])})"
            )
    return ""


def other_data_between(groups: Sequence[RunGroup]) -> str:
    """Which experiments were evaluated on different test data, in one sentence; empty if none were.

    Runs with the same seed are compared; experiments without a common seed are judged by their first runs.
    """
    alike: list[list[RunGroup]] = []
    for group in groups:
        home = next((others for others in alike if not _differ(others[0], group)), None)
        if home is None:
            alike.append([group])
        else:
            home.append(group)
    if len(alike) < 2:
        return ""
    sets = "; ".join(_listed([group.label for group in others]) for others in alike)
    return f"Not all experiments were evaluated on the same test data, so they cannot be compared: {sets}."


def _differ(one: RunGroup, other: RunGroup) -> bool:
    by_seed = {run.seed: run for run in one.runs}
    pairs = [(by_seed[run.seed], run) for run in other.runs if run.seed in by_seed]
    return any(
        other_tasks(first.test_data, second.test_data)
        for first, second in pairs or [(one.runs[0], other.runs[0])]
    )


def _drawn_apart(one: Run, other: Run) -> bool:
    """Whether other samples of the same test sets were drawn."""
    return any(
        first.evaluated and second.evaluated and first.evaluated != second.evaluated
        for first, second in zip(one.test_data, other.test_data, strict=False)
        if first.inputs == second.inputs
    )


def _tasks(run: Run) -> object:
    """What is known of the run's tasks, with the draw of its seed."""
    scenario = run.description.get("scenario")
    return scenario.get("tasks") if isinstance(scenario, Mapping) else run.description.get("tasks")


def _difference(one: Run, other: Run, task: int) -> str:
    if task >= min(len(one.test_data), len(other.test_data)):
        return f"{len(one.test_data)} and {len(other.test_data)} tasks"
    first, second = one.test_data[task], other.test_data[task]
    if first.samples != second.samples:
        return f"task {task}: {first.samples:,} and {second.samples:,} samples"
    other_part = "labels" if first.labels != second.labels else "inputs"
    return f"task {task}: as many samples, with other {other_part}"


def _place(run: Run) -> str:
    return str(run.folder or run.id)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
