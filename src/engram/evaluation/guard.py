"""Context managers that keep an evaluation from changing a network or the global random states."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn


@contextmanager
def same_randomness() -> Iterator[None]:
    """Restore the global random states (torch, NumPy, random) on exit, whatever was drawn inside.

    Example:
        >>> with same_randomness():
        ...     inside = torch.rand(1)
        >>> bool(torch.rand(1) == inside)
        True
    """
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    on_gpu = torch.cuda.get_rng_state_all() if cuda else []
    on_cpu, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(on_cpu)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        if cuda:
            torch.cuda.set_rng_state_all(on_gpu)


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Put the module in evaluation mode without gradients; its modes and buffers are restored on exit.

    Buffers are restored even if a forward pass changes them in evaluation mode, as a user's own module may
    do. The gradients of the parameters are not changed.

    Example:
        >>> norm = nn.BatchNorm1d(2)
        >>> with untouched(norm):
        ...     norm.training, torch.is_inference_mode_enabled()
        (False, True)
        >>> norm.training
        True
    """
    modes = [(part, part.training) for part in module.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for part, mode in modes:
            part.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
