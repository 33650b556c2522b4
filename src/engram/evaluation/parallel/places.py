"""Which cores learner and evaluators use, so that they do not take turns on one while another is idle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """The core of a learner with one thread, and the cores of its evaluators.

    Some kernels wake a process on the core of the one that wakes it. A learner and an evaluator that wake
    each other through a pipe would then share a core.

    Attributes:
        learner: The core of the learner, while it waits for an evaluator; otherwise it is free to move.
        evaluators: The cores of the evaluators: all others.
    """

    learner: frozenset[int]
    evaluators: frozenset[int]

    @classmethod
    def of(cls, evaluators: int, *, threads: int) -> Places | None:
        """The places of this process and its evaluators; None where there is no core for each of them.

        Example:
            >>> Places.of(10_000, threads=1) is None
            True
        """
        if threads > 1 or not hasattr(os, "sched_getaffinity"):
            return None
        usable = frozenset(os.sched_getaffinity(0))
        here = _core()
        if here not in usable or len(usable) <= evaluators:
            return None
        return cls(frozenset({here}), usable - {here})

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within, this thread wakes on the learner's core."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.learner & before or before)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


def _core() -> int | None:
    """The core that this thread runs on; None where the system does not say."""
    try:
        return int(Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[36])
    except (OSError, ValueError, IndexError):
        return None
