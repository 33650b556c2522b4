"""Whether a published number was reproduced: a test of means, and equivalence beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from engram.core.jsons import JsonObject
from engram.papers.published import Cell

Verdict = Literal["reproduced", "consistent", "differs", "open", "not compared"]

LEVEL = 0.01
"""The level of the test of means: so often is a number called different although both means agree."""
EQUIVALENCE_LEVEL = 0.05
"""The level of each of the two one-sided tests of equivalence: a 90 % interval is inside the margin."""
FEW_RUNS = 5
"""With fewer runs of ours their SD is too uncertain: Welch's test would call 2 to 4 % different, not 1 %."""

MEANINGS: Mapping[str, str] = {
    "reproduced": "shown to be within the margin of the published number: the 90 % interval of the "
    "difference lies within 1 point (.01 where numbers are fractions), and no difference was found. Numbers "
    "that are computed or counted, not run, are reproduced if they agree to the last printed digit.",
    "consistent": "no difference from the published number was found, and it was not shown to be within the "
    "margin either. Differences below the one in the column 'detectable' would not have been noticed. It is "
    "the best verdict for one run, and for papers that give no spread or no number of runs.",
    "differs": "a difference from the published number was found: Welch's test of the two means, from means, "
    "spreads and numbers of runs, has p < .01. Without any spread, published or ours, no test is possible, "
    "and a difference of more than the margin differs.",
    "open": "nothing was run.",
    "not compared": "the runs are the paper's set-up scaled down, so that no agreement is expected.",
}
"""The meaning of each verdict, as `engram explain` prints it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A mean of several runs, published or ours.

    Attributes:
        mean: The mean.
        sd: The sample standard deviation of a run; NaN if it is not known.
        runs: The number of runs.
    """

    mean: float
    sd: float
    runs: int

    @property
    def variance(self) -> float:
        """The squared standard error of the mean."""
        return self.sd**2 / self.runs


@dataclass(frozen=True, slots=True)
class Compared:
    """A published number and our reproduction of it.

    Attributes:
        cell: The published number.
        values: Our values, one per run.
        mean: Their mean; NaN if there are none.
        spread: Their spread, of the same kind as the published one; NaN for a single run.
        verdict: See `MEANINGS`.
        detectable: The smallest difference of the two means that would have been called `differs`; NaN if
            nothing was compared.
    """

    cell: Cell
    values: tuple[float, ...]
    mean: float
    spread: float
    verdict: Verdict
    detectable: float = math.nan

    @property
    def difference(self) -> float:
        """Our mean minus the published one."""
        return self.mean - self.cell.mean

    def as_json(self) -> JsonObject:
        """The comparison as it is recorded."""
        return {
            "cell": self.cell.name,
            "published": {
                "mean": self.cell.mean,
                "spread": self.cell.spread,
                "kind": self.cell.spread_kind,
                "runs": self.cell.n_runs,
            },
            "ours": {"mean": self.mean, "spread": self.spread, "values": list(self.values)},
            "difference": self.difference,
            "detectable": self.detectable,
            "verdict": self.verdict,
        }


def margin(cell: Cell) -> float:
    """The margin of equivalence in the unit in which a number is printed: 1 point, .01 for fractions.

    Example:
        >>> from engram.papers.published import cells
        >>> [margin(cells(paper, table)[0]) for paper, table in (("002", "2"), ("003", "1"), ("004", "3"))]
        [1.0, 0.01, 0.01]
    """
    fraction = cell.paper == "004" or cell.metric.startswith("Spearman")
    return 0.01 if fraction and "percentage" not in cell.metric else 1.0


