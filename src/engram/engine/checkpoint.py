"""Checkpoints: a run that can be killed at any moment, and resumes to the same bits."""

from __future__ import annotations

import io
import math
import pickle
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from engram.core.errors import InputError
from engram.core.files import write_whole
from engram.engine.observers import Step, Watcher
from engram.engine.state import CHECKPOINT_FORMAT
from engram.methods.state import CannotKeep
from engram.record.experiment import Experiment

CHECKPOINT = "checkpoint.pt"


class Checkpoints(Watcher):
    """The observer that saves a run's state now and then.

    A method that holds something which cannot be saved is warned about once; its run then starts anew if it
    is killed.

    Args:
        place: The file.
        seconds: How much work may be lost at most.
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
            warnings.warn(f"no checkpoint: {reason}; if the run is killed, it starts anew", stacklevel=2)
            self.seconds = math.inf
        self.saved = time.monotonic()


def save_checkpoint(place: Path, step: Step) -> None:
    """Write a run's whole state; made in memory first, so that a full disk is an error like any other."""
    assert step.snapshot is not None
    buffer = io.BytesIO()
    torch.save(step.snapshot(), buffer)
    write_whole(place, lambda beside: beside.write_bytes(buffer.getbuffer()))


def load_checkpoint(place: Path, experiment: Experiment) -> dict[str, Any] | None:
    """The state to resume from; None where there is none that this experiment can use."""
    if not place.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(place, weights_only=True)
        digest = state["digest"]
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError) as error:
        raise InputError(f"the checkpoint {place} is broken: delete it, and the run starts anew") from error
    usable = digest == experiment.digest and state.get("format") == CHECKPOINT_FORMAT
    return state if usable else None
