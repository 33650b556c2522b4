"""Whether a published number was reproduced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engram.core.jsons import JsonObject
from engram.metrics.intervals import over_seeds
from engram.papers.published import Cell

Verdict = Literal["reproduced", "differs", "open", "not compared"]


@dataclass(frozen=True, slots=True)
class Compared:
    """A published number and our reproduction of it.

    Attributes:
        cell: The published number.
        values: Our values, one per run.
        mean: Their mean; NaN if there are none.
        spread: Their spread, of the same kind as the published one; NaN for a single run.
        verdict: `reproduced` if the difference is at most twice the root of the sum of both squared spreads,
            or at most one point; otherwise `differs`. 95 % intervals are compared by their standard errors,
            because with few runs intervals are very wide. `open` if nothing was run, `not compared` if the
            runs were scaled down.
    """

    cell: Cell
    values: tuple[float, ...]
    mean: float
    spread: float
    verdict: Verdict

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
            "verdict": self.verdict,
        }


def point(cell: Cell) -> float:
    """One point in the unit in which a number is printed: 1 for percentages, 0.01 for fractions.

    Example:
        >>> from engram.papers.published import cells
        >>> [point(cells(paper, table)[0]) for paper, table in (("002", "2"), ("003", "1"), ("004", "3"))]
        [1.0, 0.01, 0.01]
    """
    fraction = cell.paper == "004" or cell.metric.startswith("Spearman")
    return 0.01 if fraction and "percentage" not in cell.metric else 1.0


def compare(cell: Cell, values: Sequence[float], *, comparable: bool = True) -> Compared:
    """Compare our runs with a published number.

    Args:
        cell: The published number.
        values: Our values, one per run.
        comparable: Whether the runs used the paper's set-up.

    Example:
        >>> from engram.papers.published import cells
        >>> adam = cells("002", "2")[0]
        >>> [compare(adam, values).verdict for values in ([93.0, 94.0], [80.0, 81.0], [])]
        ['reproduced', 'differs', 'open']
    """
    ours = over_seeds(values, ddof=0 if "ddof=0" in cell.spread_kind else 1)
    spread = ours.sd if ours.n > 1 else math.nan
    if "SEM" in cell.spread_kind and ours.n:
        spread = ours.sd / math.sqrt(ours.n)
    elif "95% CI" in cell.spread_kind:
        spread = (ours.ci95[1] - ours.ci95[0]) / 2
    if not ours.n:
        verdict: Verdict = "open"
    elif not comparable:
        verdict = "not compared"
    else:
        both = math.hypot(_error(spread, ours.n, cell), _error(cell.spread or 0.0, _runs(cell), cell))
        # The printed number is rounded, so that a difference of one point may be slightly larger.
        near = abs(ours.mean - cell.mean) <= max(2 * both, point(cell)) + 1e-9
        verdict = "reproduced" if near else "differs"
    return Compared(cell, tuple(values), ours.mean, spread, verdict)


def _error(spread: float, runs: int, cell: Cell) -> float:
    """A spread as used in verdicts; 0 if there is none."""
    if math.isnan(spread) or runs < 2:
        return 0.0
    if "95% CI" not in cell.spread_kind:
        return spread
    from scipy import stats

    return float(spread / stats.t.ppf(0.975, runs - 1))


def _runs(cell: Cell) -> int:
    """How many runs the paper made; several where it does not say."""
    return int(cell.n_runs) if str(cell.n_runs).isdigit() else 10
