"""Convert exceptions to failures, by their type."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from engram.core.errors import InputError, NonFinite
from engram.core.folder import FAILURE
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run


class RunFailed(InputError):
    """A run failed; `run` has what was measured until then, and `run.failure` the reason.

    Example:
        >>> failed = Run(failure=Failure(FailureKind.DIVERGED, "loss became nan at step 3"))
        >>> print(RunFailed(failed))
        loss became nan at step 3
    """

    def __init__(self, run: Run) -> None:
        assert run.failure is not None
        super().__init__(run.failure.reason)
        self.run, self.failure = run, run.failure


class OverBudget(InputError):
    """A method keeps more than its experiment allows."""


def failure_of(error: BaseException, *, step: int | None = None, task: int | None = None) -> Failure:
    """The failure that an exception stands for.

    Args:
        error: The exception.
        step: The update at which it was raised.
        task: The task being learned, counted from 0.

    Example:
        >>> failure_of(MemoryError()).kind.value, failure_of(KeyError("gone")).reason
        ('out of memory', "KeyError: 'gone'")
    """
    if isinstance(error, RunFailed):
        return error.failure
    text = " ".join(str(error).split())
    if isinstance(error, NonFinite):
        return Failure(FailureKind.DIVERGED, text, step, task)
    if isinstance(error, OverBudget):
        return Failure(FailureKind.OUT_OF_BUDGET, text, step, task)
    if isinstance(error, InputError):
        return Failure(FailureKind.BAD_INPUT, text, step, task)
    if isinstance(error, KeyboardInterrupt):
        return Failure(
            FailureKind.INTERRUPTED, "interrupted: run the same command again to resume", step, task
        )
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    details = "".join(traceback.format_exception(error))
    if is_out_of_memory(error):
        advice = "use a smaller network or batch"
        return Failure(FailureKind.OUT_OF_MEMORY, f"out of memory ({reason}): {advice}", step, task, details)
    return Failure(FailureKind.CRASHED, reason, step, task, details)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out.

    PyTorch's CPU allocator raises a plain RuntimeError, which only its text identifies.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return type(error) is RuntimeError and ("allocate memory" in text or "not enough memory" in text)


def explain_crash(run: Run) -> str:
    """One line about a run without a result: the reason, and where the traceback is."""
    failure = run.failure
    if failure is None:
        return f"the run {run.folder} ended without a result: run the same command again to retry it"
    traceback_file = Path(run.folder or ".") / FAILURE
    where = f"; {traceback_file} has the traceback" if failure.details and run.folder is not None else ""
    return f"{failure.reason}{where}"
