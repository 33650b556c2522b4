"""How worker processes are started: torch is imported once, in a process from which workers are forked.

The process can be started before torch is imported here, so that both imports take place at the same time.
Nothing in this module is slow to import.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_all_start_methods, get_context, resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext
from tempfile import gettempdir

from engram.core.stopping import NUMBERS
from engram.engine.threads import WAITING

_PRELOADED = "engram.executors.worker"
_LONGEST_FOLDER = 103 - len("/pymp-12345678/listener-12345678")
"""Paths of sockets have at most 103 bytes on macOS, and 107 on Linux."""

_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    **WAITING,
}
"""Variables that a worker's libraries read when they are loaded, before the worker could set them."""


def worker_context() -> ForkServerContext | SpawnContext:
    """What starts worker processes: by forking one that has imported everything, where that is possible.

    Example:
        >>> worker_context().get_start_method() in ("forkserver", "spawn")
        True
    """
    # The socket of that process is in the folder for temporary files, and its path has a limit.
    fits = len(os.fsencode(gettempdir())) <= _LONGEST_FOLDER
    if "forkserver" in get_all_start_methods() and fits:
        return get_context("forkserver")
    return get_context("spawn")


def prepare_workers() -> None:
    """Start the process that workers are forked from, without waiting until it is ready."""
    context = worker_context()
    if context.get_start_method() != "forkserver":
        return
    from multiprocessing.forkserver import ensure_running

    context.set_forkserver_preload([_PRELOADED])
    with worker_environment():
        ensure_running()


@contextmanager
def worker_environment() -> Iterator[None]:
    """The environment of a process that is started inside: one thread that sleeps while it waits, no signals.

    In a terminal Ctrl-C reaches all processes; only the parent handles it. A signal to end may reach all of
    them as well: if the process that workers are forked from ended, they would seem to have ended with it,
    and nobody would wait for their checkpoints. Workers listen to such signals again (`worker.work`).
    """
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    masks = hasattr(signal, "pthread_sigmask")
    if masks:
        # If it started later, it would remove the mask before the worker starts.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
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
