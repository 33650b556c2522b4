"""What several seeds say together: mean, standard deviation, and a 95 % interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engram.core.errors import InputError
from engram.metrics.arrays import Vector


@dataclass(frozen=True, slots=True)
class Summary:
    """A metric over seeds.

    Attributes:
        mean: The mean.
        sd: The standard deviation; NaN where it is undefined.
        ci95: The 95 % Student t interval for the mean; NaN for a single seed.
        n: How many seeds had a value.
        ddof: What is subtracted from n in the variance's divisor: 1 is the sample SD (000), 0 the population
            SD (002).
    """

    mean: float
    sd: float
    ci95: tuple[float, float]
    n: int
    ddof: int = 1


def over_seeds(values: Sequence[float] | Vector, *, ddof: int = 1) -> Summary:
    """Summarise one value a seed.

    Seeds without a value (NaN) are left out, and `n` says how many remain. The interval is the mean
    ± t(0.975, n-1) · s/√n with the sample SD s (divisor n - 1), whatever `ddof` the reported `sd` has.
    One seed has no interval and no sample SD: both are NaN.

    Args:
        values: One value a seed.
        ddof: 1 for the sample SD, 0 for the population SD.

    Raises:
        InputError: `ddof` is neither 0 nor 1.

    Example:
        >>> s = over_seeds([0.8, 0.9, 1.0])
        >>> round(s.mean, 6), round(s.sd, 6), [round(edge, 6) for edge in s.ci95], s.n
        (0.9, 0.1, [0.651586, 1.148414], 3)
        >>> over_seeds([0.8])
        Summary(mean=0.8, sd=nan, ci95=(nan, nan), n=1, ddof=1)
    """
    if ddof not in (0, 1):
        raise InputError(f"ddof is 1 (sample SD) or 0 (population SD); got {ddof}")
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    n = len(known)
    mean = float(known.mean()) if n else np.nan
    sd = float(known.std(ddof=ddof)) if n > ddof else np.nan
    if n < 2:
        return Summary(mean, sd, (np.nan, np.nan), n, ddof)

    from scipy.special import stdtrit

    reach = float(stdtrit(n - 1, 0.975)) * float(known.std(ddof=1)) / n**0.5
    return Summary(mean, sd, (mean - reach, mean + reach), n, ddof)
