"""Functions from scenarios to scenarios. The name stays the same; tasks and phases change."""

from dataclasses import replace

import numpy as np

from engram.core.errors import InputError
from engram.scenarios.values import DomainSetting, Scenario, Task


def online(scenario: Scenario) -> Scenario:
    """The same stream, every sample shown once.

    Example:
        >>> from engram.scenarios import split
        >>> online(split("digits", setting="class")).passes
        1
    """
    return replace(scenario, passes=1)


def joint(scenario: Scenario) -> Scenario:
    """All tasks learned together, in one phase; each is still evaluated by itself.

    This is the upper bound that papers call joint, offline or multitask training.

    Example:
        >>> from engram.scenarios import split
        >>> joint(split("digits", setting="class")).phases
        ((0, 1, 2, 3, 4),)
    """
    return replace(scenario, phases=(tuple(range(len(scenario.tasks))),))


def prefix(scenario: Scenario, n: int) -> Scenario:
    """The first `n` tasks alone; phases lose the other tasks, and are removed when none is left.

    Example:
        >>> from engram.scenarios import split
        >>> [task.source.classes for task in prefix(split("digits", setting="class"), 2).tasks]
        [(0, 1), (2, 3)]
    """
    if not 1 <= n <= len(scenario.tasks):
        raise InputError(f"a prefix of {scenario.name} must have 1 to {len(scenario.tasks)} tasks, got {n}")
    kept = (tuple(task for task in phase if task < n) for phase in scenario.phases)
    return replace(scenario, tasks=scenario.tasks[:n], phases=tuple(phase for phase in kept if phase))


def shuffled(scenario: Scenario, seed: int) -> Scenario:
    """The same tasks in an order drawn with `seed`.

    Output units are numbered by arrival again, so that those seen so far are always the first ones; in
    the domain setting, where tasks share their units, they stay.

    Example:
        >>> from engram.scenarios import split
        >>> mixed = shuffled(split("digits", setting="class"), seed=3)
        >>> [task.source.classes for task in mixed.tasks], [task.units for task in mixed.tasks][:2]
        ([(8, 9), (4, 5), (2, 3), (6, 7), (0, 1)], [(0, 1), (2, 3)])
    """
    order = np.random.default_rng(seed).permutation(len(scenario.tasks))
    tasks = tuple(scenario.tasks[i] for i in order)
    if not isinstance(scenario.setting, DomainSetting):
        tasks = _numbered_by_arrival(tasks)
    return replace(scenario, tasks=tasks)


def concat(*scenarios: Scenario) -> Scenario:
    """One scenario after the other.

    In the domain setting all tasks share their output units, else those of each scenario follow those of
    the one before. All must have the same setting and the same number of passes.

    Example:
        >>> from engram.scenarios import split
        >>> both = concat(split("mnist", setting="task"), split("fashion-mnist", setting="task"))
        >>> both.name, len(both.tasks), both.n_units, both.phases[-1]
        ('split-mnist+split-fashion-mnist', 10, 20, (9,))
    """
    if not scenarios:
        raise InputError("nothing to concatenate: give at least one scenario")
    first = scenarios[0]
    tasks: list[Task] = []
    phases: list[tuple[int, ...]] = []
    units = 0
    for scenario in scenarios:
        if (scenario.setting, scenario.passes) != (first.setting, first.passes):
            raise InputError(
                f"{first.name} and {scenario.name} differ in setting or passes: "
                "concatenate scenarios with the same of both"
            )
        phases += (tuple(len(tasks) + task for task in phase) for phase in scenario.phases)
        tasks += (replace(task, units=tuple(units + unit for unit in task.units)) for task in scenario.tasks)
        if not isinstance(first.setting, DomainSetting):
            units += scenario.n_units
    name = "+".join(scenario.name for scenario in scenarios)
    return replace(first, name=name, tasks=tuple(tasks), phases=tuple(phases))


def _numbered_by_arrival(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    arrived: dict[int, int] = {}
    for task in tasks:
        for unit in task.units:
            arrived.setdefault(unit, len(arrived))
    return tuple(replace(task, units=tuple(arrived[unit] for unit in task.units)) for task in tasks)
