"""A comparison that is looked at more than once: levels for each look that together keep the overall one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from engram.core.errors import InputError
from engram.metrics.paired import LEVEL


def spent(share: float) -> float:
    """The part of the level that may be spent once this share of the seeds is there.

    2 - 2 Φ(z / √share) with z = Φ⁻¹(1 - `LEVEL` / 2): next to nothing early, all of it at the end.

    Source: Lan and DeMets (1983), the spending function that resembles the boundaries of O'Brien and Fleming.

    Example:
        >>> round(spent(0.5), 4), round(spent(1.0), 4)
        (0.0056, 0.05)
    """
    from scipy.special import ndtr, ndtri

    return float(2 * ndtr(-ndtri(1 - LEVEL / 2) / math.sqrt(share)))


def level_of_look(looks: Sequence[int], seeds: int) -> float:
    """The level of one look of a plan, such that all of them together have at most `LEVEL`.

    It is what the spending function allows by now minus what it allowed at the look before. The probability
    of a false finding at any look is at most the sum of these levels, which is `LEVEL`, for any test and any
    dependence between looks. The numbers of seeds must be fixed before the first look.

    Args:
        looks: The numbers of seeds at which the comparison is looked at, ascending.
        seeds: The number of seeds now: one of `looks`.

    Raises:
        InputError: The plan has fewer than two looks or is not ascending, or `seeds` is not part of it.

    Example:
        >>> round(level_of_look([6, 12], 6), 4), round(level_of_look([6, 12], 12), 4)
        (0.0056, 0.0444)
    """
    check_looks(looks)
    if seeds not in looks:
        raise InputError(
            f"the plan is to look with {_listed(looks)} seeds, got {seeds} shared by all methods: run the "
            "seeds that are missing or leave out those that are too many"
        )
    place = list(looks).index(seeds)
    before = spent(looks[place - 1] / looks[-1]) if place else 0.0
    return spent(seeds / looks[-1]) - before


def check_looks(looks: Sequence[int]) -> None:
    """Raise unless a plan has at least two looks, with more seeds at each.

    Example:
        >>> check_looks([12, 6])
        Traceback (most recent call last):
        engram.core.errors.InputError: a plan must name at least two ascending numbers of seeds, ...
    """
    ascending = all(first < second for first, second in pairwise(looks))
    if len(looks) < 2 or looks[0] < 1 or not ascending:
        raise InputError(
            "a plan must name at least two ascending numbers of seeds, such as 6,12, "
            f"got {','.join(map(str, looks)) or 'none'}"
        )


def _listed(looks: Sequence[int]) -> str:
    return f"{', '.join(map(str, looks[:-1]))} and {looks[-1]}"
