"""Memory that a training process frees stays with it, for its next update."""

from __future__ import annotations

import ctypes
import os

KEPT = 2**28
"""Freed memory is returned to the system from so many bytes on."""
MAPPED = 2**25
"""Tensors of so many bytes are mapped one by one, and unmapped when they are freed: the most that the GNU C
library allows."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of these options in malloc.h."""


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees; returns whether it does.

    By default the GNU C library returns freed memory to the system when there is more than some megabytes of
    it, and every update of a large network gets it back page by page, which takes about a tenth of its time
    (`python -m benchmarks memory`). Nothing is changed with another library, or where the user's environment
    says how memory is to be allocated.

    Example:
        >>> keep_freed_memory() in (True, False)
        True
    """
    if any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all([mallopt(_MMAP_THRESHOLD, MAPPED) == 1, mallopt(_TRIM_THRESHOLD, KEPT) == 1])
