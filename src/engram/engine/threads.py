"""How many threads compute, and how they wait for each other."""

import os

from engram.core.errors import InputError

WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
"""Threads that wait for others look for some microseconds whether there is work, then sleep."""


def prepare_threads(threads: int | None = None) -> None:
    """Choose threads before torch is imported; docs/decisions/003-threads.md has the measurements.

    Threads that soon sleep while they wait keep their speed on a busy machine, where threads that go on
    spinning become several times slower. What the user's environment says is respected.
    """
    if threads is not None and threads < 1:
        raise InputError(f"threads={threads} cannot be used: give 1 or more")
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
