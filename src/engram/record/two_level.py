"""Two levels of samples: how they are written, and what thinning updates or samples may have missed."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final

from engram.core.errors import InputError

SMALL: Final = 200
"""The samples of each task that are asked at every evaluation, unless another number is given."""

FEWEST: Final = 20
"""With fewer, the curve between anchors is hardly more than noise."""


_FEW: Final = 5
"""With fewer evaluations, nothing is said about what lies between them."""


def small_level(samples: str | None) -> int | None:
    """How many samples of each task `two-level[:N]` asks at every evaluation; None for all that are chosen.

    Raises:
        InputError: It is something else.

    Example:
        >>> small_level("two-level"), small_level("two-level:100"), small_level(None)
        (200, 100, None)
        >>> small_level("half")
        Traceback (most recent call last):
        engram.core.errors.InputError: samples must be two-level or two-level:N, such as two-level:200, ...
    """
    if samples is None:
        return None
    match = (
        re.fullmatch(r"two-level(?::([0-9]{1,9}))?", samples.strip()) if isinstance(samples, str) else None
    )
    if match is None:
        raise InputError(f"samples must be two-level or two-level:N, such as two-level:200, got {samples!r}")
    number = int(match[1]) if match[1] else SMALL
    if number < FEWEST:
        raise InputError(
            f"two-level samples need at least {FEWEST} samples at every evaluation, got {number}: give a "
            f"larger number, as in two-level:{SMALL}"
        )
    return number


def canonical(samples: str | None) -> str | None:
    """The same with its number, so that one design is written in one way.

    Example:
        >>> canonical("two-level")
        'two-level:200'
    """
    small = small_level(samples)
    return None if small is None else f"two-level:{small}"


def check_levels(
    samples: str | None, *, subset: int | None, redraw: bool, full_ends: bool, per_epoch: bool
) -> int | None:
    """How many samples of each task are asked at every evaluation, where that fits the other options.

    Args:
        samples: What `samples` says.
        subset: How many samples of each task are chosen; None for all.
        redraw: Whether others are drawn for every evaluation.
        full_ends: Whether task ends are evaluated on all samples as well.
        per_epoch: Whether evaluations are counted within epochs.

    Raises:
        InputError: They contradict each other.

    Example:
        >>> check_levels("two-level", subset=100, redraw=False, full_ends=False, per_epoch=False)
        Traceback (most recent call last):
        engram.core.errors.InputError: two-level samples ask 200 samples of each task at every ...
    """
    small = small_level(samples)
    if small is None:
        return None
    if redraw:
        raise InputError("two-level samples stay the same, and redraw draws new ones: leave one of them out")
    if per_epoch:
        raise InputError(
            "two-level samples need evaluations that are counted over the whole run: leave per_epoch out"
        )
    if full_ends:
        raise InputError(
            "two-level samples are all asked at task ends already: leave full_ends out, and set subset to 0 "
            "(None in Python) for whole test sets"
        )
    if subset is not None and small >= subset:
        raise InputError(
            f"two-level samples ask {small} samples of each task at every evaluation and all at some, and "
            f"subset={subset} has no more: set subset higher, or give a smaller number, as in "
            f"two-level:{FEWEST}"
        )
    return small


def too_few(small: int, largest: int) -> str:
    """That no task has more samples than are asked at every evaluation, and what to do."""
    return (
        f"two-level samples ask {small} samples of each task at every evaluation and more at some, and no "
        f"task has more than {largest}: leave samples out, or give a smaller number, as in two-level:{FEWEST}"
    )


def missed_by_thinning(steps: Sequence[int], totals: Collection[int] = ()) -> str:
    """What evaluating only some updates may have missed; empty where every update was evaluated.

    Two-level samples are recommended where they can be had: not if no evaluation has more samples of a task
    than their small part.

    Args:
        steps: The updates done at each evaluation.
        totals: How many samples of a task were evaluated at each; empty where that is unknown.

    Example:
        >>> missed_by_thinning(range(5))
        ''
        >>> missed_by_thinning(range(0, 40, 4), totals=[72] * 10)
        'only every 4th update was evaluated, so brief dips are missed: ... by up to 37 points'
        >>> missed_by_thinning(range(0, 40, 4), totals=[1000] * 10)
        'only every 4th update ... by up to 37 points; two-level samples (--samples two-level, or ...'
    """
    every = usual_gap(steps)
    if every < 2:
        return ""
    missed = (
        f"only every {ordinal(every)} update was evaluated, so brief dips are missed: in a study (decision "
        "025), every 4th missed min-ACC by up to 12 and WF10 by up to 37 points"
    )
    if totals and max(totals) <= SMALL:
        return missed
    return (
        f'{missed}; two-level samples (--samples two-level, or samples="two-level", for tasks of more than '
        f"{SMALL} samples) evaluate every update for a quarter to a third of the price"
    )


def ordinal(number: int) -> str:
    """A number as a word of order.

    Example:
        >>> [ordinal(number) for number in (2, 3, 4, 11, 21)]
        ['2nd', '3rd', '4th', '11th', '21st']
    """
    last = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else last}"


def usual_gap(steps: Sequence[int]) -> int:
    """The usual number of updates between two evaluations, their median; 1 where there are fewer than five.

    Example:
        >>> usual_gap([0, 4, 8, 9, 13, 17])
        4
    """
    distinct = sorted(set(steps))
    gaps = sorted(later - earlier for earlier, later in pairwise(distinct))
    return gaps[len(gaps) // 2] if len(distinct) >= _FEW else 1
