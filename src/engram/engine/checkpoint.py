"""Checkpoints: a run can be killed at any moment, and resumes to the same bits."""

from __future__ import annotations

import io
import math
import pickle
import time
import warnings
from pathlib import Path

import torch

from engram.core.errors import InputError
from engram.core.files import write_whole
from engram.engine.observers import Step, Watcher
from engram.engine.state import CHECKPOINT_FORMAT
from engram.methods.state import CannotKeep, State
from engram.record.experiment import Experiment

CHECKPOINT = "checkpoint.pt"


class Checkpoints(Watcher):
    """The observer that saves a run's state at intervals.

    Where a method holds something that cannot be saved, a warning is issued once; if its run is killed, it
    then starts from the beginning.

    Args:
        place: The path of the checkpoint.
        seconds: The most work that may be lost, in seconds.
    """

    def __init__(self, place: Path, *, seconds: float = 30.0) -> None:
        self.place, self.seconds = place, seconds
        self.saved = time.monotonic()

    def updated(self, step: Step) -> None:
        """Save the state if it is time."""
        if time.monotonic() - self.saved > self.seconds:
            self.save(step)

    def save(self, step: Step) -> None:
        """Save the state now."""
        try:
            save_checkpoint(self.place, step)
        except CannotKeep as reason:
            warnings.warn(
                f"no checkpoint: {reason}; if the run is killed, it starts from the beginning", stacklevel=2
            )
            self.seconds = math.inf
        self.saved = time.monotonic()


def save_checkpoint(place: Path, step: Step) -> None:
    """Write a run's whole state; serialised in memory first, so that a full disk raises an ordinary error."""
    assert step.snapshot is not None
    buffer = io.BytesIO()
    torch.save(step.snapshot(), buffer)
    write_whole(place, lambda beside: beside.write_bytes(buffer.getbuffer()))


def load_checkpoint(place: Path, experiment: Experiment) -> State | None:
    """The state to resume from; None where there is none that this experiment can use."""
    if not place.exists():
        return None
    try:
        state: State = torch.load(place, weights_only=True)
        digest = state["digest"]
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError) as error:
        raise InputError(
            f"the checkpoint {place} is damaged: delete it to start the run from the beginning"
        ) from error
    usable = digest == experiment.digest and state.get("format") == CHECKPOINT_FORMAT
    return state if usable else None
