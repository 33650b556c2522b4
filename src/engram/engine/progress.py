"""How far a run is: a small file in its folder, for whoever asks from outside."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from engram.core.files import temporary_path
from engram.core.folder import PROGRESS
from engram.engine.observers import Step, Watcher

FIRST_SECONDS = 1.0
EVERY_SECONDS = 2.0


class ProgressFile(Watcher):
    """Writes every two seconds how far a run is; the file is removed when the run ends, however it does.

    A run of less than a second writes nothing. What cannot be written is left out: the run matters more.

    Args:
        folder: The run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.place = folder / PROGRESS
        self.first: int | None = None
        self.started = self.due = time.monotonic()

    def __enter__(self) -> ProgressFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self.place.unlink(missing_ok=True)

    def updated(self, step: Step) -> None:
        """Note an update, and write if it is time."""
        now = time.monotonic()
        if self.first is None:
            # Loading data and resuming are no part of the speed.
            self.first, self.started, self.due = step.step, now, now + FIRST_SECONDS
        if now >= self.due:
            self.due = now + EVERY_SECONDS
            self._write(step, now - self.started)

    def _write(self, step: Step, seconds: float) -> None:
        content = {
            "step": step.step,
            "steps": step.steps,
            "learning": step.learning,
            "first": self.first,
            "seconds": round(seconds, 3),
            **({"lag": step.lag} if step.lag else {}),
        }
        beside = temporary_path(self.place)
        with suppress(OSError):
            beside.write_text(json.dumps(content), encoding="utf-8")
            beside.replace(self.place)
