"""The parts of the summary of reproductions that are made from the records, so that they never disagree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from engram.core.errors import InputError
from engram.core.jsons import JsonMapping
from engram.papers.catalogue import artefact
from engram.papers.published import Cell
from engram.papers.recorded import COUNTED, recorded
from engram.papers.verdict import Verdict, compare, margin

SETTINGS = ("task", "domain", "class")
VERDICT_MARKS = {"reproduced": "", "consistent": "°", "differs": "†", "open": ""}
"""What is printed behind a number."""


def filled(page: str) -> str:
    """A page with its generated parts written anew.

    A generated part stands between `<!-- NAME KIND -->` and `<!-- end -->`, where NAME is a table, or several
    joined by +. `counts` is the number of cells with each verdict, and what is detectable in them; `cells` is
    their numbers, one row per method and one pair of columns per setting; `swaps` says how often runs of one
    method are called a reproduction of another; `statements` is what the paper says in words.

    Example:
        >>> print(filled("<!-- 001-table1 counts -->\\n<!-- end -->"))
        <!-- 001-table1 counts -->
        Of 20 cells, 20 are reproduced.
        <!-- end -->
    """
    return re.sub(r"(<!-- (\S+) (\w+) -->\n).*?(<!-- end -->)", _part, page, flags=re.DOTALL)


def _part(match: re.Match[str]) -> str:
    makers = {"counts": _counts, "cells": _cells, "swaps": _swaps, "statements": _statements}
    if match[3] not in makers:
        raise InputError(f"a generated part must be one of {', '.join(makers)}, got {match[3]!r}")
    return f"{match[1]}{makers[match[3]](match[2].split('+'))}\n{match[4]}"


def _record(name: str) -> JsonMapping:
    written = [record for record in recorded(name) if record["follow"] is None]
    if not written:
        raise InputError(f"a generated part must name a recorded table, got {name!r}")
    return written[0]


def _counts(names: Sequence[str]) -> str:
    """The number of cells with each verdict; those that are open are not counted."""
    counts = {
        verdict: sum(_record(name)["verdicts"].get(verdict, 0) for name in names)
        for verdict in COUNTED
        if verdict != "open"
    }
    words = [
        f"{count} {'differs' if count == 1 else 'differ'}"
        if verdict == "differs"
        else f"{count} {'is' if count == 1 else 'are'} {verdict}"
        for verdict, count in counts.items()
        if count
    ]
    sentence = f"Of {sum(counts.values())} cells, {', '.join(words)}."
    reach = sorted(
        cell["detectable"]
        for name in names
        for cell in _judged_cells(name)
        if cell["published"]["spread"] is not None
    )
    if reach:
        sentence += (
            f" Detectable are differences of {median(reach):.1f} points or more in half of the cells, "
        )
        sentence += f"of {reach[-1]:.1f} or more in all."
    return sentence


def _judged_cells(name: str) -> list[JsonMapping]:
    """The cells of a table that have runs."""
    return [cell for part in _record(name)["pieces"] for cell in part["cells"] if cell["ours"]["values"]]


def _swaps(names: Sequence[str]) -> str:
    """How often the runs of one method are called a reproduction of another one's number."""
    rows = [row for name in names for row in swapped(name) if row.cell is not row.other]
    settings = list(dict.fromkeys(row.cell.scenario for row in rows))
    shares = []
    for setting in settings:
        verdicts = [row.verdict for row in rows if row.cell.scenario == setting]
        share = 100 * verdicts.count("reproduced") / len(verdicts)
        shares.append(f"{share:.0f} % ({setting})")
    far = sum(row.verdict == "reproduced" and row.apart > margin(row.cell) for row in rows)
    return (
        "Where the recorded runs of one method are compared with the published number of another, they are "
        f"called reproduced in {', '.join(shares)} of all pairs, {far} of them between methods whose "
        "published numbers are more than 1 point apart."
    )


@dataclass(frozen=True, slots=True)
class Swap:
    """The number of one method, compared with the runs of another."""

    cell: Cell
    other: Cell
    verdict: Verdict

    @property
    def apart(self) -> float:
        """How far apart the two published numbers are."""
        return abs(self.cell.mean - self.other.mean)


def swapped(name: str) -> list[Swap]:
    """Every published number of a table compared with the recorded runs of every method in its setting.

    Example:
        >>> rows = swapped("002-table2")
        >>> [row.verdict for row in rows if (row.cell.method, row.other.method) == ("EWC", "Adam")]
        ['differs', 'differs', 'reproduced']
    """
    values = {cell["cell"]: cell["ours"]["values"] for cell in _judged_cells(name)}
    printed = [cell for piece in artefact(name).pieces for cell in piece.cells if cell.name in values]
    return [
        Swap(cell, other, compare(cell, values[other.name]).verdict)
        for cell in printed
        for other in printed
        if _place(cell) == _place(other)
    ]


def _place(cell: Cell) -> str:
    """What the numbers of all methods have in common that belong together."""
    return cell.name.replace(f"/{cell.method}/", "/")


def _statements(names: Sequence[str]) -> str:
    """What the paper says in words, and whether it holds."""
    statements = [statement for name in names for statement in _record(name)["statements"]]
    return "\n".join(
        f"- {'Holds' if says['holds'] else 'Does not hold'}: {says['says']} ({says['figures']})."
        for says in statements
    )


def _cells(names: Sequence[str]) -> str:
    """One row per method, with published and our numbers in each setting."""
    rows: dict[str, dict[str, JsonMapping]] = {}
    for name in names:
        for part in _record(name)["pieces"]:
            for cell in part["cells"]:
                _, setting, method, *_ = cell["cell"].split("/")
                rows.setdefault(method, {})[setting] = cell
    settings = [setting for setting in SETTINGS if any(setting in row for row in rows.values())]
    heads = ["method", *(head for setting in settings for head in (f"{setting}: published", "ours (runs)"))]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for method, row in rows.items():
        numbers = [text for setting in settings for text in _pair(row[setting])]
        lines.append(f"| {' | '.join([method, *numbers])} |")
    return "\n".join(lines)


def _pair(cell: JsonMapping) -> tuple[str, str]:
    theirs, ours = cell["published"], cell["ours"]
    runs = f" ({len(ours['values'])})" if ours["values"] else ""
    return _number(theirs), _number(ours) + VERDICT_MARKS[cell["verdict"]] + runs


def _number(written: JsonMapping) -> str:
    if written["mean"] is None:
        return "–"
    spread = "" if written["spread"] is None else f" ± {written['spread']:.2f}"
    return f"{written['mean']:.2f}{spread}"
