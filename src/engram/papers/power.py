"""What a reproduction can notice: the smallest detectable difference, and the runs that smaller ones take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engram.core.errors import InputError
from engram.core.folder import finite
from engram.core.jsons import JsonObject
from engram.papers.catalogue import artefact
from engram.papers.extend import part_of, with_finished
from engram.papers.published import Cell
from engram.papers.recorded import Record, recorded
from engram.papers.reproduce import chosen_pieces, record, scale_of, survey
from engram.papers.values import Piece
from engram.papers.verdict import (
    FEW_RUNS,
    compare,
    detectable,
    interval_reach,
    margin,
    noticed,
    published_sample,
    sample,
)

TARGET = 2.0
"""The difference for which the number of runs is computed, as a multiple of the margin: 2 points."""
MOST_RUNS = 1000
"""Larger numbers of runs are not considered."""


@dataclass(frozen=True, slots=True)
class Power:
    """What can be noticed in a cell.

    Attributes:
        cell: The published number.
        runs: The number of runs so far, recorded or in the folder.
        planned: The number of runs for which the following is computed, at least as many.
        sd: The SD that a run is expected to have: ours, with fewer than 5 runs that of both samples together,
            without any the published one; NaN if nothing is known.
        now: The smallest difference that is called `differs` with the runs so far; NaN without any.
        then: The same with the planned number of runs.
        likely: The true difference that is noticed with a probability of 80 % with the planned runs.
        for_target: The smallest number of runs with which a difference of 2 points is called `differs`; None
            if no number is enough, because the published mean itself is too uncertain, or if `sd` is NaN.
        to_reproduce: The smallest number of runs that can show equivalence, if there is no difference at all;
            None if no number is enough.
    """

    cell: Cell
    runs: int
    planned: int
    sd: float
    now: float
    then: float
    likely: float
    for_target: int | None
    to_reproduce: int | None

    def as_json(self) -> JsonObject:
        """The same as JSON; None for what is unknown."""
        whole: JsonObject = finite(
            {
                "cell": self.cell.name,
                "published": {"mean": self.cell.mean, "spread": self.cell.spread, "runs": self.cell.n_runs},
                "margin": margin(self.cell),
                "runs": self.runs,
                "planned": self.planned,
                "sd": self.sd,
                "detectable": self.now,
                "detectable_then": self.then,
                "noticed_in_80_percent": self.likely,
                "target": TARGET * margin(self.cell),
                "runs_for_target": self.for_target,
                "runs_to_reproduce": self.to_reproduce,
            }
        )
        return whole


def power(
    name: str,
    out: Path,
    *,
    follow: str | None = None,
    cells: str | None = None,
    seeds: int | None = None,
) -> list[Power]:
    """What can be noticed in each cell of a table, with its recorded runs and those in a folder.

    Args:
        name: The table.
        out: The folder of runs.
        follow: The reading of the paper.
        cells: Only pieces whose names match; see `chosen_pieces`.
        seeds: The planned number of runs of each experiment (default: as many as the paper made).

    Raises:
        InputError: There is nothing to compare: it is a figure, or the reading is scaled down.

    Example:
        >>> [ewc] = power("002-table2", Path("nowhere"), cells="task/EWC")
        >>> ewc.runs, round(ewc.now, 2), ewc.for_target, ewc.to_reproduce
        (10, 1.21, 3, 6)
    """
    wanted = artefact(name)
    pieces = chosen_pieces(wanted, follow=follow, cells=cells)
    if not any(piece.cells for piece in pieces):
        raise InputError(f"{name} has no published numbers to compare: --power needs a table")
    if scale_of(follow) != "full":
        raise InputError(f"the reading {follow} is scaled down and never compared: omit --power")
    written = _values(name, pieces, out, follow=follow, cells=cells, seeds=seeds)
    return list(_powers(pieces, written, seeds))


def power_of(cell: Cell, values: Sequence[float], *, planned: int) -> Power:
    """What can be noticed in one cell.

    Args:
        cell: The published number.
        values: Our values so far.
        planned: The planned number of runs; at least as many as there are values are taken.

    Example:
        >>> from engram.papers.published import cells
        >>> adam = cells("002", "2")[0]
        >>> plan = power_of(adam, [], planned=10)
        >>> round(plan.then, 2), round(plan.likely, 2), plan.for_target
        (2.74, 3.56, None)
    """
    runs = sample(values).runs
    planned = max(planned, runs)
    sd = expected_sd(cell, values)
    return Power(
        cell,
        runs,
        planned,
        sd,
        compare(cell, values).detectable,
        detectable(cell, sd, planned),
        noticed(cell, sd, planned),
        _fewest(cell, sd, lambda count: detectable(cell, sd, count) <= TARGET * margin(cell)),
        _fewest(cell, sd, lambda count: interval_reach(cell, sd, count) <= margin(cell)),
    )


def expected_sd(cell: Cell, values: Sequence[float]) -> float:
    """The SD that a run of ours is expected to have; NaN if nothing is known.

    Example:
        >>> from engram.papers.published import cells
        >>> adam = cells("002", "2")[0]
        >>> [round(expected_sd(adam, values), 2) for values in ([], [93.0, 95.0], [93.0, 95.0] * 3)]
        [2.12, 2.06, 1.1]
    """
    theirs, ours = published_sample(cell), sample(values)
    if ours.runs >= FEW_RUNS or theirs is None:
        return ours.sd
    if ours.runs < 2:
        return theirs.sd
    squares = (theirs.runs - 1) * theirs.sd**2 + (ours.runs - 1) * ours.sd**2
    return math.sqrt(squares / (theirs.runs + ours.runs - 2))


def _fewest(cell: Cell, sd: float, enough: Callable[[int], bool]) -> int | None:
    """The smallest number of runs that is enough; None if there is none, or the spread is unknown."""
    if math.isnan(sd):
        return None
    # A single run has a spread only if one is published.
    first = 1 if published_sample(cell) else 2
    return next((count for count in range(first, MOST_RUNS + 1) if enough(count)), None)


def _values(
    name: str,
    pieces: Sequence[Piece],
    out: Path,
    *,
    follow: str | None,
    cells: str | None,
    seeds: int | None,
) -> Record:
    """The record of the pieces, with the runs in a folder added where that is possible."""
    known = [written for written in recorded(name) if written["follow"] == follow]
    if not known:
        return record(artefact(name), survey(pieces, out, seeds=seeds), scale="full", follow=follow)
    if all(piece.per_run for piece in pieces):
        return with_finished(name, out, follow=follow, cells=cells, seeds=seeds)
    return part_of(known[0], pieces)


def _powers(pieces: Sequence[Piece], written: Record, seeds: int | None) -> Iterator[Power]:
    values = {cell["cell"]: cell["ours"]["values"] for part in written["pieces"] for cell in part["cells"]}
    for piece in pieces:
        for cell in piece.cells:
            ours = values.get(cell.name, [])
            if piece.exact:
                exactly = compare(cell, ours, exact=True).detectable
                # Without any chance, the first run tells everything.
                yield Power(cell, len(ours), len(ours), 0.0, exactly, exactly, exactly, 1, 1)
            else:
                yield power_of(cell, ours, planned=piece.seeds if seeds is None else seeds)
