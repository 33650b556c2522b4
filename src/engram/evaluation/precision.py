"""In which precision a network is evaluated."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

Autocast = torch.dtype | bool | None
"""A type for mixed precision; False for none; None for what is in force where the evaluator is called."""


def computing_in(device: torch.device, autocast: Autocast) -> AbstractContextManager[object]:
    """The context in which a network on this device is evaluated.

    Within `torch.autocast`, PyTorch keeps weights that it has cast. An evaluation neither uses these, which
    an update may have made stale, nor leaves any behind, which would have no gradient: its autocast has no
    cache.

    Args:
        device: Where the network is.
        autocast: See `Autocast`; True is the type that PyTorch prefers on the device.

    Example:
        >>> with computing_in(torch.device("cpu"), torch.bfloat16):
        ...     (torch.ones(1, 2) @ torch.ones(2, 1)).dtype
        torch.bfloat16
        >>> with torch.autocast("cpu", torch.bfloat16), computing_in(torch.device("cpu"), False):
        ...     (torch.ones(1, 2) @ torch.ones(2, 1)).dtype
        torch.float32
    """
    kind = device.type
    if autocast is False:
        return torch.autocast(kind, enabled=False) if in_force(kind) else nullcontext()
    if isinstance(autocast, torch.dtype):
        return torch.autocast(kind, dtype=autocast, cache_enabled=False)
    if autocast or in_force(kind):
        return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), cache_enabled=False)
    return nullcontext()


def in_force(kind: str) -> bool:
    """Whether autocast is in force on devices of a kind."""
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
