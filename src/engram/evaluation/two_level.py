"""At which evaluations all samples are asked, where a small part of them is asked at every one.

The rule looks only at the curve so far: it never waits for later evaluations, and the same curve gives the
same anchors. So it is not stored: a resumed run follows it again from the evaluations in its trace. The study
behind it is in docs/decisions/025-two-level-samples.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from engram.core.trace import Trace


@dataclass(frozen=True, slots=True)
class Rule:
    """The numbers of the rule.

    Attributes:
        longest_gap: Evaluations between two scheduled anchors, once their distance has stopped doubling.
        tokens: Anchors beyond the schedule that may be made at the beginning.
        refill: How many more each evaluation allows.
        window: Evaluations that a drop may take; all samples are asked so many after the first of a task.
        least_drop: Drops up to this are never a reason.
        fall: Where no boundaries are told: a drop by more than this starts short distances anew,
        pause: unless they were started so many evaluations before, or fewer.
    """

    longest_gap: int = 16
    tokens: float = 10.0
    refill: float = 0.08
    window: int = 10
    least_drop: float = 0.03
    fall: float = 0.1
    pause: int = 32


@dataclass(slots=True)
class _Course:
    """What the curve of one task has done so far.

    Attributes:
        recent: Its last accuracies.
        largest_drop: The largest drop within the window.
        lowest: The lowest while other tasks were learned; None before that.
        highest: The highest of all.
        lowest_since: The lowest since then.
    """

    recent: deque[float]
    largest_drop: float = 0.0
    lowest: float | None = None
    highest: float = -1.0
    lowest_since: float = -1.0

    def drop(self, accuracy: float) -> float:
        """How far an accuracy is below the highest of the last ones, which it then joins."""
        drop = max(self.recent, default=accuracy) - accuracy
        self.recent.append(accuracy)
        return drop

    def is_low(self, accuracy: float) -> bool:
        """Whether an accuracy is the lowest while other tasks are learned; the first is not."""
        low = self.lowest is not None and accuracy < self.lowest
        self.lowest = accuracy if self.lowest is None else min(self.lowest, accuracy)
        return low

    def is_low_since_highest(self, accuracy: float, least: float) -> bool:
        """Whether an accuracy is the lowest since the highest, and more than `least` below that."""
        if accuracy > self.highest:
            self.highest = self.lowest_since = accuracy
        low = accuracy < self.lowest_since
        self.lowest_since = min(self.lowest_since, accuracy)
        return low and accuracy < self.highest - least


@dataclass(slots=True)
class Anchors:
    """Decides, evaluation by evaluation, whether all samples are asked.

    They are: at the first evaluation after another task begins to be learned, then at distances of 1, 2, 4,
    8, 16, 16, … evaluations, and 10 after the first, where WP10 usually is largest; where the curve of a task
    learned before has a new low, or that of any task a new largest drop, as long as there are tokens. Task
    ends are not decided here: whoever knows them asks all samples there.

    As long as no other task was named as being learned, as in a stream without boundaries, the curves take
    their place: a sudden fall starts short distances anew, and a new low since its highest accuracy counts
    for any task.

    Attributes:
        rule: Its numbers.

    Example:
        >>> anchors = Anchors()
        >>> [step for step in range(40) if anchors.due(learning=[0], accuracies={0: 0.9})]
        [0, 1, 3, 7, 10, 15, 31]
        >>> anchors.due(learning=[1], accuracies={0: 0.9, 1: 0.1})
        True
    """

    rule: Rule = Rule()
    _evaluations: int = 0
    _started: int = 0
    _next: int = 0
    _gap: int = 1
    _tokens: float | None = None
    _learning: tuple[int, ...] | None = None
    _learned: set[int] = field(default_factory=set)
    _boundaries: bool = False
    _courses: dict[int, _Course] = field(default_factory=dict)

    @classmethod
    def after(cls, trace: Trace, phases: Mapping[int, Sequence[int]], rule: Rule | None = None) -> Anchors:
        """As it was after the evaluations of a trace.

        Args:
            trace: The evaluations of the small part.
            phases: The tasks being learned, for each value of `learning`.
            rule: The numbers of the rule.
        """
        anchors = cls(rule or Rule())
        for rows in evaluations_of(trace):
            anchors.due(
                learning=phases.get(learning := trace.learning[rows[0]], (learning,)),
                accuracies={trace.task[row]: trace.correct[row] / trace.total[row] for row in rows},
            )
        return anchors

    def due(self, *, learning: Sequence[int], accuracies: Mapping[int, float]) -> bool:
        """Whether all samples are asked at the next evaluation, given that of the small part.

        Args:
            learning: The tasks being learned.
            accuracies: The accuracy of each task on the small part of its samples.
        """
        rule, now = self.rule, tuple(learning)
        self._tokens = rule.tokens if self._tokens is None else self._tokens + rule.refill
        if now != self._learning:
            self._boundaries = self._learning is not None
            self._learning = now
            self._learned.update(now)
            self._start()
        # All courses are followed, whatever the others say.
        telling = [self._follow(task, accuracy) for task, accuracy in accuracies.items()]
        scheduled = self._evaluations >= self._next
        if scheduled:
            self._next = self._evaluations + self._gap
            self._gap = min(2 * self._gap, rule.longest_gap)
        scheduled |= self._evaluations - self._started == rule.window
        self._evaluations += 1
        if scheduled or not any(telling) or self._tokens < 1:
            return scheduled
        self._tokens -= 1
        return True

    def _start(self) -> None:
        """Begin with short distances, now."""
        self._started = self._next = self._evaluations
        self._gap = 1

    def _follow(self, task: int, accuracy: float) -> bool:
        """Whether the curve of a task has a new low or a new largest drop."""
        rule = self.rule
        course = self._courses.setdefault(task, _Course(deque(maxlen=rule.window)))
        drop = course.drop(accuracy)
        telling = drop > max(rule.least_drop, course.largest_drop)
        course.largest_drop = max(course.largest_drop, drop if telling else 0.0)
        if task in self._learned and task not in (self._learning or ()):
            telling |= course.is_low(accuracy)
        elif not self._boundaries:
            telling |= course.is_low_since_highest(accuracy, rule.least_drop)
            if drop > rule.fall and self._evaluations - self._started >= rule.pause:
                self._start()
        return telling


def evaluations_of(trace: Trace) -> Iterator[list[int]]:
    """The rows of each evaluation, in the order of the trace."""
    for _, rows in groupby(range(len(trace)), key=trace.step.__getitem__):
        yield list(rows)


def two_levels(
    trace: Trace,
    small: Mapping[int, NDArray[np.int64]],
    *,
    phases: Mapping[int, Sequence[int]] | None = None,
    boundaries: bool = True,
    rule: Rule | None = None,
) -> Trace:
    """What two levels of samples would have recorded, where all were asked at every evaluation.

    This costs no evaluation, so the error of two levels can be measured on any trace with bits.

    Args:
        trace: The evaluations of all samples, with bits.
        small: For each task, the places of the samples that are asked at every evaluation, ascending.
        phases: The tasks being learned, for each value of `learning` (default: the one of that number).
        boundaries: Whether the rule is told what is being learned, and task ends.
        rule: The numbers of the rule.

    Example:
        >>> trace = Trace()
        >>> for step in range(1, 9):
        ...     trace.add(step=step, learning=0, task=0, right=np.arange(10) < step)
        >>> thinned = two_levels(trace, {0: np.array([2, 5, 7])})
        >>> thinned.correct, thinned.anchors.step, thinned.anchors.correct
        ([0, 0, 1, 1, 1, 2, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8])
    """
    anchors, thinned, whole = Anchors(rule or Rule()), Trace(), Trace()
    evaluations = list(evaluations_of(trace))
    for number, rows in enumerate(evaluations):
        step, learning = trace.step[rows[0]], trace.learning[rows[0]]
        following = evaluations[number + 1][0] if number + 1 < len(evaluations) else None
        last = following is None or (boundaries and trace.learning[following] != learning)
        rights = {trace.task[row]: trace.right(row) for row in rows}
        few = {task: right[small[task]] for task, right in rights.items()}
        for task, right in few.items():
            thinned.add(step=step, learning=learning, task=task, right=right)
        due = anchors.due(
            learning=(phases or {}).get(learning, (learning,)) if boundaries else (),
            accuracies={task: np.count_nonzero(right) / len(right) for task, right in few.items()},
        )
        for task, right in rights.items() if due or last else ():
            whole.add(step=step, learning=learning, task=task, right=right)
    thinned.anchors = whole
    return thinned
