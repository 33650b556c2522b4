"""One evaluator process: forked from the learner, it answers what comes through a pipe until that closes."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import torch

WATCH_SECONDS = 0.25
"""How often an evaluator looks whether the learner still lives."""
PATIENCE_SECONDS = 1.0
"""How long the learner waits for an evaluator to end before it is killed."""

_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
"""Signals that reach all processes of a terminal or a job; the learner alone acts on them."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An answer that is an error, in words; the learner finds the error itself by asking again."""

    text: str


class Process:
    """A forked copy of this process that answers questions, one after the other.

    It has everything that the learner had when it was forked: networks, data in memory, functions. It
    computes with as many threads as the learner, so that sums are made in the same order; its own threads,
    because those of the learner are not copied. It ends when it is told to, or when the learner is gone.

    Args:
        answer: Answers a question.
        others: Pipes of the learner to other processes, which this one must not keep open.
        cores: The cores that it may use; None for those of the learner.

    Example:
        >>> process = Process(lambda question: question + 1)
        >>> process.pipe.send(41)
        >>> process.pipe.recv()
        42
        >>> process.end()
    """

    def __init__(
        self,
        answer: Callable[[object], object],
        others: Iterable[Connection] = (),
        *,
        cores: Collection[int] | None = None,
    ) -> None:
        mine, its = Pipe()
        threads, parent = torch.get_num_threads(), os.getpid()
        with warnings.catch_warnings():
            # Python warns of forks beside other threads; the copy uses none of their locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _live(answer, its, [mine, *others], threads=threads, parent=parent, cores=cores)
        its.close()
        self.pid, self.pipe = pid, mine
        self.ended = False

    def gone(self) -> bool:
        """Whether the process has ended; it is then forgotten by the system."""
        if not self.ended:
            try:
                self.ended = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
            except ChildProcessError:
                # Somebody else has waited for it.
                self.ended = True
        return self.ended

    def end(self) -> None:
        """Tell it to end, and wait for that; kill it if it takes long."""
        with suppress(OSError, ValueError):
            self.pipe.send(None)
        self.pipe.close()
        started = time.monotonic()
        while not self.gone() and time.monotonic() - started < PATIENCE_SECONDS:
            time.sleep(0.002)
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.pipe.close()
        if not self.gone():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.ended = True


def _live(
    answer: Callable[[object], object],
    pipe: Connection,
    close: Iterable[Connection],
    *,
    threads: int,
    parent: int,
    cores: Collection[int] | None,
) -> None:
    """The life of an evaluator; nothing that the learner would do at its exit is done."""
    try:
        for name in _IGNORED:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        for other in close:
            other.close()
        if cores is not None:
            os.sched_setaffinity(0, cores)
        # What the learner had forgotten is not cleaned up here as well.
        gc.freeze()
        # The learner has issued what an evaluation warns of, in the first one.
        warnings.simplefilter("ignore")
        # OpenMP's threads belong to the thread that started them: a new one starts new ones.
        worker = threading.Thread(target=_serve, args=(answer, pipe, threads), daemon=True)
        worker.start()
        while worker.is_alive() and os.getppid() == parent:
            worker.join(WATCH_SECONDS)
    finally:
        os._exit(0)


def _serve(answer: Callable[[object], object], pipe: Connection, threads: int) -> None:
    torch.set_num_threads(threads)
    with suppress(EOFError, OSError):
        while (question := pipe.recv()) is not None:
            try:
                reply = answer(question)
            except BaseException as error:  # noqa: BLE001 - whatever is raised, the learner asks again
                reply = Raised("".join(traceback.format_exception(error)))
            pipe.send(reply)
