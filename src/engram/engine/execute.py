"""Run an experiment into its folder: resume it, notify observers, and save the run, finished or failed."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from engram.core.errors import InputError
from engram.core.files import is_file, make_folder, remove_file
from engram.core.folder import CHECKPOINT, EXPERIMENT, FAILURE, LEASE, RESULT, has_checkpoint
from engram.core.leases import Held, Lease, lease
from engram.core.stopping import StopSignals
from engram.datasets.accounting import Forbidden, refusal
from engram.engine.checkpoint import (
    Checkpoints,
    DamagedCheckpoint,
    reject,
    remove_checkpoints,
    states_to_resume,
)
from engram.engine.failures import RunFailed, failure_of
from engram.engine.kept_checkpoints import CheckpointKeeper
from engram.engine.kept_weights import WeightKeeper, check_keeps
from engram.engine.loop import run_steps
from engram.engine.observers import Observer, Step, Watcher, tell
from engram.engine.progress import ProgressFile
from engram.engine.where import Where
from engram.record.aside import move_damaged, recover, remove_damaged
from engram.record.description import save_description
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.run import REPAIR, Run


def execute(experiment: Experiment, where: Where, observers: Sequence[Observer] = ()) -> Run:
    """Run an experiment into its folder, and return the run.

    A finished run is not run again; one that has a checkpoint resumes from it. The folder has its
    `experiment.json` from the start. A run that fails leaves what was measured, and why it failed. If a
    signal asks to stop, the update under way is completed, and a checkpoint is written.

    Args:
        experiment: The experiment.
        where: Where and how to run it.
        observers: Notified of every step.

    Raises:
        RunFailed: The run started and failed; its folder says why.
        Held: Another process is running it.
        Stopped: A signal asked to stop.
        InputError: The run could not start; nothing is left behind.
    """
    folder = where.folder / experiment.id
    weights = _weight_keeper(experiment, where, folder)
    before = Run.find(experiment, where.folder)
    if before.finished:
        return _existing(before, where, observers)
    # A folder that cannot be written to is noticed before anything is computed.
    make_folder(folder)
    known = is_file(folder / EXPERIMENT)
    if not known:
        save_description(folder, experiment.as_json())
    with StopSignals(wait=False) as signals, lease(folder) as held, ProgressFile(folder) as progress:
        recover(folder)
        before = Run.find(experiment, where.folder)
        if before.finished:
            return _existing(before, where, observers)
        _prepare(before)
        save_description(folder, experiment.as_json())
        checkpoints = Checkpoints(folder / CHECKPOINT, seconds=where.checkpoint_seconds)
        keeper = _Keeper(checkpoints, signals, held, progress)
        try:
            kept = (
                [] if where.keep_checkpoints is None else [CheckpointKeeper(folder, where.keep_checkpoints)]
            )
            told = (*observers, *kept, *([] if weights is None else [weights]))
            saved = _observed(
                _resumed(experiment, where, weights), before, told, partial(_save, folder, weights), keeper
            )
        except (RunFailed, Held):
            raise
        except KeyboardInterrupt as error:
            _note_interruption(before, error, held)
            raise
        except BaseException:
            if (
                not known
                and held.is_held()
                and {file.name for file in folder.iterdir()} == {EXPERIMENT, LEASE}
            ):
                # The run did not start: leave nothing behind.
                shutil.rmtree(folder, ignore_errors=True)
            raise
        if held.is_held():
            # Else what is there now belongs to the process that has taken over.
            remove_damaged(folder)
            remove_checkpoints(folder / CHECKPOINT)
        # Its run is finished and kept, but no other should begin.
        signals.check()
    return saved


def attempt(experiment: Experiment, where: Where, observers: Sequence[Observer] = ()) -> Run:
    """Run an experiment into its folder; a failure is returned in the run instead of being raised.

    Errors before a run starts are recorded as well, so that a sweep's folder has all of its runs.

    Raises:
        Held: Another process is running it.
    """
    try:
        return execute(experiment, where, observers)
    except RunFailed as error:
        return replace(error.run, folder=where.folder / experiment.id)
    except Held:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a method raises, the other runs continue
        run = Run.find(experiment, where.folder)
        if run.finished:
            # It has a result, but the result does not pass `strict`.
            return replace(run, finished=False, failure=failure_of(error))
        return record_failure(run, failure_of(error))


def record_failure(run: Run, failure: Failure) -> Run:
    """Save why a run has no result, with its description and what was measured.

    Nothing is saved where another process is running it, or where it cannot be written, which is then part of
    the reason.
    """
    assert run.folder is not None
    failed = replace(run, failure=failure)
    if failed.finished:
        return failed
    try:
        make_folder(run.folder)
        # Where memory is used up, a new thread may end before it begins, and its starter waits forever.
        with lease(run.folder, renewed=False):
            return failed.save()
    except Held:
        return failed
    except InputError as error:
        if str(error) in failure.reason:
            return failed
        return replace(failed, failure=replace(failure, reason=f"{failure.reason} ({error})"))


class _Keeper(Watcher):
    """The last observer of a run: checkpoints at intervals, and when a signal asks to stop.

    Args:
        checkpoints: Saves checkpoints.
        signals: Notes signals.
        held: The lease of the run's folder.
        progress: Tells others how far the run is.
    """

    def __init__(
        self, checkpoints: Checkpoints, signals: StopSignals, held: Lease, progress: ProgressFile
    ) -> None:
        self.checkpoints, self.signals, self.held, self.progress = checkpoints, signals, held, progress

    def updated(self, step: Step) -> None:
        """Between two updates: notice whether to stop, and save a checkpoint if it is time."""
        self.held.check()
        self.signals.check()
        # Before the first update there was nothing to lose by stopping at once.
        self.signals.wait = True
        if self.checkpoints.due(time.monotonic()):
            self.confirm()
        self.checkpoints.updated(step)
        self.progress.updated(step)

    def interrupted(self, step: Step) -> None:
        """Save a checkpoint before the run stops, unless its user is in a hurry."""
        if not self.signals.urgent and self.held.is_held():
            self.checkpoints.save(step)

    def confirm(self) -> None:
        """Before anything is written: who has lost the lease stops without writing.

        Raises:
            Held: Another process has taken it over.
        """
        self.held.renew()
        self.held.check()


def _weight_keeper(experiment: Experiment, where: Where, folder: Path) -> WeightKeeper | None:
    """What keeps the weights of a run; None where none are wanted."""
    if where.save_weights is None:
        return None
    check_keeps(experiment)
    return WeightKeeper(folder, experiment, "tasks" if where.save_weights == "tasks" else "final")


def _save(folder: Path, weights: WeightKeeper | None, run: Run) -> Run:
    """Save a run, with the hashes of its weights if it is finished and keeps them."""
    if weights is not None and run.finished:
        run = replace(run, weights=weights.checksums())
    return run.save(folder)


def _existing(run: Run, where: Where, observers: Sequence[Observer]) -> Run:
    check_existing(run, where)
    _end(observers, run)
    return run


def check_existing(run: Run, where: Where) -> None:
    """Refuse a finished run that does not have in its folder what is wanted of runs now.

    Raises:
        InputError: It kept no weights or no checkpoints, or does not pass `strict`.
    """
    assert run.folder is not None
    weights = _weight_keeper(run.experiment, where, run.folder)
    if weights is not None:
        weights.check_finished(run)
    if where.keep_checkpoints is not None:
        CheckpointKeeper(run.folder, where.keep_checkpoints).check_finished(run)
    if where.strict:
        check_card(run)


def _prepare(before: Run) -> None:
    """Remove the failure of an earlier attempt; name a damaged run, and set it aside until one is done."""
    assert before.folder is not None
    if before.failure is not None and before.failure.kind is FailureKind.DAMAGED:
        warnings.warn(f"{before.failure.reason}; it is run again now", stacklevel=3)
        if is_file(before.folder / RESULT):
            move_damaged(before.folder)
    remove_file(before.folder / FAILURE)


def _note_interruption(run: Run, error: KeyboardInterrupt, held: Lease) -> None:
    """Save that a run was interrupted, and whether it will resume."""
    assert run.folder is not None
    failure = failure_of(error)
    if not has_checkpoint(run.folder):
        again = "interrupted before its first checkpoint: run the same command again to start it again"
        failure = replace(failure, reason=again)
    if held.is_held():
        _saved_if_possible(replace(run, failure=failure), Run.save)


def _saved_if_possible(failed: Run, save: Callable[[Run], Run]) -> Run:
    """Save a run that failed; if that is not possible, say so: why it failed matters more."""
    try:
        return save(failed)
    except InputError as error:
        warnings.warn(f"the failure is not recorded: {error}", stacklevel=3)
        return failed


def check_card(run: Run) -> None:
    """Refuse a finished run whose method read data that it must not read, or that has no card."""
    if run.card is None:
        raise InputError(f"the run {run.folder} was made before cards were recorded: {REPAIR}")
    if run.card.forbidden:
        raise Forbidden(refusal(run.method, run.card.forbidden))


def run_in_memory(experiment: Experiment, where: Where, observers: Sequence[Observer] = ()) -> Run:
    """Run an experiment to its end without writing anything.

    Raises:
        RunFailed: The run failed.
    """
    begun = Run(planned=experiment)
    return _observed(run_steps(experiment, where), begun, observers, lambda run: run)


def _resumed(
    experiment: Experiment, where: Where, weights: WeightKeeper | None = None
) -> Generator[Step, None, Run]:
    """The steps that are left of a run: all of them, or those after its last checkpoint that can be used."""
    place = where.folder / experiment.id / CHECKPOINT
    for path, state in states_to_resume(place, experiment):
        if where.strict and state is not None and not state.get("ledger", {}).get("whole", True):
            raise InputError(
                f"{path} was made before cards were recorded: delete it to start the run from the beginning"
            )
        if weights is not None and state is not None and weights.lacks(state):
            warnings.warn(
                f"{path} comes after a task whose weights were not kept: the run starts from the beginning",
                stacklevel=2,
            )
            continue
        try:
            return (yield from run_steps(experiment, where, resume=state))
        except DamagedCheckpoint as problem:
            reject(path, problem)
    raise AssertionError("the last state is the beginning, which can always be used")


def _observed(
    steps: Generator[Step, None, Run],
    begun: Run,
    observers: Sequence[Observer],
    save: Callable[[Run], Run],
    keeper: _Keeper | None = None,
) -> Run:
    """Take all steps of a run, and notify observers: it begins, each step, how it ended.

    Args:
        steps: The steps.
        begun: The run, of which nothing is measured yet.
        observers: Notified of everything.
        save: Saves the run at its end, before observers see it.
        keeper: Saves checkpoints; None where there are none.
    """
    for observer in observers:
        observer.began(begun)
    try:
        run = _drained(steps, observers, keeper)
    except RunFailed as error:
        _end(observers, _saved_if_possible(error.run, save))
        raise
    except (Exception, KeyboardInterrupt) as error:
        _end(observers, replace(begun, failure=failure_of(error)))
        raise
    saved = save(run)
    _end(observers, saved)
    return saved


def _drained(steps: Generator[Step, None, Run], observers: Sequence[Observer], keeper: _Keeper | None) -> Run:
    while True:
        try:
            step = next(steps)
        except (StopIteration, RunFailed) as end:
            if keeper is not None:
                keeper.confirm()
            if isinstance(end, RunFailed):
                raise
            finished: Run = end.value
            return finished
        try:
            tell(observers if keeper is None else (*observers, keeper), step)
        except KeyboardInterrupt:
            # Between two updates the state is complete.
            if keeper is not None:
                keeper.interrupted(step)
            raise


def _end(observers: Sequence[Observer], run: Run) -> None:
    for observer in observers:
        observer.ended(run)
