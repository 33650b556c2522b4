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
        most_tokens: The most that are saved up.
        window: Evaluations that a drop may take.
        least_drop: Drops up to this are never a reason.
        jump: A fall of the mean over tasks by more than this, within the window, starts short gaps anew.
    """

    longest_gap: int = 16
    tokens: float = 10.0
    refill: float = 0.08
    most_tokens: float = 1e9
    window: int = 10
    least_drop: float = 0.03
    jump: float = 0.05


@dataclass(slots=True)
class _Course:
    """What the curve of one task has done so far.

    Attributes:
        recent: Its last accuracies.
        lowest: The lowest while other tasks were learned; None before that.
        largest_drop: The largest drop within the window.
    """

    recent: deque[float]
    lowest: float | None = None
    largest_drop: float = 0.0


@dataclass(slots=True)
class Anchors:
    """Decides, evaluation by evaluation, whether all samples are asked.

    They are: at the first evaluation after another task begins to be learned, and then at distances of 1, 2,
    4, 8, 16, 16, … evaluations; where the curve of a task learned before has a new low, or that of any task a
    new largest drop, as long as there are tokens. Where no boundaries are told, sudden falls take their place.
    Task ends are not decided here: whoever knows them asks all samples there.

    Attributes:
        rule: Its numbers.

    Example:
        >>> anchors = Anchors()
        >>> [step for step in range(40) if anchors.due(learning=[0], accuracies={0: 0.9})]
        [0, 1, 3, 7, 15, 31]
        >>> anchors.due(learning=[1], accuracies={0: 0.9, 1: 0.1})
        True
    """

    rule: Rule = Rule()
    _evaluations: int = 0
    _next: int = 0
    _gap: int = 1
    _tokens: float | None = None
    _learning: tuple[int, ...] = ()
    _learned: set[int] = field(default_factory=set)
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
        saved = rule.tokens if self._tokens is None else self._tokens + rule.refill
        self._tokens = min(saved, rule.most_tokens)
        if now != self._learning:
            self._learning = now
            self._learned.update(now)
            self._next, self._gap = self._evaluations, 1
        scheduled = self._evaluations >= self._next
        if scheduled:
            self._next = self._evaluations + self._gap
            self._gap = min(2 * self._gap, rule.longest_gap)
        # All courses are followed, whatever the others say.
        telling = [self._follow(task, accuracy) for task, accuracy in accuracies.items()]
        self._evaluations += 1
        if scheduled or not any(telling) or self._tokens < 1:
            return scheduled
        self._tokens -= 1
        return True

    def _follow(self, task: int, accuracy: float) -> bool:
        """Whether the curve of a task has a new low or a new largest drop."""
        course = self._courses.setdefault(task, _Course(deque(maxlen=self.rule.window)))
        drop = max(course.recent, default=accuracy) - accuracy
        course.recent.append(accuracy)
        telling = drop > max(self.rule.least_drop, course.largest_drop)
        if telling:
            course.largest_drop = drop
        if task in self._learned and task not in self._learning:
            telling |= course.lowest is not None and accuracy < course.lowest
            course.lowest = accuracy if course.lowest is None else min(course.lowest, accuracy)
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
