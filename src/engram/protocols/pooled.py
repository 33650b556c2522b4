"""Several tasks as one: the accuracy on their samples together, and when a stream counts as forgotten."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engram.core.trace import Trace
from engram.metrics.anchored import corrected
from engram.metrics.joint import CF_THRESHOLDS

_SLT_NAME = re.compile(rf"slt-({'|'.join(CF_THRESHOLDS)})[a-h]?-")


def union_accuracy(trace: Trace, *, learning: int, tasks: Sequence[int]) -> list[tuple[int, float]]:
    """The accuracy on several tasks together, samples pooled, at each evaluation while one is learned.

    Evaluations without one of the tasks are left out, and so is the one before any update.

    Args:
        trace: The evaluations.
        learning: The task being learned.
        tasks: The tasks whose samples are pooled.

    Returns:
        Updates done and accuracy, evaluation by evaluation.

    Example:
        >>> import numpy as np
        >>> trace = Trace()
        >>> trace.add(step=5, learning=1, task=0, right=np.array([True, False, False]))
        >>> trace.add(step=5, learning=1, task=1, right=np.array([True]))
        >>> union_accuracy(trace, learning=1, tasks=(0, 1))
        [(5, 0.5)]
    """
    counts: dict[int, dict[int, tuple[float, int]]] = {}
    correct_in: Sequence[float] = trace.correct
    total_in = trace.total
    if trace.anchors is not None:
        whole = dict(zip(trace.anchors.task, trace.anchors.total, strict=True))
        total_in = [whole.get(task, total) for task, total in zip(trace.task, trace.total, strict=True)]
        correct_in = (corrected(trace)[0] * total_in).tolist()
    rows = zip(trace.step, trace.learning, trace.task, correct_in, total_in, strict=True)
    for step, current, task, correct, total in rows:
        if current == learning and task in tasks and step > 0:
            counts.setdefault(step, {})[task] = correct, total
    return [
        (step, sum(correct for correct, _ in by_task.values()) / sum(total for _, total in by_task.values()))
        for step, by_task in counts.items()
        if len(by_task) == len(set(tasks))
    ]


def forgetting_threshold(scenario: str, sizes: Sequence[int]) -> float:
    """The accuracy on all tasks below which a stream counts as forgotten.

    For the sequential learning tasks of Pfülb & Gepperth (2019) it is the paper's limit (0.5, and 0.9 for
    D9-1). For other streams the same rule is applied: the larger of the last task's share of all samples and
    that of the tasks before, which is the accuracy of knowing only one of the two.

    Args:
        scenario: The stream's name.
        sizes: Test samples of each task, in the order in which they are learned.

    Example:
        >>> forgetting_threshold("slt-D9-1b-mnist", [9020, 980]), forgetting_threshold("mine", [30, 70])
        (0.9, 0.7)
    """
    named = _SLT_NAME.match(scenario)
    if named is not None:
        return CF_THRESHOLDS[named[1]]
    share = sizes[-1] / sum(sizes)
    return max(share, 1 - share)