def compare(cell: Cell, values: Sequence[float], *, comparable: bool = True, exact: bool = False) -> Compared:
    """Compare our runs with a published number.

    A printed number stands for all numbers that are rounded to it, and a verdict holds for all of them.

    Args:
        cell: The published number.
        values: Our values, one per run.
        comparable: Whether the runs used the paper's set-up.
        exact: Whether the number is computed or counted, so that it has no spread.

    Example:
        >>> from engram.papers.published import cells
        >>> sgd = cells("002", "2")[3]
        >>> sgd.method, sgd.mean, sgd.spread
        ('SGD', 97.98, 0.09)
        >>> runs = ([97.9, 98.1, 98.0], [97.9], [97.0, 99.0], [95.1, 95.0], [])
        >>> [compare(sgd, values).verdict for values in runs]
        ['reproduced', 'consistent', 'consistent', 'differs', 'open']
        >>> round(compare(sgd, [97.9, 98.1, 98.0]).detectable, 2)
        0.21
    """
    ours = sample(values)
    spread = _as_published(values, cell)
    if not ours.runs:
        return Compared(cell, tuple(values), math.nan, math.nan, "open")
    if not comparable:
        return Compared(cell, tuple(values), ours.mean, spread, "not compared")
    away = abs(ours.mean - cell.mean)
    if exact:
        # Printed digits are rounded or cut off.
        unit = 10.0 ** -len(repr(cell.mean).partition(".")[2])
        exactly: Verdict = "reproduced" if away < unit else "differs"
        return Compared(cell, tuple(values), ours.mean, spread, exactly, unit)
    reach = detectable(cell, ours.sd, ours.runs)
    # Binary fractions are not exact: 20.9 - 20 is a little more than .9.
    if away > reach + 1e-9:
        verdict: Verdict = "differs"
    else:
        verdict = "reproduced" if _shown_equivalent(cell, ours) else "consistent"
    return Compared(cell, tuple(values), ours.mean, spread, verdict, reach)


def sample(values: Sequence[float]) -> Sample:
    """Our runs as a sample; values that are not finite are left out.

    Example:
        >>> sample([1.0, 2.0, math.nan])
        Sample(mean=1.5, sd=0.7071067811865476, runs=2)
    """
    known = _finite(values)
    if not len(known):
        return Sample(math.nan, math.nan, 0)
    return Sample(float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else math.nan, len(known))


def published_sample(cell: Cell) -> Sample | None:
    """The published runs as a sample; None if the spread or the number of runs is not published.

    The SD is the largest that is printed like this: the spread may have been rounded down, and an interval
    may be 1.96 standard errors, which the papers do not say, instead of Student's t.

    Example:
        >>> from engram.papers.published import cells
        >>> published_sample(cells("002", "2")[0])
        Sample(mean=93.46, sd=2.12..., runs=10)
    """
    runs = re.match(r"\d+", cell.n_runs)
    if cell.spread is None or runs is None or (count := int(runs[0])) < 2:
        return None
    spread = cell.spread + cell.rounding
    factor = 1.0
    if "ddof=0" in cell.spread_kind:
        factor = math.sqrt(count / (count - 1))
    elif "SEM" in cell.spread_kind:
        factor = math.sqrt(count)
    elif "95% CI" in cell.spread_kind:
        factor = math.sqrt(count) / 1.96
    return Sample(cell.mean, spread * factor, count)


def detectable(cell: Cell, sd: float, runs: int) -> float:
    """The smallest difference between our mean and the published one that is called `differs`.

    The quantile of Welch's test times the standard error of the difference, plus the rounding of the printed
    number. With fewer than `FEW_RUNS` runs it is Student's test, with one SD for both, estimated from both; a
    single run has the published SD.

    Args:
        cell: The published number.
        sd: The sample SD of our runs; NaN for a single run.
        runs: The number of our runs.

    Example:
        >>> from engram.papers.published import cells
        >>> ewc = next(cell for cell in cells("002", "2") if cell.method == "EWC")
        >>> [round(detectable(ewc, 0.9, runs), 2) for runs in (2, 3, 10, 100)]
        [2.12, 1.78, 1.14, 0.89]
        >>> round(detectable(ewc, math.nan, 1), 2)
        2.93
    """
    test = _test_of_means(cell, sd, runs)
    if test is None:
        return margin(cell) + cell.rounding
    freedom, error = test
    return _quantile(freedom, LEVEL / 2) * error + cell.rounding


