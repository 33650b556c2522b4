"""What a plan is, and how it is run."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from engram.core.errors import InputError, unknown_name
from engram.core.folder import Reading
from engram.core.trace import Trace
from engram.engine.experiment import Experiment

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result:
    """What a finished run says.

    Attributes:
        experiment: What was run.
        values: What `result.json` says.
        trace: Every evaluation.
        readings: What probes measured.
    """

    experiment: Experiment
    values: Mapping[str, Any]
    trace: Trace = field(default_factory=Trace)
    readings: tuple[Reading, ...] = ()

    def metric(self, name: str) -> float:
        """A metric at the end of the run; NaN where it is undefined.

        Raises:
            InputError: There is no such metric.

        Example:
            >>> from engram.scenarios import split
            >>> planned = Experiment(split("digits", setting="class"), "er")
            >>> Result(planned, {"metrics": {"ACC": 0.9}}).metric("ACC")
            0.9
        """
        known: Mapping[str, float | None] = self.values["metrics"]
        if name not in known:
            raise unknown_name("metric", name, known)
        value = known[name]
        return math.nan if value is None else value

    def after_each_task(self, name: str) -> list[float]:
        """A metric after each task; NaN where it is undefined."""
        return [math.nan if value is None else value for value in self.values["by_task"][name]]

    def reading(self, name: str) -> dict[tuple[int, int | None], float]:
        """What a probe measured last, by the task that was learned and the task it was measured on."""
        return {(learning, task): value for _, learning, task, what, value in self.readings if what == name}


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that has no result.

    Attributes:
        experiment: What was to be run.
        reason: Why it has none, in one line.
        trace: Every evaluation until then.
    """

    experiment: Experiment
    reason: str
    trace: Trace = field(default_factory=Trace)

    @property
    def diverged(self) -> bool:
        """Whether its loss is no number any more: that says something about its fields.

        Example:
            >>> from engram.engine.recipe import experiment
            >>> Failure(experiment("split-digits", "er"), "its process was killed by SIGKILL").diverged
            False
        """
        return self.reason.startswith("the loss became ")


Plan: TypeAlias = Generator[list[Experiment], Sequence["Result | Failure"], T]
"""Yields experiments, is sent their results in the same order, returns an outcome."""

Executor: TypeAlias = Callable[[Sequence[Experiment]], Sequence["Result | Failure"]]
"""Runs experiments, in whatever way, and says what came out of each."""


def drive(plan: Plan[T], execute: Executor) -> T:
    """Run a plan to its end.

    Args:
        plan: What asks for experiments.
        execute: What runs them: `engram.executors.serial.Serial`, or anything that returns one result or
            failure an experiment, in their order.

    Example:
        >>> def ask_nothing() -> Plan[str]:
        ...     got = yield []
        ...     return f"{len(got)} results"
        >>> drive(ask_nothing(), lambda experiments: [])
        '0 results'
    """
    try:
        asked = next(plan)
        while True:
            asked = plan.send(execute(asked))
    except StopIteration as end:
        outcome: T = end.value
        return outcome


def finished(found: Result | Failure) -> Result:
    """The result of a run without which a plan cannot go on.

    Raises:
        InputError: It failed.
    """
    if isinstance(found, Failure):
        raise InputError(
            f"the run {found.experiment.id} failed and the protocol cannot go on: {found.reason}"
        )
    return found
