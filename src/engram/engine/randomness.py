"""The global random states, as tensors and plain values."""

from __future__ import annotations

import random

import numpy as np
import torch

from engram.methods.state import State


def global_randomness() -> State:
    """The global random states of torch, NumPy and Python."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "numpy": [str(name), [int(key) for key in keys], *rest],
        "python": random.getstate(),
    }


def set_global_randomness(state: State) -> None:
    """Restore the global random states."""
    torch.set_rng_state(state["torch"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
    random.setstate(state["python"])
