"""How long updates and evaluations take, and whether evaluator processes save time."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque

from engram.record.parallel import MOST_EVALUATORS

LATEST = 5
"""Times that count: the median of so many."""
FEWEST = 3
"""Evaluations in line before evaluators may be started; the first of a stretch prepares its samples."""
SHORTEST = 0.002
"""Seconds; evaluations that take less are made in line."""
WORTH_IT = 0.9
"""Evaluators are used if they are expected to take at most this share of the time of evaluating in line."""
PAYS = 5.0
"""They are started when what they would have saved so far is so many times what starting them takes."""
PAYS_LATER = 2.0
"""The same for what they will save in this stretch, if it is as long as the one before."""
FORK_SECONDS = 0.015
"""What starting one takes, before that was measured."""
CHECKED_EVERY = 32
"""So many evaluations by evaluators are timed together; if they do not save time, they end."""


class Pace:
    """Times of one stretch of evaluations: what an update and an evaluation take in line, and side by side.

    Args:
        cores: The cores that learner and evaluators may use together.
        threads: The threads that the learner computes with, and each evaluator.

    Example:
        >>> pace = Pace(cores=2, threads=1)
        >>> for _ in range(20):
        ...     pace.note(update=0.010, evaluation=0.012)
        >>> pace.choice(copying=0.0005)
        (1, '')
        >>> Pace(cores=2, threads=2).choice(copying=0.0005)
        (0, 'the learner computes with 2 threads and there are 2 cores, so none is left for evaluators')
    """

    def __init__(self, *, cores: int, threads: int) -> None:
        self.cores, self.threads = cores, threads
        self.fork_seconds = FORK_SECONDS
        self._updates: deque[float] = deque(maxlen=LATEST)
        self._evaluations: deque[float] = deque(maxlen=LATEST)
        self._in_line = self._made = 0
        self._expected: int | None = None
        self._left: float | None = None
        self._beside: list[float] = []
        self._since: float | None = None

    def begin(self) -> None:
        """Another stretch begins, with other samples or another network."""
        self._evaluations.clear()
        if self._made > 1:
            self._expected = self._made
        self._in_line, self._made, self._left = 0, 0, None
        self._since, self._beside = None, []

    def came(self) -> None:
        """The learner has made an update, and asks for an evaluation."""
        now = time.perf_counter()
        self._made += 1
        if self._left is not None:
            self._updates.append(now - self._left)

    def left(self) -> None:
        """The learner goes on."""
        self._left = time.perf_counter()

    def evaluated(self, seconds: float) -> None:
        """An evaluation was made in line."""
        self._in_line += 1
        if self._in_line > 1:
            self._evaluations.append(seconds)

    def note(self, *, update: float, evaluation: float) -> None:
        """An update and an evaluation in line took so long."""
        self._updates.append(update)
        self.evaluated(evaluation)

    @property
    def room(self) -> int:
        """For how many evaluators there are cores."""
        return min(MOST_EVALUATORS, (self.cores - self.threads) // self.threads)

    def choice(self, *, copying: float) -> tuple[int, str]:
        """How many evaluators to start, and if none why; the reason is empty where it is too early to say.

        Args:
            copying: The seconds that taking a snapshot takes.
        """
        if self.room < 1:
            threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
            there = f"there {'is 1 core' if self.cores == 1 else f'are {self.cores} cores'}"
            return 0, f"the learner computes with {threads} and {there}, so none is left for evaluators"
        if len(self._evaluations) < FEWEST - 1 or not self._updates:
            return 0, ""
        update, evaluation = statistics.median(self._updates), statistics.median(self._evaluations)
        if evaluation < SHORTEST:
            return 0, f"an evaluation takes {1000 * evaluation:.1f} ms, too short to be worth a snapshot"
        evaluators = min(self.room, math.ceil(evaluation / max(update, 1e-6)))
        expected = max(update + copying, evaluation / evaluators)
        if expected > WORTH_IT * (update + evaluation):
            share = expected / (update + evaluation)
            return 0, f"evaluators are expected to take {share:.2f} of the time, above {WORTH_IT}"
        pays = self._pays(update + evaluation - expected, self.fork_seconds * evaluators)
        return (evaluators if pays else 0), ""

    def _pays(self, saved: float, price: float) -> bool:
        """Whether it pays to start evaluators for `price` seconds that save so many per evaluation."""
        if self._expected is not None and self._made < self._expected:
            return (self._expected - self._made) * saved >= PAYS_LATER * price
        return self._in_line * saved >= PAYS * price

    def disappoints(self) -> str:
        """Note an evaluation by evaluators; returns why to go back to evaluating in line, if one should."""
        now = time.perf_counter()
        if self._since is None:
            self._since = now
            return ""
        self._beside.append(now - self._since)
        self._since = now
        if len(self._beside) < CHECKED_EVERY:
            return ""
        beside, self._beside = statistics.fmean(self._beside), []
        in_line = statistics.median(self._updates) + statistics.median(self._evaluations)
        if beside < in_line:
            return ""
        return f"evaluators took {beside / in_line:.2f} of the time of evaluating in line"
