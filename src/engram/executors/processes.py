"""The executor that runs experiments in parallel in local processes; a crash fails only its own run."""

from __future__ import annotations

import math
import signal
import tempfile
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import final

from engram.core.cores import cores
from engram.core.errors import InputError
from engram.core.words import counted
from engram.engine.execute import attempt, record_failure
from engram.engine.observers import Observer, tell
from engram.executors.executor import Executor
from engram.executors.forkserver import prepare_workers, worker_context, worker_environment
from engram.executors.queue import POLL_SECONDS, ExperimentQueue, failed_since, failure_stamp
from engram.executors.shared_data import datasets_of, share
from engram.executors.worker import Began, Ended, Message, News, Ready, Setup, Told, step_of, work
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run

_PATIENCE_SECONDS = 5.0
"""So long a process that has no run may take to end."""

_ERROR_SECONDS = 60.0
"""So long runs may take to write their checkpoints after an error: maybe nobody is there to end them."""

_REPLACED_SECONDS = 0.2
"""So long a process that was killed may take to end."""

_SILENT_SECONDS = 3.0
"""After so long it is said what is waited for."""


@final
class Processes(Executor):
    """Runs experiments in local processes.

    A run that raises, is killed or runs out of memory is a `Run` with its failure, which is also written to
    `failure.json` in its folder; the others continue, and the next call tries it again. If the caller is
    interrupted (Ctrl-C), every active run completes its update, writes a checkpoint and ends, however long
    that takes; the next call resumes it. A second Ctrl-C does not wait. Each worker computes with one thread.
    Data sets are loaded once, and all workers map the same memory.

    Workers are new interpreters: a script must call this under `if __name__ == "__main__":`, and register
    its own methods at its top level or in a plugin.

    Args:
        where: Where and how to run; `jobs` is the number of parallel runs.
        observers: Notified of every step of all runs.
    """

    def make_runs(self, waiting: Sequence[Experiment]) -> Generator[Run, None, None]:
        """Run experiments in worker processes."""
        where = self.where
        if where.parallel == "auto" and 2 * (where.jobs or cores()) > cores():
            # Every core has a run of its own.
            where = replace(where, parallel="off")
        prepare_workers()
        with tempfile.TemporaryDirectory(prefix="engram-data-", ignore_cleanup_errors=True) as place:
            datasets = share(datasets_of(waiting), Path(place), data=where.data)
            queue = ExperimentQueue(waiting, where.folder)
            with _Team(Setup(datasets, Path(place), where), queue, self.observers) as team:
                for run in team.run():
                    self._ended(run)
                    yield run


class _Team:
    """Worker processes that run what waits in a queue.

    Args:
        setup: What a worker gets when it starts.
        queue: The experiments.
        observers: Notified of every step of all runs.
    """

    def __init__(self, setup: Setup, queue: ExperimentQueue, observers: Sequence[Observer]) -> None:
        self.setup, self.queue, self.observers = setup, queue, observers
        self.workers: list[_Worker] = []

    def __enter__(self) -> _Team:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        timeout = self.setup.where.timeout
        patience = math.inf if timeout is None else timeout
        if kind is not None and not issubclass(kind, KeyboardInterrupt | GeneratorExit):
            patience = min(patience, _ERROR_SECONDS)
        _dismiss(self.workers, patience)

    def run(self) -> Iterator[Run]:
        """Yield the run of every experiment in the queue as it ends, here or in another process."""
        while self.queue or self.busy:
            yield from self._begin()
            if not self.busy:
                if self.queue:
                    self.queue.wait()
                continue
            for worker in self._with_news():
                for run in worker.news(self.observers):
                    if isinstance(run, Run):
                        yield run
                    else:
                        self.queue.put_back(run)
                if worker.ended:
                    self.workers.remove(worker)
                    _dismiss([worker])

    @property
    def busy(self) -> list[_Worker]:
        """The workers that have an active run."""
        return [worker for worker in self.workers if worker.busy]

    def _begin(self) -> Iterator[Run]:
        """Start as many runs as there may be; yield those that other processes ended."""
        while self.queue and len(self.busy) < (self.setup.where.jobs or cores()):
            match self.queue.take():
                case None:
                    return
                case Run(finished=False) as failed:
                    yield failed
                case Run() as run:
                    yield attempt(run.experiment, self.setup.where)
                case Experiment() as experiment:
                    self._free_worker().begin(experiment)

    def _free_worker(self) -> _Worker:
        for worker in self.workers:
            if not worker.busy:
                return worker
        self.workers.append(_Worker(self.setup))
        return self.workers[-1]

    def _with_news(self) -> list[_Worker]:
        """Wait until busy workers sent something, died or took too long, or it is time to look around."""
        signs: dict[Connection | int, _Worker] = {}
        for worker in self.busy:
            signs |= {worker.pipe: worker, worker.process.sentinel: worker}
        patience = min(worker.seconds_left for worker in self.busy)
        if self.queue:
            patience = min(patience, POLL_SECONDS)
        ready = wait(list(signs), None if math.isinf(patience) else max(0.0, patience))
        late = [worker for worker in self.busy if worker.seconds_left <= 0]
        return list(dict.fromkeys([*(signs[sign] for sign in ready), *late]))  # type: ignore[index]


