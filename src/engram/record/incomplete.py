"""Why a run is not finished, in words, and what to do about it."""

from __future__ import annotations

from engram.core.leases import holder_of
from engram.record.run import REPAIR, Run


def place_of(run: Run) -> str:
    """Where a run is: its folder, or its id if it is in a compact store or was never saved.

    Example:
        >>> place_of(Run(description={"id": "er-s0", "label": "er"}))
        'er-s0'
    """
    return run.id if run.folder is None else str(run.folder)


def why_incomplete(run: Run) -> str:
    """The state of a run that is not finished, and the reason, as a sentence without its end.

    Example:
        >>> why_incomplete(Run(description={"id": "a", "label": "er"}))
        'it has not begun'
    """
    status, reason = run.status, "" if run.failure is None else run.failure.reason
    if status == "running":
        holder = None if run.folder is None else holder_of(run.folder)
        return "it is running" if holder is None else f"it is running: {holder}"
    if status == "failed":
        return f"it failed: {reason}"
    if status == "damaged":
        return f"it is damaged: {reason}"
    if status == "missing":
        return "it has not begun"
    if run.failure is not None:
        return "it is not finished: it was interrupted"
    return "it is not finished: it was killed, or its process ended"


def what_to_do(run: Run) -> str:
    """What to do about a run that is not finished.

    Example:
        >>> what_to_do(Run(description={"id": "a", "label": "er"}))
        'run it'
    """
    if run.status == "damaged" and run.folder is None:
        return "write the store again with engram compact"
    return {
        "running": "wait for it",
        "failed": "run it again, or delete its folder",
        "damaged": REPAIR,
        "unfinished": "run the same command again to resume it, or delete its folder",
        "missing": "run it",
    }.get(run.status, "nothing: it is done")
