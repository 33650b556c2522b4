"""Values that tools logged under names: which are accuracies of tasks, and which task was being learned.

That is the latest task that is evaluated for the first time, or follows from the last steps of the tasks.
Numbered tasks that are evaluated from the same step on are learned in the order of their numbers; names say
no order.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from engram.core.errors import InputError

Series: TypeAlias = Mapping[str, Sequence[tuple[int, float]]]
"""Values by step, for each name under which they were logged."""

PATTERNS: Final = (
    r"(?:.* - )?accuracy/task[ _](?P<task>\d+)(?:[ _].*)?",
    r"Top1_Acc_Exp/eval_phase/.*Exp(?P<task>\d+)",
    r"RESULT_class_acc_(?P<task>\d+)",
    r".*acc(?:uracy)?[/_ .-]*task[/_ .-]*(?P<task>\w+)",
    r".*task[/_ .-]*(?P<task>\w+?)[/_ .-]*acc(?:uracy)?",
    r"(?:.*/)?(?:test|eval|val)[/_ .-]*(?P<task>\w+?)[/_ .-]*acc(?:uracy)?",
)
"""How tools name the accuracy of a task, engram's trackers first; the first that any name matches is used."""


class Row(NamedTuple):
    """The accuracy of one task at one evaluation."""

    step: int
    learning: int | str
    task: int | str
    accuracy: float


class Hints(NamedTuple):
    """What logs of names and numbers do not say: see `read_log`."""

    pattern: str | None = None
    ends: Sequence[int] | None = None
    order: Sequence[str] | None = None


def rows_of_series(series: Series, path: Path, hints: Hints) -> list[Row]:
    """Rows from values by name and step."""
    by_task = _matching(series, path, hints.pattern)
    steps = sorted({step for values in by_task.values() for step, _ in values})
    learning = _learned(by_task, steps, path, hints)
    return sorted(
        (
            Row(step, learning[step], task, value)
            for task, values in by_task.items()
            for step, value in values
        ),
        key=lambda row: row.step,
    )


def _matching(
    series: Series, path: Path, pattern: str | None
) -> dict[int | str, Sequence[tuple[int, float]]]:
    """The series that are accuracies of tasks, by task."""
    try:
        patterns = [re.compile(text, re.IGNORECASE) for text in ([pattern] if pattern else PATTERNS)]
    except re.error as error:
        raise InputError(f"--pattern must be a valid regular expression, got {pattern!r}: {error}") from error
    if pattern and "task" not in patterns[0].groupindex:
        raise InputError(rf"--pattern needs a group for the task, such as acc/(?P<task>\d+), got {pattern!r}")
    for expression in patterns:
        matches = {name: match for name in series if (match := expression.fullmatch(name))}
        by_task: dict[int | str, Sequence[tuple[int, float]]] = {}
        for name, match in matches.items():
            task = _task(match["task"])
            if task in by_task:
                raise InputError(f"{path}: several names are the accuracy of task {task!r}: use --pattern")
            by_task[task] = series[name]
        if by_task:
            return by_task
    shown = ", ".join(sorted(series)[:8])
    raise InputError(f"{path} has no accuracy per task among {shown or 'nothing'}: name them with --pattern")


def _task(text: str) -> int | str:
    """The number or the name of a task."""
    return int(text) if text.isdecimal() else text


def _learned(
    by_task: Mapping[int | str, Sequence[tuple[int, float]]], steps: Sequence[int], path: Path, hints: Hints
) -> dict[int, int | str]:
    """The task being learned at each step."""
    first = {task: min(step for step, _ in values) for task, values in by_task.items() if values}
    order, ends = _in_order(first, path, hints), hints.ends
    if ends is not None:
        if len(ends) != len(order) or list(ends) != sorted(set(ends)):
            raise InputError(f"--ends needs {len(order)} rising steps, one per task, got {list(ends)}")
        return {step: order[min(bisect_left(ends, step), len(order) - 1)] for step in steps}
    if len(set(first.values())) == len(order):
        return {step: [task for task in order if first[task] <= step][-1] for step in steps}
    if len(steps) == len(order):
        # All tasks are evaluated after each of them.
        return dict(zip(steps, order, strict=True))
    raise InputError(
        f"{path} does not say which task is being learned: give the last step of each with --ends"
    )


def _in_order(first: Mapping[int | str, int], path: Path, hints: Hints) -> list[int | str]:
    """The tasks in the order in which they were learned.

    Args:
        first: The step at which each was evaluated for the first time.
        path: The log, for messages.
        hints: The order, and the last steps, where they are given.

    Raises:
        InputError: The order that is given is not one of these tasks, or contradicts the log; or none is
            given, and names that were evaluated from the same step on say none.
    """
    if hints.order is not None:
        order = [_task(name) for name in hints.order]
        listed = ", ".join(map(str, first))
        if len(order) != len(first) or set(order) != set(first):
            given = ", ".join(hints.order)
            raise InputError(f"--order must name every task of {path} once ({listed}), got {given}")
        late = next((pair for pair in pairwise(order) if first[pair[0]] > first[pair[1]]), None)
        if late is not None and hints.ends is None:
            raise InputError(
                f"--order names {late[0]} before {late[1]}, which is evaluated earlier in {path}: correct "
                "it, or give the last step of each task with --ends"
            )
        return order
    order = sorted(first, key=lambda task: (first[task], isinstance(task, str), task))
    for step in sorted(set(first.values())):
        together = [task for task in first if first[task] == step]
        if len(together) > 1 and any(isinstance(task, str) for task in together):
            raise InputError(
                f"{path} does not say in which order {', '.join(map(str, together))} were learned: they are "
                f"evaluated from step {step} on; give the order of all tasks with --order TASK,TASK,..."
            )
    return order