def noticed(cell: Cell, sd: float, runs: int, *, power: float = 0.8) -> float:
    """The true difference that is called `differs` with this probability, by default 80 %.

    A true difference as large as the smallest detectable one is noticed in half of all cases only; this one
    is larger by a quantile of Student's t times the standard error. NaN if there is no spread at all.

    Args:
        cell: The published number.
        sd: The sample SD of our runs; NaN for a single run.
        runs: The number of our runs.
        power: The probability.

    Example:
        >>> from engram.papers.published import cells
        >>> ewc = next(cell for cell in cells("002", "2") if cell.method == "EWC")
        >>> [round(noticed(ewc, 0.9, 10, power=power), 2) for power in (0.5, 0.8, 0.95)]
        [1.14, 1.48, 1.82]
    """
    test = _test_of_means(cell, sd, runs)
    if test is None:
        return math.nan
    freedom, error = test
    return detectable(cell, sd, runs) + _quantile(freedom, 1 - power) * error


def interval_reach(cell: Cell, sd: float, runs: int) -> float:
    """Half the width of the 90 % interval of the difference, as used for equivalence; infinite if unknown.

    Its degrees of freedom are those of the smaller sample, fewer than Welch's, so that a larger SD always
    makes it wider.
    """
    theirs = published_sample(cell)
    if theirs is None or runs < 2:
        return math.inf
    error = _standard_error(theirs, Sample(math.nan, sd, runs))
    return _quantile(min(theirs.runs, runs) - 1, EQUIVALENCE_LEVEL) * error + cell.rounding


def _shown_equivalent(cell: Cell, ours: Sample) -> bool:
    """Whether the difference is shown to be within the margin, and not only because our runs vary much."""
    theirs = published_sample(cell)
    if theirs is None or ours.runs < 2:
        return False
    away = abs(ours.mean - cell.mean)
    # An SD above the published one would hide a difference; it must not turn one into agreement.
    hidden = away > detectable(cell, min(ours.sd, theirs.sd), ours.runs)
    return not hidden and away + interval_reach(cell, ours.sd, ours.runs) <= margin(cell)


def _test_of_means(cell: Cell, sd: float, runs: int) -> tuple[float, float] | None:
    """Degrees of freedom and standard error of the difference of means; None if there is no spread at all."""
    theirs, ours = published_sample(cell), Sample(math.nan, sd, runs)
    if theirs is None:
        # The published number is taken for one run with our spread.
        return (runs - 1, sd * math.sqrt(1 + 1 / runs)) if runs > 1 else None
    if runs < FEW_RUNS:
        return _with_one_sd(theirs, ours)
    return _welch_freedom(theirs, ours), _standard_error(theirs, ours)


def _standard_error(theirs: Sample, ours: Sample) -> float:
    return math.sqrt(theirs.variance + ours.variance)


def _welch_freedom(theirs: Sample, ours: Sample) -> float:
    parts = theirs.variance**2 / (theirs.runs - 1) + ours.variance**2 / (ours.runs - 1)
    return (theirs.variance + ours.variance) ** 2 / parts


def _with_one_sd(theirs: Sample, ours: Sample) -> tuple[int, float]:
    """Degrees of freedom and standard error of the difference if both samples have the same SD."""
    freedom = theirs.runs + ours.runs - 2
    squares = (theirs.runs - 1) * theirs.sd**2 + ((ours.runs - 1) * ours.sd**2 if ours.runs > 1 else 0.0)
    return freedom, math.sqrt(squares / freedom * (1 / theirs.runs + 1 / ours.runs))


def _quantile(freedom: float, tail: float) -> float:
    """The quantile of Student's t that is exceeded with probability `tail`."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - tail))


def _as_published(values: Sequence[float], cell: Cell) -> float:
    """Our spread, of the published kind; NaN for a single run."""
    known = _finite(values)
    if len(known) < 2:
        return math.nan
    sd = float(known.std(ddof=0 if "ddof=0" in cell.spread_kind else 1))
    if "SEM" in cell.spread_kind:
        return sd / math.sqrt(len(known))
    if "95% CI" in cell.spread_kind:
        return _quantile(len(known) - 1, 0.025) * sd / math.sqrt(len(known))
    return sd


def _finite(values: Sequence[float]) -> NDArray[np.float64]:
    known = np.asarray(values, dtype=np.float64)
    return known[np.isfinite(known)]
