"""The executor that runs experiments in parallel in local processes; a crash fails only its own run."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from engram.core.errors import InputError
from engram.core.files import make_folder, remove_file
from engram.core.folder import FAILURE
from engram.engine.execute import check_card, record_failure
from engram.engine.observers import Observer, Step, tell
from engram.engine.threads import WAITING
from engram.engine.where import Where
from engram.executors.shared_data import datasets_of, share
from engram.executors.worker import Ended, News, Ready, Setup, Told, work
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run

_SPAWN = get_context("spawn")
_PATIENCE_SECONDS = 5.0
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    **WAITING,
}
"""Variables that a worker's libraries read when they are loaded, before the worker could set them."""


class Processes:
    """Runs experiments in local processes, each into its folder; finished runs are read, not run again.

    A run that raises, is killed or runs out of memory is a `Run` with its failure, which is also written to
    `failure.json` in its folder; the others continue, and the next call tries it again. If the caller is
    interrupted (Ctrl-C), every active run writes a checkpoint and ends; the next call resumes it. Each
    worker computes with one thread. Data sets are loaded once, and all workers map the same memory.

    Workers are new interpreters: a script must call this under `if __name__ == "__main__":`, and register
    its own methods at its top level or in a plugin.

    Args:
        where: Where and how to run; `jobs` is the number of parallel runs.
        observers: Notified of every step of all runs.
    """

    def __init__(self, where: Where, observers: Sequence[Observer] = ()) -> None:
        self.where, self.observers = where, observers

    def __call__(self, experiments: Sequence[Experiment]) -> list[Run]:
        """One run per experiment, in their order."""
        with closing(self.run(experiments)) as ending:
            runs = {run.id: run for run in ending}
        return [runs[experiment.id] for experiment in experiments]

    def run(self, experiments: Sequence[Experiment]) -> Generator[Run, None, None]:
        """Yield runs as they end; those that had finished before come first. `close` stops the rest.

        Args:
            experiments: The experiments; equal ones are run once.

        Raises:
            InputError: The folder cannot be written to, a data set is missing, or a finished run does not
                pass `strict`; then nothing was started.
        """
        where = self.where
        make_folder(where.folder)
        distinct = {experiment.id: experiment for experiment in experiments}
        runs = [Run.find(experiment, where.folder) for experiment in distinct.values()]
        done = [run for run in runs if run.finished]
        waiting = deque(run.experiment for run in runs if not run.finished)
        if where.strict:
            for run in done:
                check_card(run)
        for run in done:
            self._ended(run)
            yield run
        team: list[_Worker] = []
        with tempfile.TemporaryDirectory(prefix="engram-data-", ignore_cleanup_errors=True) as place:
            datasets = share(datasets_of(waiting), Path(place), data=where.data)
            setup = Setup(datasets, Path(place), where)
            try:
                while waiting or any(worker.busy for worker in team):
                    while waiting and len(team) < (where.jobs or cores()):
                        team.append(_Worker(setup))
                        team[-1].begin(waiting.popleft(), self.observers)
                    for worker in _with_news(team):
                        for run in worker.news(self.observers):
                            self._ended(run)
                            yield run
                        if worker.ended:
                            team.remove(worker)
                            _dismiss([worker])
                        elif waiting and not worker.busy:
                            worker.begin(waiting.popleft(), self.observers)
            finally:
                _dismiss(team)

    def _ended(self, run: Run) -> None:
        for observer in self.observers:
            observer.ended(run)


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """The parent's handle of a process that runs one experiment after the other."""

    def __init__(self, setup: Setup) -> None:
        self.out = setup.where.folder
        self.running: Run | None = None
        self.started = False
        self.ended = False
        self.pipe, worker_end = _SPAWN.Pipe()
        # Not a daemon: daemons may not start the processes that read data ahead.
        self.process: BaseProcess = _SPAWN.Process(target=work, args=(worker_end, setup))
        with _worker_environment():
            self.process.start()
        worker_end.close()

    @property
    def busy(self) -> bool:
        """Whether it has an active run."""
        return self.running is not None

    def begin(self, experiment: Experiment, observers: Sequence[Observer]) -> None:
        """Start an experiment in the worker."""
        self.running = Run(planned=experiment, folder=self.out / experiment.id)
        # A failure that is there when the run ends is then one of this attempt.
        remove_file(self.out / experiment.id / FAILURE)
        self.tell(experiment)
        for observer in observers:
            observer.began(self.running)

    def tell(self, order: Experiment | None) -> None:
        """Send an experiment, or None to stop; that a worker is dead is noticed later."""
        with suppress(OSError):
            self.pipe.send(order)

    def news(self, observers: Sequence[Observer]) -> Iterator[Run]:
        """Handle its next message; if that ends its run, yield the run."""
        assert self.running is not None
        match self._message():
            case Ready():
                self.started = True
            case News(told):
                self._pass_on(told, observers)
            case Ended(told, fatal):
                self._pass_on(told, observers)
                self.ended = fatal
                yield self._run()
            case None:
                self.ended = True
                self.process.join(_PATIENCE_SECONDS)
                code = self.process.exitcode or 0
                if not self.started and code > 0:
                    raise InputError(
                        f"a worker process did not start (it ended with code {code}): if this is a script, "
                        'start the sweep under `if __name__ == "__main__":`'
                    )
                yield self._run(_death(code))

    def _message(self) -> Ready | News | Ended | None:
        """Its next message; None if it died."""
        try:
            # A process that it started may keep its end of the pipe open after its death.
            if not self.pipe.poll() and not self.process.is_alive() and not self.pipe.poll():
                return None
            message: Ready | News | Ended = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return message

    def _pass_on(self, told: Sequence[Told], observers: Sequence[Observer]) -> None:
        """Notify observers of the steps of a worker."""
        assert self.running is not None
        for report in told:
            step = Step(
                self.running,
                report.step,
                report.steps,
                report.learning,
                report.loss,
                dict(report.accuracies),
                report.ends_task,
            )
            tell(observers, step)

    def _run(self, death: Failure | None = None) -> Run:
        """The run that ended, as the worker saved it; if it saved nothing, `death` is the failure."""
        assert self.running is not None
        experiment, self.running = self.running.experiment, None
        run = Run.find(experiment, self.out)
        # A result or failure that was saved before the process died says more than its exit code.
        saved = run.finished or run.failure is not None
        return run if death is None or saved else record_failure(run, death)


def _with_news(team: Sequence[_Worker]) -> list[_Worker]:
    """Wait until busy workers have sent something, or died."""
    signs: dict[Connection | int, _Worker] = {}
    for worker in team:
        if worker.busy:
            signs |= {worker.pipe: worker, worker.process.sentinel: worker}
    return list(dict.fromkeys(signs[sign] for sign in wait(list(signs))))  # type: ignore[index]


def _dismiss(team: Sequence[_Worker]) -> None:
    """Let all workers write their checkpoints and end; those that do not are killed."""
    for worker in team:
        worker.tell(None)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    try:
        for worker in team:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for worker in team:
            if worker.process.is_alive():
                worker.process.kill()
            worker.process.join()
            worker.pipe.close()


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


@contextmanager
def _worker_environment() -> Iterator[None]:
    """The environment of a process that is started inside: one thread that sleeps while it waits, no Ctrl-C.

    In a terminal Ctrl-C reaches all processes; only the parent handles it.
    """
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    masks = hasattr(signal, "pthread_sigmask")
    if masks:
        # If it started later, it would remove the mask before the worker starts.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
