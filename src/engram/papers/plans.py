"""Plans of the papers: repeated over seeds, run together, observed, scaled down.

The other modules of the papers import `Plan`, `Run` and `Runs` from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from engram.core.errors import InputError
from engram.papers.sizes import scaled_down
from engram.protocols.drive import Plan
from engram.record.experiment import Experiment
from engram.record.run import Run

__all__ = ["Plan", "Run", "Runs", "attempted", "quick", "relayed", "repeated", "succeeded", "together"]

T = TypeVar("T")
Runs: TypeAlias = Sequence[Run]


def succeeded(runs: Sequence[Run]) -> list[Run]:
    """The runs that have a result.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> from engram.record.failure import Failure, FailureKind
        >>> planned = experiment("split-digits", "er")
        >>> killed = Failure(FailureKind.CRASHED, "its process was killed")
        >>> len(succeeded([Run(planned=planned, failure=killed), Run(planned=planned)]))
        1
    """
    return [run for run in runs if run.failure is None]


def repeated(make: Callable[[int], Experiment], seeds: Sequence[int]) -> Plan[Runs]:
    """One experiment with several seeds; the plan returns the runs that have a result.

    Args:
        make: From a seed to the experiment.
        seeds: The seeds.
    """
    runs = yield [make(seed) for seed in seeds]
    return succeeded(runs)


def attempted(plan: Plan[T]) -> Plan[T | None]:
    """A plan that returns None if runs that it needs have failed."""
    try:
        return (yield from plan)
    except InputError:
        return None


def relayed(
    plan: Plan[T],
    *,
    ask: Callable[[Experiment], Experiment] = lambda planned: planned,
    hear: Callable[[Sequence[Run]], object] = lambda _: None,
) -> Plan[T]:
    """The same plan with its experiments replaced or its runs observed.

    Args:
        plan: The plan.
        ask: Returns the experiment to run instead of the one that the plan asks for.
        hear: Called with the runs before they are sent to the plan.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> from engram.protocols.drive import drive
        >>> planned, heard = experiment("split-digits", "er"), []
        >>> plan = relayed(repeated(lambda seed: planned, [0]), hear=heard.extend)
        >>> drive(plan, lambda experiments: [Run(planned=planned) for planned in experiments]) == heard
        True
    """
    runs: Sequence[Run] | None = None
    while True:
        try:
            experiments = next(plan) if runs is None else plan.send(runs)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        runs = yield [ask(planned) for planned in experiments]
        hear(runs)


def quick(plan: Plan[T]) -> Plan[T]:
    """The same plan with runs of few updates, to check that everything works.

    Example:
        >>> from engram.papers.catalogue import artefact
        >>> plan = quick(artefact("002-table2").pieces[0].plan([0]))
        >>> next(plan)[0].updates
        20
    """
    return relayed(plan, ask=scaled_down)


def together(plans: Sequence[Plan[T]]) -> Plan[list[T]]:
    """Several plans as one: experiments that they ask for at the same time are run together.

    Example:
        >>> def counting(rounds: int) -> Plan[int]:
        ...     for _ in range(rounds):
        ...         yield []
        ...     return rounds
        >>> from engram.protocols.drive import drive
        >>> drive(together([counting(2), counting(0), counting(1)]), lambda experiments: [])
        [2, 0, 1]
    """
    outcomes: dict[int, T] = {}
    waiting: dict[int, list[Experiment]] = {}

    def advance(number: int, runs: Sequence[Run] | None) -> None:
        waiting.pop(number, None)
        try:
            waiting[number] = next(plans[number]) if runs is None else plans[number].send(runs)
        except StopIteration as end:
            outcomes[number] = end.value

    for number in range(len(plans)):
        advance(number, None)
    while waiting:
        runs = yield [planned for experiments in waiting.values() for planned in experiments]
        start = 0
        for number, experiments in list(waiting.items()):
            advance(number, runs[start : start + len(experiments)])
            start += len(experiments)
    return [outcomes[number] for number in range(len(plans))]