class _Worker:
    """The parent's handle of a process that runs one experiment after the other."""

    def __init__(self, setup: Setup) -> None:
        self.out, self.timeout = setup.where.folder, setup.where.timeout
        self.running: Run | None = None
        self.failed: int | None = None
        self.step: Told | None = None
        self.heard = time.monotonic()
        self.started = False
        self.ended = False
        context = worker_context()
        self.pipe, worker_end = context.Pipe()
        # Not a daemon: daemons may not start the processes that read data ahead.
        self.process: BaseProcess = context.Process(target=work, args=(worker_end, setup))
        _start(self.process)
        worker_end.close()

    @property
    def busy(self) -> bool:
        """Whether it has an active run."""
        return self.running is not None

    @property
    def seconds_left(self) -> float:
        """The time until its run must have completed an update; starting the process does not count."""
        if self.timeout is None or not self.started:
            return math.inf
        return self.heard + self.timeout - time.monotonic()

    def begin(self, experiment: Experiment) -> None:
        """Start an experiment in the worker."""
        self.running = Run(planned=experiment, folder=self.out / experiment.id)
        self.failed = failure_stamp(self.running.folder or self.out)
        self.step, self.heard = None, time.monotonic()
        self.tell(experiment)

    def tell(self, order: Experiment | None) -> None:
        """Send an experiment, or None to stop; that a worker is dead is noticed later."""
        with suppress(OSError):
            self.pipe.send(order)

    def news(self, observers: Sequence[Observer]) -> Iterator[Run | Experiment]:
        """Handle its next message: yield the run if it ended, or the experiment if another process has it."""
        assert self.running is not None
        if not self.pipe.poll() and self.seconds_left <= 0:
            yield self._end_late_run()
            return
        message = self.message()
        self.heard = time.monotonic()
        match message:
            case Ready():
                self.started = True
            case Began():
                for observer in observers:
                    observer.began(self.running)
            case News(told):
                self._pass_on(told, observers)
            case Ended(told, fatal, held, failure):
                self._pass_on(told, observers)
                self.ended = fatal
                yield self._put_down() if held else self._run(failure)
            case None:
                yield self._run(self._died())

    def _died(self) -> Failure:
        """The failure of a run whose worker died."""
        self.ended = True
        self.process.join(_PATIENCE_SECONDS)
        code = self.process.exitcode or 0
        if not self.started and code > 0:
            raise InputError(
                f"a worker process did not start (it ended with code {code}): if this is a script, "
                'start the sweep under `if __name__ == "__main__":`'
            )
        return _death(code)

    def _end_late_run(self) -> Run:
        """End a run that takes too long, with its process: whatever it waits for, this ends it."""
        assert self.timeout is not None
        self.ended = True
        self.process.kill()
        self.process.join()
        step, task = (None, None) if self.step is None else (self.step.step, self.step.learning)
        after = "its first update" if step is None else f"the update after step {step}"
        reason = (
            f"{after} was not completed in {self.timeout:g} s (--timeout): "
            "the method hangs, or the update needs more time"
        )
        return self._run(Failure(FailureKind.TIMED_OUT, reason, step, task))

    def message(self) -> Message | None:
        """Its next message; None if it died."""
        try:
            # A process that it started may keep its end of the pipe open after its death.
            if not self.pipe.poll() and not self.process.is_alive() and not self.pipe.poll():
                return None
            message: Message = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return message

    def _pass_on(self, told: Sequence[Told], observers: Sequence[Observer]) -> None:
        """Notify observers of the steps of a worker."""
        assert self.running is not None
        for report in told:
            self.step = report
            tell(observers, step_of(report, self.running))

    def _run(self, failure: Failure | None) -> Run:
        """The run that ended, as the worker saved it; if it saved nothing, this is its failure."""
        run = Run.find(self._put_down(), self.out)
        # A result or failure that was saved before the process died says more than its exit code.
        saved = run.finished or failed_since(run, self.failed)
        return run if failure is None or saved else record_failure(run, failure)

    def _put_down(self) -> Experiment:
        """The experiment that it had; it is free for another one."""
        assert self.running is not None
        experiment, self.running = self.running.experiment, None
        return experiment


