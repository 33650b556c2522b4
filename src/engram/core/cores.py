"""How many processor cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores() -> int:
    """The processor cores that this process may use; a container may have a quota below their number.

    Example:
        >>> 1 <= cores() <= os.cpu_count()
        True
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text().split()
        return usable if quota == "max" else max(1, min(usable, int(quota) // int(period)))
    except (OSError, ValueError):
        return usable
