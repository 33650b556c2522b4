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
`engram reproduce NAME` wrote: they name every run's experiment by its hash, with seeds, versions and values;
of figures, the curves. A cell is run again, with the same numbers, by

    engram reproduce NAME --cells 'CELL' --seeds RUNS

with the name, the cell and the number of runs as they stand below, and `--follow READING` where the name has
a reading in brackets. Where data sets are absent, the rest of a table is run.

A number is **reproduced** where |ours − published| ≤ 2·√(spread² + published spread²), or ≤ 1 point. Where
it **differs**, a line below its table says what was tried to explain it. Spreads are of the published kind
(000: sample SD; 002: population SD; van de Ven & Tolias: SEM; 003: 95 % intervals, compared as standard
errors). A reading `small` is the paper's set-up cut down, as its note says: its numbers stand beside the
published ones and are **not compared** by verdict; what the paper concludes from them is. Nothing was tuned
to hit a number.

Some figures and tables of the papers are drawings, or list settings, and have no name here: 000 figure 1,
001 figure 1, 002 figures 1 and 2 and tables 1 and 7, 003 figure 2, 004 figure 1 and table 2.
"""


@cache
def everything() -> tuple[Mapping[str, Any], ...]:
    """All records, by name.

    Example:
        >>> sorted({each["scale"] for each in everything()})
        ['full', 'small']
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


def explained(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is known of a record's cells: each text, and the cells that it is about."""
    texts = explanations().get(_title(record), {})
    cells = [cell for piece in record["pieces"] for cell in piece["cells"] if cell["verdict"] != "open"]
    about = {part: [cell["cell"] for cell in cells if part in cell["cell"]] for part in texts}
    return {f"{part}: {texts[part]}": names for part, names in about.items() if names}


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
        if known := explained(record):
            parts += ["What is known of these numbers:", "", *(f"- {text}." for text in known), ""]
    return "\n".join(parts)


def _title(record: Mapping[str, Any]) -> str:
    return f"{record['name']} ({record['follow']})" if record["follow"] else str(record["name"])


def _overview() -> list[str]:
    lines = [
        "| what | cells | reproduced | differ | not compared | open | statements that hold | runs "
        "| hours on one core |",
        "|---" * 9 + "|",
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
            counts.get("not compared", 0),
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
