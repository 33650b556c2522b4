"""The parts of the summary of reproductions that are made from the records, so that they never disagree."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engram.core.errors import InputError
from engram.core.jsons import JsonMapping
from engram.papers.recorded import COUNTED, recorded

SETTINGS = ("task", "domain", "class")
VERDICT_MARKS = {"reproduced": "", "consistent": "°", "differs": "†", "open": ""}
"""What is printed behind a number."""


def filled(page: str) -> str:
    """A page with its generated parts written anew.

    A generated part stands between `<!-- NAME KIND -->` and `<!-- end -->`. `counts` is a sentence with the
    verdicts of one or several tables (names joined by +); `cells` is their numbers in a table, one row per
    method and one pair of columns per setting.

    Example:
        >>> print(filled("<!-- 001-table1 counts -->\\n<!-- end -->"))
        <!-- 001-table1 counts -->
        Of 20 cells, 20 are reproduced.
        <!-- end -->
    """
    return re.sub(r"(<!-- (\S+) (\w+) -->\n).*?(<!-- end -->)", _part, page, flags=re.DOTALL)


def _part(match: re.Match[str]) -> str:
    makers = {"counts": _counts, "cells": _cells}
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
    return f"Of {sum(counts.values())} cells, {', '.join(words)}."


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
