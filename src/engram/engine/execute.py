"""Run an experiment into its folder: resume it, notify observers, and save the run, finished or failed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Sequence
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

    A finished run is not run again; one that has a checkpoint resumes from it. The folder has its
    `experiment.json` from the start. A run that fails leaves what was measured, and why it failed.

    Args:
        experiment: The experiment.
        where: Where and how to run it.
        observers: Notified of every step.

    Raises:
        RunFailed: The run started and failed; its folder says why.
        InputError: The run could not start; nothing is left behind.
    """
    folder = where.folder / experiment.id
    before = Run.find(experiment, where.folder)
    if before.finished:
        if where.strict:
            check_card(before)
        _end(observers, before)
        return before
    # A folder that cannot be written to is noticed before anything is computed.
    make_folder(folder)
    remove_file(folder / FAILURE)
    known = (folder / EXPERIMENT).is_file()
    save_description(folder, experiment.as_json())
    checkpoints = Checkpoints(folder / CHECKPOINT, seconds=where.checkpoint_seconds)
    try:
        saved = _observed(
            _resumed(experiment, where), before, (*observers, checkpoints), lambda run: run.save(folder)
        )
    except RunFailed:
        raise
    except KeyboardInterrupt as error:
        record_failure(before, failure_of(error))
        raise
    except BaseException:
        if not known and [file.name for file in folder.iterdir()] == [EXPERIMENT]:
            # The run did not start: leave nothing behind.
            shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return saved


def attempt(experiment: Experiment, where: Where, observers: Sequence[Observer] = ()) -> Run:
    """Run an experiment into its folder; a failure is returned in the run instead of being raised.

    Errors before a run starts are recorded as well, so that a sweep's folder has all of its runs.
    """
    try:
        return execute(experiment, where, observers)
    except RunFailed as error:
        return replace(error.run, folder=where.folder / experiment.id)
    except Exception as error:  # noqa: BLE001 - whatever a method raises, the other runs continue
        run = Run.find(experiment, where.folder)
        if run.finished:
            # It has a result, but the result does not pass `strict`.
            return replace(run, finished=False, failure=failure_of(error))
        return record_failure(run, failure_of(error))


def record_failure(run: Run, failure: Failure) -> Run:
    """Save why a run has no result, with its description and what was measured."""
    assert run.folder is not None
    failed = replace(run, failure=failure)
    if not failed.finished:
        failed.save()
    return failed


def check_card(run: Run) -> None:
    """Refuse a finished run whose method read data that it must not read, or that has no card."""
    if run.card is None:
        raise InputError(
            f"the run {run.folder} was made before cards were recorded: run it again with --again"
        )
    if run.card.forbidden:
        raise Forbidden(refusal(run.method, run.card.forbidden))


def run_in_memory(experiment: Experiment, where: Where, observers: Sequence[Observer] = ()) -> Run:
    """Run an experiment to its end without writing anything.

    Raises:
        RunFailed: The run failed.
    """
    begun = Run(planned=experiment)
    return _observed(run_steps(experiment, where), begun, observers, lambda run: run)


def _resumed(experiment: Experiment, where: Where) -> Generator[Step, None, Run]:
    """The steps that are left of a run: all of them, or those after its checkpoint."""
    place = where.folder / experiment.id / CHECKPOINT
    state = load_checkpoint(place, experiment)
    if where.strict and state is not None and not state["ledger"]["whole"]:
        raise InputError(
            f"{place} was made before cards were recorded: delete it to start the run from the beginning"
        )
    return (yield from run_steps(experiment, where, resume=state))


def _observed(
    steps: Generator[Step, None, Run],
    begun: Run,
    observers: Sequence[Observer],
    save: Callable[[Run], Run],
) -> Run:
    """Take all steps of a run, and notify observers: it begins, each step, how it ended.

    Args:
        steps: The steps.
        begun: The run, of which nothing is measured yet.
        observers: Notified of everything.
        save: Saves the run at its end, before observers see it.
    """
    for observer in observers:
        observer.began(begun)
    try:
        run = _drained(steps, observers)
    except RunFailed as error:
        _end(observers, save(error.run))
        raise
    except (Exception, KeyboardInterrupt) as error:
        _end(observers, replace(begun, failure=failure_of(error)))
        raise
    saved = save(run)
    _end(observers, saved)
    return saved


def _drained(steps: Generator[Step, None, Run], observers: Sequence[Observer]) -> Run:
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            finished: Run = end.value
            return finished
        tell(observers, step)


def _end(observers: Sequence[Observer], run: Run) -> None:
    for observer in observers:
        observer.ended(run)
