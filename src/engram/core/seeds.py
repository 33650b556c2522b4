"""One integer seed, spawned into independent streams of randomness."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Seeds:
    """One seed per use of randomness in a run; more draws from one never change another.

    The same run seed gives every method the same initial weights and the same order of data, so that
    comparisons are paired.

    Example:
        >>> Seeds.of(0) == Seeds.of(0), Seeds.of(0).order == Seeds.of(1).order
        (True, False)
    """

    initialisation: int
    order: int
    method: int
    evaluation: int
    noise: int
    augmentation: int
    rereading: int

    @classmethod
    def of(cls, seed: int) -> "Seeds":
        """Spawn a run's seed."""
        children = np.random.SeedSequence(seed).spawn(7)
        return cls(*(int(child.generate_state(1, np.uint64)[0] >> 1) for child in children))
