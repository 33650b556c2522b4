"""How far a run is that another process is making, as its folder says."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from engram.core.errors import InputError
from engram.core.files import read_json
from engram.core.folder import PROGRESS


class Progress(NamedTuple):
    """What `progress.json` says: how far a run is, how long it took since update `first`, and the lag.

    The lag is by how many updates evaluator processes are behind.
    """

    step: int | None = None
    steps: int | None = None
    learning: int | None = None
    first: int = 0
    seconds: float = 0.0
    lag: int = 0

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the same speed."""
        if self.step is None or self.steps is None or self.step <= self.first:
            return None
        return self.seconds / (self.step - self.first) * (self.steps - self.step)

    @property
    def seconds_in_all(self) -> float | None:
        """How long the whole run takes at this speed."""
        if self.step is None or self.steps is None or self.step <= self.first:
            return None
        return self.seconds / (self.step - self.first) * self.steps


def progress_of(folder: Path) -> Progress:
    """How far a run is, or was when its process was killed; nothing is known of one that has not said so."""
    with suppress(InputError, LookupError, TypeError, ValueError):
        value = read_json(folder / PROGRESS)
        return Progress(
            int(value["step"]),
            int(value["steps"]),
            int(value["learning"]),
            int(value["first"]),
            float(value["seconds"]),
            int(value.get("lag", 0)),
        )
    return Progress()
