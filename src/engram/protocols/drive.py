"""Plans, which ask for experiments and receive their runs, and how they are run."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

from engram.core.errors import InputError
from engram.executors import Execute
from engram.record.experiment import Experiment
from engram.record.run import Run

T = TypeVar("T")

Plan: TypeAlias = Generator[list[Experiment], Sequence[Run], T]
"""Yields experiments, is sent their runs in the same order, and returns an outcome."""


def drive(plan: Plan[T], execute: Execute) -> T:
    """Run a plan to its end.

    Args:
        plan: The plan.
        execute: The executor: `Serial`, `Processes`, or anything that returns one run per experiment, in
            their order.

    Example:
        >>> def ask_nothing() -> Plan[str]:
        ...     runs = yield []
        ...     return f"{len(runs)} runs"
        >>> drive(ask_nothing(), lambda experiments: [])
        '0 runs'
    """
    try:
        experiments = next(plan)
        while True:
            experiments = plan.send(execute(experiments))
    except StopIteration as end:
        outcome: T = end.value
        return outcome


def finished(run: Run) -> Run:
    """A run that a plan needs in order to continue.

    Raises:
        InputError: The run failed.
    """
    if run.failure is not None:
        raise InputError(f"the run {run.id} failed and the protocol cannot continue: {run.failure.reason}")
    return run
