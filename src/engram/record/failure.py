"""Why a run ended early, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

from engram.core.errors import Damaged
from engram.core.jsons import JsonObject


class FailureKind(StrEnum):
    """What went wrong. A kind decides what happens next; the text of a reason never does."""

    DIVERGED = "diverged"
    """A loss, a weight or an answer became NaN or infinite."""
    BAD_INPUT = "bad input"
    """It cannot be run: data are missing, a field does not fit, `--strict` was violated."""
    OUT_OF_MEMORY = "out of memory"
    OUT_OF_BUDGET = "out of budget"
    """The method kept more than the experiment allows."""
    CRASHED = "crashed"
    """Anything else: an unexpected exception, or a process that died."""
    INTERRUPTED = "interrupted"
    """A user stopped it; it resumes from its checkpoint."""
    TIMED_OUT = "timed out"
    """It completed no update for as long as `--timeout` allows."""
    DAMAGED = "damaged"
    """A file of the run is not what was written. Never in `failure.json`: it is noticed by who reads it."""


_FORMER_KINDS = {"input": "bad input", "memory": "out of memory", "killed": "crashed"}
"""What `failure.json` said before kinds had their present names."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why and where a run ended early.

    Attributes:
        kind: What went wrong.
        reason: One line for people, complete in itself.
        step: The update at which it happened; None before the first, or where it is unknown.
        task: The task being learned, counted from 0; None likewise.
        details: The traceback, where there is one.

    Example:
        >>> failure = Failure(FailureKind.DIVERGED, "the loss became nan at step 7", step=7, task=0)
        >>> Failure.of_json(failure.as_json()) == failure, failure.final
        (True, True)
    """

    kind: FailureKind
    reason: str
    step: int | None = None
    task: int | None = None
    details: str = ""

    @property
    def final(self) -> bool:
        """Whether the same run would fail in the same way again, wherever and whenever it is run."""
        return self.kind in (FailureKind.DIVERGED, FailureKind.OUT_OF_BUDGET)

    def as_json(self) -> JsonObject:
        """What `failure.json` says."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: object, *, source: str = "failure.json") -> Failure:
        """Read what `as_json` gave, or what an earlier version wrote.

        Raises:
            Damaged: It is not a failure.
        """
        if not isinstance(value, Mapping) or not isinstance(value.get("reason"), str):
            raise Damaged(f"{source} does not describe a failure: delete it, and run the experiment again")
        kind = str(value.get("kind"))
        try:
            known = FailureKind(_FORMER_KINDS.get(kind, kind))
        except ValueError:
            raise Damaged(
                f"{source} has the unknown kind {kind!r}: delete it, and run the experiment again"
            ) from None
        step, task = (value.get(name) for name in ("step", "task"))
        return cls(
            known,
            value["reason"],
            step if isinstance(step, int) else None,
            task if isinstance(task, int) else None,
            str(value.get("details") or ""),
        )
