"""From an exception to a failure: by its type, in one place."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from engram.core.errors import InputError, NonFinite
from engram.core.folder import FAILURE
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run


class RunFailed(InputError):
    """A run ended early; `run` is what was measured until then, and `run.failure` why.

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
    """What an exception says about a run.

    Args:
        error: What was raised.
        step: The update at which it was.
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
    """Whether there was not enough memory.

    PyTorch's allocator for the processor raises a plain RuntimeError, so that its text is all there is to
    tell by; a library's text, never one of ours.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return type(error) is RuntimeError and ("allocate memory" in text or "not enough memory" in text)


def explain_crash(run: Run) -> str:
    """One line for people about a run that failed: what, and where the traceback is."""
    failure = run.failure
    assert failure is not None
    traceback_file = Path(run.folder or ".") / FAILURE
    where = f"; {traceback_file} has the traceback" if failure.details and run.folder is not None else ""
    return f"{failure.reason}{where}"
