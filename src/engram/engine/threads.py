"""How many threads compute, and how they wait for each other."""

import os

from engram.core.errors import InputError

WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
"""Threads that wait for others spin for some microseconds, then sleep."""


MOST = max(64, 4 * (os.cpu_count() or 1))
"""More threads only wait for each other, and from some thousands on the process ends without a message."""


def prepare_threads(threads: int | None = None) -> None:
    """Set up threads before torch is imported; docs/decisions/003-threads.md has the measurements.

    On a busy machine, threads that keep spinning while they wait become several times slower; threads that
    soon sleep do not. Variables that are set in the user's environment are respected.
    """
    if threads is not None and threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    if threads is not None and threads > MOST:
        raise InputError(f"threads must be at most {MOST} on this machine, got {threads}")
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
