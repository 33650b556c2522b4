"""`engram reproduce --power`: which differences can be noticed in a table, and how many runs that takes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from engram.cli.output import print_json, stderr
from engram.cli.tables import Column, print_table
from engram.core.words import number

if TYPE_CHECKING:
    from engram.papers.power import Power

HEADINGS = ("published", "runs", "detectable", "planned", "detectable", "in 80 %", "2 points", "shown")


def print_power(
    name: str, out: Path, *, follow: str | None, cells: str | None, seeds: int | None, json: bool
) -> None:
    """Print what can be noticed in each cell of a table."""
    from engram.papers.power import power

    rows = power(name, out, follow=follow, cells=cells, seeds=seeds)
    if json:
        print_json({"name": name, "follow": follow, "cells": [row.as_json() for row in rows]})
        return
    columns = [Column("cell", below=True), *(Column(title, right=True) for title in HEADINGS)]
    print_table(columns, [_cells(row) for row in rows])
    stderr.print(
        "detectable: the smallest difference of means that is called differs, with the runs so far (recorded "
        f"or in {out}) and with the planned runs (--seeds); in 80 %: the true difference that is then "
        "noticed with a probability of 80 %"
    )
    stderr.print(
        "2 points: the number of runs that makes 2 points detectable (.02 where numbers are fractions); "
        "shown: the number of runs that can show agreement within 1 point (.01), if there is no difference "
        "at all; never: the published mean itself is too uncertain, or its spread is not published; –: no "
        "run and no published spread says how much runs differ"
    )


def _cells(row: Power) -> tuple[str, ...]:
    digits = 3 if row.cell.paper == "004" else 2
    return (
        row.cell.name,
        number(row.cell.mean, row.cell.spread, digits),
        str(row.runs),
        _known(row.now, digits),
        str(row.planned),
        _known(row.then, digits),
        _known(row.likely, digits),
        "–" if math.isnan(row.sd) else _runs(row.for_target),
        _runs(row.to_reproduce),
    )


def _known(value: float, digits: int) -> str:
    return number(None if value != value else value, None, digits)


def _runs(count: int | None) -> str:
    return "never" if count is None else str(count)
