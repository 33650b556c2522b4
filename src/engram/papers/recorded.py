"""What was reproduced and is kept with the package, and the page that shows it."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from engram.papers.catalogue import artefacts

HEAD = """# The papers' numbers, published and ours

This page is made by `python -m engram.papers.recorded` from the files in `src/engram/papers/recorded/`, which
`engram reproduce NAME` wrote: they name every run's experiment by its hash, with seeds, versions and values.
The same command runs a cell again and gets the same numbers.

A number is **reproduced** where |ours − published| ≤ 2·√(spread² + published spread²), or ≤ 1 point. Where
it **differs**, a line below its table says what was tried to explain it. Spreads are of the published kind
(000: sample SD; 002: population SD; van de Ven & Tolias: SEM; 003: 95 % intervals, compared as standard
errors). Nothing was tuned to hit a number.
"""


@cache
def everything() -> tuple[Mapping[str, Any], ...]:
    """All records, by name.

    Example:
        >>> all(each["scale"] == "full" for each in everything())
        True
    """
    folder = files("engram.papers") / "recorded"
    if not folder.is_dir():
        return ()
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    return tuple(json.loads((folder / name).read_text("utf-8")) for name in names)


def recorded(name: str) -> list[Mapping[str, Any]]:
    """The records of a table or figure, one a reading."""
    return [each for each in everything() if each["name"] == name]


@cache
def explanations() -> Mapping[str, Mapping[str, str]]:
    """For each table, what is known of the cells that differ."""
    text = (files("engram.papers") / "explained.toml").read_text("utf-8")
    found: Mapping[str, Mapping[str, str]] = tomllib.loads(text)
    return found


def explanation(record: Mapping[str, Any], cell: str) -> str:
    """What was tried to explain that a cell differs: the text under the longest part of its name."""
    known = explanations().get(_title(record), {})
    fitting = [part for part in known if part in cell]
    return known[max(fitting, key=len)] if fitting else ""


def document() -> str:
    """The page as Markdown."""
    parts = [HEAD, "## In short\n", *_overview(), "", *_open(), ""]
    for record in everything():
        parts += [f"## {_title(record)}", "", record["title"] + ".", ""]
        lines = [*record["followed"], *([record["note"]] if record["note"] else [])]
        parts += [f"- {line}" for line in lines] + ([""] if lines else [])
        if any(piece["cells"] for piece in record["pieces"]):
            parts += [*_table(record), ""]
        words = {True: "Holds", False: "Does not hold"}
        if said := record.get("statements"):
            parts += [f"- {words[each['holds']]}: {each['says']} ({each['figures']})." for each in said] + [
                ""
            ]
        differing = [
            f"- {cell['cell']}: {explanation(record, cell['cell'])}"
            for piece in record["pieces"]
            for cell in piece["cells"]
            if cell["verdict"] == "differs"
        ]
        if differing:
            parts += ["What differs, and what was tried to explain it:", "", *differing, ""]
    return "\n".join(parts)


def _title(record: Mapping[str, Any]) -> str:
    return f"{record['name']} ({record['follow']})" if record["follow"] else str(record["name"])


def _overview() -> list[str]:
    lines = [
        "| what | cells | reproduced | differ | open | statements that hold | runs | hours on one core |",
        "|---" * 8 + "|",
    ]
    for record in everything():
        counts = record["verdicts"]
        seconds = {run["id"]: run["seconds"] for piece in record["pieces"] for run in piece["runs"]}
        said = record.get("statements") or []
        row = (
            _title(record),
            sum(counts.values()),
            counts.get("reproduced", 0),
            counts.get("differs", 0),
            counts.get("open", 0),
            f"{sum(each['holds'] for each in said)} of {len(said)}" if said else "–",
            len(seconds),
            f"{sum(seconds.values()) / 3600:.1f}" if seconds else "–",
        )
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return lines


def _open() -> list[str]:
    """The tables and figures of which nothing is recorded."""
    known = {record["name"] for record in everything()}
    names = [name for name in artefacts() if name not in known]
    return ["Defined, and not recorded yet: " + ", ".join(names) + "."] if names else []


def _table(record: Mapping[str, Any]) -> list[str]:
    digits = 3 if record["name"].startswith("004") else 2
    lines = ["| cell | published | ours | runs | difference | verdict |", "|---|---|---|---|---|---|"]
    for piece in record["pieces"]:
        for cell in piece["cells"]:
            theirs, ours = cell["published"], cell["ours"]
            row = (
                cell["cell"],
                _number(theirs["mean"], theirs["spread"], digits),
                _number(ours["mean"], ours["spread"], digits),
                str(len(ours["values"])),
                "–" if cell["difference"] is None else f"{cell['difference']:+.{digits}f}",
                cell["verdict"],
            )
            lines.append("| " + " | ".join(row) + " |")
    return lines


def _number(mean: float | None, spread: float | None, digits: int) -> str:
    if mean is None:
        return "–"
    return f"{mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


if __name__ == "__main__":
    sys.stdout.write(document())
