"""PyTorch's global settings that decide what training computes, and that any module can change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch


class _Setting(NamedTuple):
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _precision() -> str | None:
    """The precision of products of float32 matrices; None where PyTorch does not tell."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        # The user set it per backend.
        return None


def _autocast(device: str) -> _Setting:
    def read() -> tuple[bool, torch.dtype]:
        return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def write(value: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, value[0])
        torch.set_autocast_dtype(device, value[1])

    return _Setting(read, write)


_SETTINGS = {
    "default dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
    "number of threads": _Setting(torch.get_num_threads, torch.set_num_threads),
    "deterministic mode": _Setting(
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    "matrix precision": _Setting(_precision, torch.set_float32_matmul_precision),
    "autocast on the CPU": _autocast("cpu"),
    "autocast on CUDA": _autocast("cuda"),
}


class Settings:
    """PyTorch's global settings as they are now.

    Example:
        >>> before = Settings()
        >>> torch.set_default_dtype(torch.float64)
        >>> before.changed()
        ["PyTorch's default dtype"]
        >>> before.restore()
        >>> torch.get_default_dtype()
        torch.float32
    """

    large = False

    def __init__(self) -> None:
        self.values = {name: setting.read() for name, setting in _SETTINGS.items()}

    def changed(self) -> Sequence[str]:
        """The names of settings that differ."""
        return [f"PyTorch's {name}" for name in self._different()]

    def restore(self) -> None:
        """Set those that differ."""
        for name in self._different():
            if self.values[name] is not None:
                _SETTINGS[name].write(self.values[name])

    def _different(self) -> list[str]:
        return [name for name, setting in _SETTINGS.items() if setting.read() != self.values[name]]
