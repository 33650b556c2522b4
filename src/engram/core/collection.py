"""Work that makes very many objects, without the garbage collector looking at all of them again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the garbage collector; also a decorator, for functions that end after seconds.

    What is no longer used is still freed at once, except for objects that refer to each other in circles.

    Example:
        >>> with without_collection():
        ...     print(gc.isenabled())
        False
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
