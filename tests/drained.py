"""A run to its end, with its last step: what was measured last, and the method that learned."""

from typing import Any

from engram.engine.loop import run_steps
from engram.engine.observers import Step
from engram.engine.where import Where
from engram.methods.base import Method
from engram.record.experiment import Experiment
from engram.record.run import Run


def drained(
    experiment: Experiment,
    where: Where | None = None,
    *,
    watch: bool = True,
    resume: dict[str, Any] | None = None,
) -> tuple[Run, Step]:
    steps, last = run_steps(experiment, where, watch=watch, resume=resume), None
    while True:
        try:
            last = next(steps)
        except StopIteration as end:
            assert last is not None
            return end.value, last


def learned(experiment: Experiment, where: Where | None = None) -> Method:
    """The method after a run."""
    method = drained(experiment, where)[1].method
    assert method is not None
    return method


def saved(step: Step) -> dict[str, Any]:
    """The whole state after a step."""
    assert step.snapshot is not None
    return step.snapshot()
