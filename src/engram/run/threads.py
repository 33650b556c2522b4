"""How many threads compute, and how they wait for each other."""

import os

from engram.core.errors import InputError


def prepare_threads(threads: int | None = None) -> None:
    """Choose threads before torch is imported; docs/decisions/003-threads.md has the measurements.

    Threads that wait by sleeping lose a little on an idle machine and keep their speed on a busy one, where
    spinning threads become several times slower. What the user's environment says is respected.
    """
    if threads is not None and threads < 1:
        raise InputError(f"threads={threads} cannot be used: give 1 or more")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
