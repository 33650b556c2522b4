"""Checkpoints: a run can be killed at any moment, and resumes to the same bits."""

from __future__ import annotations

import io
import math
import pickle
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from engram.core.errors import Damaged, InputError
from engram.core.files import write_whole
from engram.core.folder import PREVIOUS
from engram.core.owner import unique_name
from engram.engine.failures import is_out_of_memory
from engram.engine.observers import Step, Watcher
from engram.engine.state import CHECKPOINT_FORMAT
from engram.methods.state import CannotKeep, State
from engram.record.checkpoints import sealed, sealed_content
from engram.record.experiment import Experiment

LEAST_SECONDS = 30.0
"""By default, the most work that may be lost, where a checkpoint is quickly written."""

SHARE = 0.03
"""By default, the largest part of a run's time that its checkpoints may take."""


class DamagedCheckpoint(InputError):
    """A checkpoint that a run cannot resume from."""


class Checkpoints(Watcher):
    """The observer that saves a run's state at intervals.

    Where a method holds something that cannot be saved, or the disk is full, a warning is issued once; the
    run goes on. If it is killed, it then starts from its last checkpoint, or from the beginning.

    Args:
        place: The path of the checkpoint.
        seconds: The most work that may be lost, in seconds; None for 30 seconds, or as many as are needed
            for checkpoints to take at most 3 % of the time.

    Attributes:
        spent: The seconds that checkpoints took.
        step: The update after which the last one was saved; None if there is none.
    """

    def __init__(self, place: Path, *, seconds: float | None = None) -> None:
        self.place, self.seconds = place, seconds
        self.spent = self.last = 0.0
        self.step: int | None = None
        self.since = self.saved = time.monotonic()
        self.problem = ""

    def updated(self, step: Step) -> None:
        """Save the state if it is time."""
        if self.due(time.monotonic()):
            self.save(step)

    def due(self, now: float) -> bool:
        """Whether it is time for the next checkpoint."""
        if self.seconds is not None:
            return now - self.saved > self.seconds
        # The next one is expected to take as long as the last.
        affordable = (self.spent + self.last) / SHARE
        return now - self.saved > LEAST_SECONDS and now - self.since >= affordable

    def save(self, step: Step) -> None:
        """Save the state now."""
        if self.step == step.step:
            return
        started = time.monotonic()
        try:
            save_checkpoint(self.place, step)
            self.step = step.step
        except CannotKeep as reason:
            self._warn(f"no checkpoint: {reason}; if the run is killed, it starts from the beginning")
            self.seconds = math.inf
        except InputError as reason:
            self._warn(f"no checkpoint: {reason}; the run goes on")
        self.saved = time.monotonic()
        self.last = self.saved - started
        self.spent += self.last

    def _warn(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            warnings.warn(problem, stacklevel=3)


def save_checkpoint(place: Path, step: Step) -> None:
    """Write a run's whole state, and keep the checkpoint before it.

    Raises:
        CannotKeep: The method holds something that cannot be saved.
        InputError: It cannot be written.
    """
    assert step.snapshot is not None
    write_checkpoint(place, step.snapshot())


def write_checkpoint(place: Path, state: State, *, previous: bool = True) -> None:
    """Write a state with a checksum over all of it.

    It is serialised in memory first, so that a full disk raises an ordinary error. The checksum stands at the
    end, where `torch.load` does not mind it.

    Args:
        place: The path of the checkpoint.
        state: The state.
        previous: Whether the checkpoint that it replaces is kept beside it.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    seal = sealed(buffer.getbuffer())
    buffer.seek(0, io.SEEK_END)
    buffer.write(seal)
    keep = place.with_name(PREVIOUS) if previous else None
    write_whole(place, lambda beside: beside.write_bytes(buffer.getbuffer()), keep=keep)


def read_checkpoint(place: Path) -> State:
    """The state in a checkpoint, if it is what was written.

    Raises:
        DamagedCheckpoint: It is not.
        InputError: It cannot be read now; it may be whole.
        MemoryError: It does not fit into memory.
    """
    try:
        payload = sealed_content(place)
    except InputError as error:
        if isinstance(error, Damaged) or place.is_dir():
            raise DamagedCheckpoint(str(error)) from error
        raise
    try:
        state = torch.load(io.BytesIO(payload), weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError) as error:
        if is_out_of_memory(error):
            raise MemoryError(f"the checkpoint {place} does not fit into memory: {error}") from error
        raise DamagedCheckpoint(f"the checkpoint {place} cannot be read: {error}") from error
    if not isinstance(state, dict):
        raise DamagedCheckpoint(f"the checkpoint {place} holds no state")
    return state


def checkpoint_of(path: Path, experiment: Experiment) -> State:
    """The state in a checkpoint of an experiment.

    Raises:
        DamagedCheckpoint: It is not what was written, of another experiment, or of another version of engram.
        InputError: It cannot be read now; it may be whole.
    """
    state = read_checkpoint(path)
    if state.get("format") != CHECKPOINT_FORMAT:
        raise DamagedCheckpoint(f"the checkpoint {path} was made by another version of engram")
    if state.get("digest") != experiment.digest:
        raise DamagedCheckpoint(f"the checkpoint {path} is of another experiment")
    return state


def states_to_resume(place: Path, experiment: Experiment) -> Iterator[tuple[Path, State | None]]:
    """What a run may resume from: its checkpoint, the one before it, and None for the beginning.

    One that cannot be used is named in a warning and removed. One that cannot be read now stays as it is: a
    disk that does not answer for a moment, or too little memory, must not cost the work of days.

    Raises:
        InputError: One cannot be read now.
    """
    for path in (place, place.with_name(PREVIOUS)):
        if not path.exists() and not path.is_symlink():
            continue
        try:
            state = checkpoint_of(path, experiment)
        except DamagedCheckpoint as problem:
            reject(path, problem)
            continue
        except InputError as problem:
            raise InputError(
                f"{problem}: run the same command again once it can be read, or delete it to do without it"
            ) from problem
        yield path, state
    yield place, None


def reject(path: Path, problem: InputError) -> None:
    """Name a checkpoint that cannot be used, and remove it; a folder in its place is only renamed."""
    warnings.warn(
        f"{problem}: the run resumes from the checkpoint before it, or from the beginning", stacklevel=2
    )
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.rename(path.with_name(f"{path.name}.{unique_name()}"))
        else:
            path.unlink()


def remove_checkpoints(place: Path) -> None:
    """Remove a run's checkpoints, which it does not need any more."""
    for path in (place, place.with_name(PREVIOUS)):
        with suppress(OSError):
            path.unlink(missing_ok=True)
