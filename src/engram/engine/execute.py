"""An experiment into its folder: resumed, told to observers, saved, whatever becomes of it."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from dataclasses import replace

from engram.core.errors import InputError
from engram.core.files import make_folder, remove_file
from engram.core.folder import EXPERIMENT, FAILURE
from engram.datasets.accounting import Forbidden, refusal
from engram.engine.checkpoint import CHECKPOINT, Checkpoints, load_checkpoint
from engram.engine.failures import RunFailed, failure_of
from engram.engine.loop import run_steps
from engram.engine.observers import Observer, Step, tell
from engram.engine.where import Where
from engram.record.experiment import Experiment
from engram.record.failure import Failure
from engram.record.run import Run, save_description


def execute(experiment: Experiment, where: Where, observers: Sequence[Observer] = ()) -> Run:
    """Run an experiment into its folder, and return the run.

    A run that is finished is not run again; one that has a checkpoint resumes from it. The folder says from
    the first second what it is. A run that fails leaves what was measured, and why it failed.

    Args:
        experiment: What to run.
        where: Where and how.
        observers: Told what happens.

    Raises:
        RunFailed: It began and did not come to its end; its folder says why.
        InputError: It could not begin; then nothing is left behind.
    """
    folder = where.folder / experiment.id
    before = Run.find(experiment, where.folder)
    if before.finished:
        if where.strict:
            check_card(before)
        _end(observers, before)
        return before
    # A place that cannot be written to is noticed before anything is computed.
    make_folder(folder)
    remove_file(folder / FAILURE)
    known = (folder / EXPERIMENT).is_file()
    save_description(folder, experiment.as_json())
    try:
        run = _run(experiment, where, observers)
    except RunFailed as error:
        _end(observers, error.run.save(folder))
        raise
    except KeyboardInterrupt as error:
        record_failure(before, failure_of(error))
        raise
    except BaseException:
        if not known and [file.name for file in folder.iterdir()] == [EXPERIMENT]:
            # It did not begin: nothing is left behind.
            shutil.rmtree(folder, ignore_errors=True)
        raise
    saved = run.save(folder)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    _end(observers, saved)
    return saved


def attempt(experiment: Experiment, where: Where, observers: Sequence[Observer] = ()) -> Run:
    """Run an experiment into its folder; whatever fails is a value, and the next one can be run.

    What is wrong before a run begins is recorded as well, so that a sweep's folder tells all of its runs.
    """
    try:
        return execute(experiment, where, observers)
    except RunFailed as error:
        return replace(error.run, folder=where.folder / experiment.id)
    except Exception as error:  # noqa: BLE001 - whatever a method raises, the other runs go on
        run = Run.find(experiment, where.folder)
        if run.finished:
            # Its result is there, but not as strict as it must be.
            return replace(run, finished=False, failure=failure_of(error))
        run = record_failure(run, failure_of(error))
        _end(observers, run)
        return run


def record_failure(run: Run, failure: Failure) -> Run:
    """Write down why a run has no result, beside what it is and what was measured of it."""
    assert run.folder is not None
    failed = replace(run, failure=failure)
    if not failed.finished:
        failed.save()
    return failed


def check_card(run: Run) -> None:
    """Refuse a finished run whose method read what it should not, or that does not tell."""
    if run.card is None:
        raise InputError(
            f"the run {run.folder} was made before cards were recorded: run it again with --again"
        )
    if run.card.forbidden:
        raise Forbidden(refusal(run.method, run.card.forbidden))


def run_in_memory(experiment: Experiment, where: Where, observers: Sequence[Observer] = ()) -> Run:
    """Run an experiment to its end without writing anything.

    Raises:
        RunFailed: It did not come to its end.
    """
    try:
        run = _tell(run_steps(experiment, where), observers)
    except RunFailed as error:
        _end(observers, error.run)
        raise
    _end(observers, run)
    return run


def _run(experiment: Experiment, where: Where, observers: Sequence[Observer]) -> Run:
    place = where.folder / experiment.id / CHECKPOINT
    state = load_checkpoint(place, experiment)
    if where.strict and state is not None and not state["ledger"]["whole"]:
        raise InputError(f"{place} was made before cards were recorded: delete it, and the run starts anew")
    checkpoints = Checkpoints(place, seconds=where.checkpoint_seconds)
    return _tell(run_steps(experiment, where, resume=state), (*observers, checkpoints))


def _tell(steps: Generator[Step, None, Run], observers: Sequence[Observer]) -> Run:
    """Follow a run to its end, and tell observers of every step."""
    began = False
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            finished: Run = end.value
            return finished
        if not began:
            began = True
            for observer in observers:
                observer.began(step.run)
        tell(observers, step)


def _end(observers: Sequence[Observer], run: Run) -> None:
    for observer in observers:
        observer.ended(run)
