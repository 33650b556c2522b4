"""`engram reproduce` without a name: every table and figure, what each takes, and how far it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engram.cli.output import print_json, stderr, stdout
from engram.core.collection import without_collection
from engram.core.jsons import JsonMapping

if TYPE_CHECKING:
    from engram.engine.where import Where


def print_all(where: Where, *, seeds: int | None, json: bool) -> None:
    """List all artefacts, with the readings of which something is known below their names."""
    from engram.core.cores import cores
    from engram.papers.progress import progress

    with without_collection():
        entries = progress(where.folder, seeds=seeds, data=where.data)
    if json:
        print_json({"artefacts": entries})
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold", collapse_padding=True, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for heading in ("runs here", "updates", "about"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading, width in (("recorded", len("reproduced,")), ("data (absent)", len("(mini-domainnet)"))):
        table.add_column(heading, overflow="fold", min_width=width)
    for entry in entries:
        table.add_row(*_row(entry))
    stdout.print(table)
    stderr.print(
        f"about: on {cores()} cores of this machine; below a name: its other readings (--follow) of which "
        "something is known; engram reproduce NAME runs what is missing"
    )


def _row(entry: JsonMapping) -> tuple[str, ...]:
    from engram.core.words import duration

    counts = ("–", "–", "–")
    if entry["runs"]:
        runs = f"{entry['done']:,}/{entry['runs']:,}"
        counts = (runs, _large(entry["updates"]), duration(entry["seconds"]))
    datasets = " ".join(f"({name})" if name in entry["absent"] else name for name in entry["data"])
    return (
        entry["name"] if entry["follow"] is None else f" {entry['follow']}",
        *counts,
        _counted(entry["recorded"]) if entry["recorded"] else "–",
        datasets or "–",
    )


def _large(count: int) -> str:
    """A count of updates in few letters, as 23.3 M."""
    for size, unit in ((10**6, " M"), (10**3, " k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def _counted(entry: JsonMapping) -> str:
    counts = [f"{count} {verdict}" for verdict, count in entry["verdicts"].items()]
    if statements := entry["statements"]:
        holding = sum(statement["holds"] for statement in statements)
        counts.append(f"{holding} of {len(statements)} statements hold")
    return ", ".join(counts) or "curves"
