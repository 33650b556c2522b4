"""What is under way in a folder of runs: which are done, running, failed and left, and how long that takes.

Everything is read from files that runs and sweeps write anyway, so any process on any machine that sees the
folder can ask. torch is not needed. Of finished runs the experiment and the result are read, so that damaged
ones are noticed, and no tables: 10,000 take some seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from engram.core.collection import without_collection
from engram.core.errors import InputError
from engram.core.folder import RESULT, has_checkpoint, looks_like_run
from engram.core.jsons import JsonObject
from engram.core.leases import Holder, holder_of
from engram.record.planned import read_planned
from engram.record.progress import Progress, progress_of
from engram.record.run import Run
from engram.results.runs import load_run
from engram.results.store import is_store, read_store

_READ = 200
"""From so many finished runs, the latest ones, the time of a run is estimated."""


@dataclass(frozen=True, slots=True)
class Active:
    """A run that a process is making now.

    Attributes:
        run: The run.
        holder: The process that makes it.
        step: Updates done; None where it has not said so yet.
        steps: Updates in all.
        learning: The task being learned, counted from 0.
        lag: By how many updates evaluator processes are behind.
        seconds_left: How long it will take; None if unknown.
    """

    run: Run
    holder: Holder
    step: int | None
    steps: int | None
    learning: int | None
    lag: int
    seconds_left: float | None

    def as_json(self) -> JsonObject:
        """The run as `--json` prints it."""
        owner = self.holder.owner
        return {
            **_named(self.run),
            "host": None if owner is None else owner.host,
            "process": None if owner is None else owner.process,
            "since": self.holder.since,
            "step": self.step,
            "steps": self.steps,
            "learning": self.learning,
            "lag": self.lag,
            "seconds_left": self.seconds_left,
        }


@dataclass(frozen=True, slots=True)
class FolderStatus:
    """The state of all runs in a folder.

    Attributes:
        folder: The folder.
        done: How many runs are finished.
        running: The runs that processes are making now.
        failed: The runs that failed or are damaged; the next sweep tries them again.
        unfinished: The runs that were begun and are not being made now: interrupted or killed.
        waiting: The runs that sweeps are to make and that have not begun, by id, with their labels.
        seconds_left: How long all of them will take with as many processes as now; 0 if nothing is left,
            None if unknown.
    """

    folder: Path
    done: int
    running: tuple[Active, ...]
    failed: tuple[Run, ...]
    unfinished: tuple[Run, ...]
    waiting: Mapping[str, str]
    seconds_left: float | None

    @property
    def left(self) -> int:
        """How many runs are neither ended nor under way."""
        return len(self.unfinished) + len(self.waiting)

    @property
    def total(self) -> int:
        """How many runs there are or will be."""
        return self.done + len(self.running) + len(self.failed) + self.left

    def as_json(self) -> JsonObject:
        """The state as `--json` prints it."""
        return {
            "folder": str(self.folder),
            "counts": {
                "total": self.total,
                "done": self.done,
                "running": len(self.running),
                "failed": len(self.failed),
                "left": self.left,
            },
            "running": [active.as_json() for active in self.running],
            "failed": [
                {**_named(run), "kind": run.failure.kind, "reason": run.failure.reason}
                for run in self.failed
                if run.failure is not None
            ],
            "unfinished": [
                {**_named(run), "checkpoint": has_checkpoint(run.folder), **progress_of(run.folder)._asdict()}
                for run in self.unfinished
                if run.folder is not None
            ],
            "waiting": [{"id": name, "label": label} for name, label in self.waiting.items()],
            "seconds_left": self.seconds_left,
        }


@without_collection()
def folder_status(folder: Path) -> FolderStatus:
    """The state of all runs in a folder, and of those that sweeps are still to make there.

    Raises:
        InputError: It is not a folder.

    Example:
        >>> import tempfile, engram
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = engram.run("split-digits", "er", updates=5, out=folder)
        >>> status = folder_status(folder)
        >>> status.done, status.running, status.left, status.seconds_left
        (1, (), 0, 0.0)
    """
    if not folder.is_dir():
        raise InputError(f"no such folder: {folder}; name the folder that `engram sweep` writes to (--out)")
    if is_store(folder):
        return FolderStatus(folder, len(read_store(folder)), (), (), (), {}, 0.0)
    planned = {name: label for plan in read_planned(folder) for name, label in plan.runs.items()}
    done: list[tuple[float, str, float]] = []
    failed: list[Run] = []
    unfinished: list[Run] = []
    held: list[tuple[Run, Holder]] = []
    for place in _run_folders(folder):
        planned.pop(place.name, None)
        run = load_run(place)
        if run.finished:
            done.append((_ended_at(place), run.label, run.seconds.total))
        # Asked once: the process may end at any moment.
        elif (holder := holder_of(place)) is not None:
            held.append((run, holder))
        elif run.status in ("failed", "damaged"):
            failed.append(run)
        else:
            unfinished.append(run)
    latest = [(label, seconds) for _, label, seconds in sorted(done)[-_READ:]]
    expected = _Expected(latest, [progress_of(run.folder) for run, _ in held if run.folder])
    running = tuple(_active(run, holder, expected) for run, holder in held)
    left = [run.label for run in unfinished] + [label.rpartition(", seed ")[0] for label in planned.values()]
    return FolderStatus(
        folder,
        len(done),
        running,
        tuple(failed),
        tuple(unfinished),
        planned,
        expected.of_all(running, left),
    )


class _Expected:
    """How long runs are expected to take: as finished runs of the same label did, or as all did on average.

    Args:
        durations: The labels and seconds of finished runs.
        under_way: How far the runs are that are being made; their speed counts if nothing is finished.
    """

    def __init__(self, durations: Iterable[tuple[str, float]], under_way: Iterable[Progress]) -> None:
        self.by_label: dict[str, list[float]] = {}
        for label, seconds in durations:
            self.by_label.setdefault(label, []).append(seconds)
        known = [seconds for values in self.by_label.values() for seconds in values]
        known = known or [whole for item in under_way if (whole := item.seconds_in_all) is not None]
        self.whole = statistics.fmean(known) if known else None

    def of(self, label: str) -> float | None:
        """The seconds of a run; None if nothing is known."""
        return statistics.fmean(self.by_label[label]) if label in self.by_label else self.whole

    def of_all(self, running: Iterable[Active], left: Iterable[str]) -> float | None:
        """The seconds until everything is done, with as many processes as now, at least one."""
        under_way = [active.seconds_left for active in running]
        times = [*under_way, *(self.of(label) for label in left)]
        known = [seconds for seconds in times if seconds is not None]
        if len(known) < len(times):
            return None
        # A single run is not distributed over several processes.
        return max([sum(known) / max(1, len(under_way)), *known]) if known else 0.0


def _active(run: Run, holder: Holder, expected: _Expected) -> Active:
    assert run.folder is not None
    progress = progress_of(run.folder)
    left = progress.seconds_left
    if left is None and (whole := expected.of(run.label)) is not None:
        left = max(0.0, whole - _seconds_since(holder.since))
    return Active(run, holder, progress.step, progress.steps, progress.learning, progress.lag, left)


def _seconds_since(since: str) -> float:
    """Seconds since a time in words; 0 if it cannot be read."""
    try:
        began = datetime.strptime(since, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    return max(0.0, (datetime.now(UTC) - began).total_seconds())


def _run_folders(folder: Path) -> list[Path]:
    if looks_like_run(folder):
        return [folder]
    return sorted(
        place
        for place in folder.iterdir()
        if not place.name.startswith(".") and place.is_dir() and looks_like_run(place)
    )


def _ended_at(place: Path) -> float:
    """When a finished run ended; 0 if its folder was removed meanwhile."""
    with suppress(OSError):
        return (place / RESULT).stat().st_mtime
    return 0.0


def _named(run: Run) -> JsonObject:
    return {"id": run.id, "label": run.label, "seed": run.seed, "folder": str(run.folder)}
