"""The executor that runs experiments side by side in local processes: a crash is a value, not the end."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
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
"""What a worker's libraries read when they are loaded, which is too early for the worker to say it."""


class Processes:
    """Runs experiments in local processes, each into its folder; what is finished is read, not run again.

    A run that raises, is killed or runs out of memory is a `Run` with its failure, which `failure.json` in
    its folder keeps; the others go on, and the next call tries it again. Where the caller stops (Ctrl-C),
    every run under way writes a checkpoint and ends; the next call resumes it. Each worker computes with one
    thread. Data sets are loaded here, once, and all workers map the same memory.

    Workers are new interpreters: a script that calls this does so under `if __name__ == "__main__":`, and
    registers methods of its own at its top level, or in a plugin.

    Args:
        where: Where and how; `jobs` says how many run at a time.
        observers: Told what happens in all of the runs.
    """

    def __init__(self, where: Where, observers: Sequence[Observer] = ()) -> None:
        self.where, self.observers = where, observers

    def __call__(self, experiments: Sequence[Experiment]) -> list[Run]:
        """One run per experiment, in their order."""
        with closing(self.run(experiments)) as ending:
            runs = {run.id: run for run in ending}
        return [runs[experiment.id] for experiment in experiments]

    def run(self, experiments: Sequence[Experiment]) -> Generator[Run, None, None]:
        """Runs as they end; those that were finished already come first. `close` stops the rest.

        Args:
            experiments: What to run; what is given twice is run once.

        Raises:
            InputError: The folder cannot be used, a data set is missing, or a finished run is not up to
                `strict`; then nothing was started.
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
                        team[-1].begin(waiting.popleft())
                    for worker in _with_news(team):
                        for run in worker.news(self.observers):
                            self._ended(run)
                            yield run
                        if worker.ended:
                            team.remove(worker)
                            _dismiss([worker])
                        elif waiting and not worker.busy:
                            worker.begin(waiting.popleft())
            finally:
                _dismiss(team)

    def _ended(self, run: Run) -> None:
        for observer in self.observers:
            observer.ended(run)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """A process that runs one experiment after the other, seen from here."""

    def __init__(self, setup: Setup) -> None:
        self.out = setup.where.folder
        self.running: Run | None = None
        self.started = False
        self.ended = False
        self.pipe, theirs = _SPAWN.Pipe()
        # Not a daemon, because daemons may not have the processes that read data from disk ahead.
        self.process: BaseProcess = _SPAWN.Process(target=work, args=(theirs, setup))
        with _surroundings():
            self.process.start()
        theirs.close()

    @property
    def busy(self) -> bool:
        """Whether a run is under way in it."""
        return self.running is not None

    def begin(self, experiment: Experiment) -> None:
        """Let it run an experiment."""
        self.running = Run(planned=experiment, folder=self.out / experiment.id)
        # Whatever failure is there when it ends is then one of this attempt.
        remove_file(self.out / experiment.id / FAILURE)
        self.tell(experiment)

    def tell(self, order: Experiment | None) -> None:
        """Send an experiment, or None to stop; one that is dead does not hear it, which shows later."""
        with suppress(OSError):
            self.pipe.send(order)

    def news(self, observers: Sequence[Observer]) -> Iterator[Run]:
        """Take note of what it says; where that ends its run, the run."""
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
        """What it says next; None where it died."""
        try:
            # A process that it started may hold its end of the pipe open beyond its death.
            if not self.pipe.poll() and not self.process.is_alive() and not self.pipe.poll():
                return None
            message: Ready | News | Ended = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return message

    def _pass_on(self, told: Sequence[Told], observers: Sequence[Observer]) -> None:
        """Tell observers here what happened there."""
        assert self.running is not None
        for news in told:
            if news.step == news.began:
                for observer in observers:
                    observer.began(self.running)
            accuracies: Mapping[int, float] = dict(news.accuracies)
            step = Step(
                self.running, news.step, news.steps, news.learning, news.loss, accuracies, news.ends_task
            )
            tell(observers, step)

    def _run(self, death: Failure | None = None) -> Run:
        """The run that ended; the worker wrote down what became of it, unless it died."""
        assert self.running is not None
        experiment, self.running = self.running.experiment, None
        run = Run.find(experiment, self.out)
        # A process that dies after it wrote down what became of its run has said more than its death does.
        told = run.finished or run.failure is not None
        return run if death is None or told else record_failure(run, death)


def _with_news(team: Sequence[_Worker]) -> list[_Worker]:
    """Wait until busy workers have something to say, or died."""
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
    """What the exit code of a process that died without a word says.

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
def _surroundings() -> Iterator[None]:
    """What a process inherits that is started here: one thread that waits by sleeping, and no Ctrl-C.

    In a terminal Ctrl-C reaches all processes; only this one decides what it means.
    """
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    masks = hasattr(signal, "pthread_sigmask")
    if masks:
        # Started later, it would take the mask away before the worker starts.
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