def _start(process: BaseProcess) -> None:
    """Start a worker; where the process that workers are forked from was killed, another one takes its place.

    Raises:
        InputError: That one was killed as well.
    """
    for tries_left in (1, 0):
        try:
            with worker_environment():
                process.start()
        except (EOFError, ConnectionError) as error:
            if not tries_left:
                raise InputError(
                    "a worker process did not start: the process that workers are forked from was killed, as "
                    "the system does when memory runs out; use fewer --jobs"
                ) from error
            # Until it is known to have ended, it is not replaced.
            time.sleep(_REPLACED_SECONDS)
        else:
            return


def _dismiss(team: Sequence[_Worker], patience: float = 0.0) -> None:
    """Let all workers write their checkpoints and end; those that do not are killed.

    Args:
        team: The workers.
        patience: So many seconds those that have a run may take to complete its update, and to save it.
    """
    for worker in team:
        worker.tell(None)
    try:
        _wait_for([worker for worker in team if worker.busy], patience)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for worker in team:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for worker in team:
            if worker.process.is_alive():
                worker.process.kill()
            worker.process.join()
            worker.pipe.close()


def _wait_for(busy: Sequence[_Worker], patience: float) -> None:
    """Wait until these workers have ended, but not for longer; after a moment, say so."""
    now = time.monotonic()
    deadline, silent = now + patience, now + _SILENT_SECONDS
    pipes: dict[Connection | int, _Worker] = {worker.pipe: worker for worker in busy}
    while (left := [worker for worker in busy if worker.process.is_alive()]) and now < deadline:
        if now >= silent:
            silent = math.inf
            # A terminal that is gone, or warnings that are errors, must not cost a checkpoint.
            with suppress(Exception):
                _say_who_is_waited_for(len(left), patience)
        seconds = min(deadline, silent) - now
        signs = [*pipes, *(worker.process.sentinel for worker in left)]
        for sign in wait(signs, None if math.isinf(seconds) else seconds):
            # What a worker still tells is read, so that it does not wait for a reader.
            if sign in pipes and pipes[sign].message() is None:
                del pipes[sign]
        now = time.monotonic()


def _say_who_is_waited_for(runs: int, patience: float) -> None:
    most = "" if math.isinf(patience) else f", at most {patience:g} s"
    them = "it" if runs == 1 else "them"
    warnings.warn(
        f"waiting for {counted(runs, 'run')} to complete an update and write a checkpoint{most}; "
        f"Ctrl-C again ends {them} at once, without a checkpoint",
        stacklevel=4,
    )


def _death(code: int) -> Failure:
    """The failure that the exit code of a process stands for.

    Example:
        >>> _death(-9).reason
        'its process was killed by SIGKILL, as the system does when memory runs out'
    """
    if code < 0:
        name = signal.Signals(-code).name
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return Failure(FailureKind.CRASHED, f"its process was killed by {name}{hint}")
    return Failure(FailureKind.CRASHED, f"its process ended by itself with code {code}")
