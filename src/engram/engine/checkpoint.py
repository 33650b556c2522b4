"""A run that can be killed at any moment and goes on to the same bits."""

from __future__ import annotations

import io
import math
import pickle
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from engram.core.errors import InputError
from engram.core.files import is_file, make_folder, read_json, write_whole
from engram.core.folder import RESULT, save_run
from engram.datasets.accounting import Forbidden, refusal
from engram.engine.experiment import Experiment
from engram.engine.loop import CHECKPOINT_FORMAT, Diverged, Outcome, Progress, run_steps
from engram.methods.state import CannotKeep
from engram.record.card import Card

CHECKPOINT = "checkpoint.pt"


def execute(
    experiment: Experiment,
    folder: Path,
    *,
    data: Path | None = None,
    device: str = "cpu",
    checkpoint_seconds: float = 30.0,
    strict: bool = False,
    follow: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Run an experiment into its folder, and return what `result.json` says.

    A folder that has a result is not run again; one that has a checkpoint of the same experiment goes on from
    it. A run whose loss is no number any more leaves what was measured, but no result.

    Args:
        experiment: What to run.
        folder: The run's own folder.
        data: Where data sets are looked for first.
        device: Where to compute.
        checkpoint_seconds: How much work may be lost at most.
        strict: Whether to stop a method that reads what it should not; a result that is there already is
            refused if it did.
        follow: Called after every update.
    """
    if is_file(folder / RESULT):
        found: dict[str, Any] = read_json(folder / RESULT)
        if not isinstance(found.get("metrics"), dict):
            raise InputError(f"{folder / RESULT} is no result: run it again with --again")
        if strict:
            check_card(found, experiment, folder)
        return found
    # A place that cannot be written is found out before anything is computed.
    make_folder(folder)
    place = folder / CHECKPOINT
    state = _checkpoint(place, experiment)
    if strict and state is not None and not state.get("ledger", {}).get("whole"):
        raise InputError(f"{place} was made before cards were recorded: remove it, and the run starts anew")
    steps = run_steps(experiment, data=data, device=device, strict=strict, resume=state)
    saved = time.monotonic()
    try:
        while True:
            progress = next(steps)
            if follow is not None:
                follow(progress)
            if time.monotonic() - saved > checkpoint_seconds:
                try:
                    save_checkpoint(place, progress)
                except CannotKeep as reason:
                    warnings.warn(f"no checkpoint: {reason}; killed, the run starts anew", stacklevel=2)
                    checkpoint_seconds = math.inf
                saved = time.monotonic()
    except StopIteration as end:
        outcome: Outcome = end.value
    except Diverged as error:
        _save(folder, error.outcome, None)
        raise
    except BaseException:
        # Where it ended before anything was written, nothing is left behind.
        with suppress(OSError):
            folder.rmdir()
        raise
    _save(folder, outcome, outcome.result())
    place.unlink(missing_ok=True)
    final: dict[str, Any] = read_json(folder / RESULT)
    return final


def _save(folder: Path, outcome: Outcome, result: dict[str, Any] | None) -> None:
    """Write what was measured."""
    watched = outcome.evaluator
    save_run(
        folder,
        experiment=outcome.experiment.as_json(),
        result=result,
        trace=watched.trace,
        ends=watched.ends,
        readings=watched.readings,
    )


def save_checkpoint(place: Path, progress: Progress) -> None:
    """Write a run's whole state; made in memory first, so that a full disk is an error like any other."""
    made = io.BytesIO()
    torch.save(progress.snapshot(), made)
    write_whole(place, lambda beside: beside.write_bytes(made.getbuffer()))


def check_card(result: dict[str, Any], experiment: Experiment, folder: Path) -> None:
    """Refuse a result whose method read what it should not, or that does not tell."""
    if "card" not in result:
        raise InputError(f"the run {folder} was made before cards were recorded: run it again with --again")
    forbidden = Card.of_json(result["card"], of=f"the run {folder}").forbidden
    if forbidden:
        raise Forbidden(refusal(experiment.method, forbidden))


def _checkpoint(place: Path, experiment: Experiment) -> dict[str, Any] | None:
    """The state to go on from; None where there is none that this experiment can use."""
    if not place.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(place, weights_only=True)
        digest = state["digest"]
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError) as error:
        raise InputError(f"the checkpoint {place} is broken: remove it, and the run starts anew") from error
    usable = digest == experiment.digest and state.get("format") == CHECKPOINT_FORMAT
    return state if usable else None
