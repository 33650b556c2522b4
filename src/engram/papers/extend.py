"""Records that grow: recorded runs count as done, and runs with further seeds are added to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from engram.core.errors import InputError
from engram.core.folder import finite
from engram.core.jsons import JsonMapping, JsonObject
from engram.papers.catalogue import artefact
from engram.papers.plans import Plan
from engram.papers.recorded import Record, recorded
from engram.papers.reproduce import chosen_pieces, record, survey
from engram.papers.values import Artefact, Piece, Values
from engram.papers.verdict import Verdict, compare


def record_of(name: str, *, follow: str | None = None) -> Record:
    """The record of a table or figure under one reading of the paper.

    Args:
        name: The table or figure.
        follow: The reading of the paper.

    Example:
        >>> record_of("002-table2")["scale"]
        'full'
        >>> record_of("002-table5")
        Traceback (most recent call last):
        engram.core.errors.InputError: 002-table5 has no record: engram reproduce lists what is recorded
    """
    artefact(name)
    for written in recorded(name):
        if written["follow"] == follow:
            return written
    reading = "" if follow is None else f" that follows {follow}"
    raise InputError(f"{name} has no record{reading}: engram reproduce lists what is recorded")


def remaining(pieces: Sequence[Piece], written: Record) -> list[Piece]:
    """The same pieces, which ask for no run that is recorded.

    Args:
        pieces: The pieces of a table.
        written: Its record.

    Raises:
        InputError: A value of a piece depends on several runs, so that it cannot be taken from a record.

    Example:
        >>> from engram.papers.catalogue import artefact
        >>> [piece] = remaining(artefact("002-table2").pieces[:1], record_of("002-table2"))
        >>> [planned.seed for planned in piece.first_runs(12)]
        [10, 11]
    """
    for piece in pieces:
        if not piece.per_run:
            raise InputError(
                f"{written['name']} cannot be extended: the numbers of {piece.name!r} are not those of "
                "single runs; omit --extend to run all of it"
            )
    seeds = {part["piece"]: _seeds(part) for part in written["pieces"]}
    return [_without(piece, seeds.get(piece.name, frozenset())) for piece in pieces]


def extended(wanted: Artefact, written: Record, further: Record) -> JsonObject:
    """A record with the runs of another one added: values in the order of their seeds, judged together.

    Args:
        wanted: The table.
        written: Its record.
        further: The record of runs with other seeds; see `remaining`.
    """
    added = {part["piece"]: part for part in further["pieces"]}
    pieces = [
        _joined(part, added[part["piece"]]) if part["piece"] in added else part for part in written["pieces"]
    ]
    pieces += [part for name, part in added.items() if name not in {part["piece"] for part in pieces}]
    versions = [*written["versions"]]
    # Without a run, the versions of a record are those of the machine that wrote it.
    if any(part["runs"] for part in further["pieces"]):
        versions += [version for version in further["versions"] if version not in versions]
    whole = judged({**further, "pieces": pieces, "versions": versions})
    if wanted.statements is not None:
        returned = _returned(chosen_pieces(wanted, follow=written["follow"]), pieces)
        whole["statements"] = finite([asdict(statement) for statement in wanted.statements(returned)])
    return whole


def with_finished(
    name: str,
    out: Path,
    *,
    follow: str | None = None,
    cells: str | None = None,
    seeds: int | None = None,
) -> JsonObject:
    """The record of a table, extended by the runs that are finished in a folder.

    Args:
        name: The table.
        out: The folder of runs.
        follow: The reading of the paper.
        cells: Only pieces whose names match; see `chosen_pieces`.
        seeds: The number of runs to look for (default: as many as the paper made).
    """
    wanted = artefact(name)
    pieces = chosen_pieces(wanted, follow=follow, cells=cells)
    written = part_of(record_of(name, follow=follow), pieces)
    outcomes = survey(remaining(pieces, written), out, seeds=seeds)
    return extended(wanted, written, record(wanted, outcomes, scale=written["scale"], follow=follow))


def part_of(written: Record, pieces: Sequence[Piece]) -> JsonObject:
    """A record with some of its pieces only.

    Example:
        >>> whole = record_of("002-table2")
        >>> part_of(whole, chosen_pieces(artefact("002-table2"), cells="task/EWC"))["verdicts"]
        {'consistent': 1}
    """
    names = {piece.name for piece in pieces}
    return judged({**written, "pieces": [part for part in written["pieces"] if part["piece"] in names]})


def judged(written: Record) -> JsonObject:
    """A record with the verdicts that follow from its values.

    Example:
        >>> judged(record_of("002-table2")) == record_of("002-table2")
        True
    """
    pieces = {
        piece.name: piece for piece in chosen_pieces(artefact(written["name"]), follow=written["follow"])
    }
    parts, verdicts = [], list[Verdict]()
    for part in written["pieces"]:
        piece = pieces[part["piece"]]
        by_name = {cell.name: cell for cell in piece.cells}
        comparisons = [
            compare(
                by_name[cell["cell"]],
                [math.nan if value is None else value for value in cell["ours"]["values"]],
                comparable=written["scale"] == "full",
                exact=piece.exact,
            )
            for cell in part["cells"]
        ]
        parts.append({**part, "cells": [comparison.as_json() for comparison in comparisons]})
        verdicts += [comparison.verdict for comparison in comparisons]
    counts = {name: verdicts.count(name) for name in sorted(set(verdicts))}
    whole: JsonObject = finite({**written, "verdicts": counts, "pieces": parts})
    return whole


def _seeds(part: JsonMapping) -> frozenset[int]:
    """The seeds of the recorded runs of a piece."""
    return frozenset(run["seed"] for run in part["runs"])


def _without(piece: Piece, known: frozenset[int]) -> Piece:
    def plan(seeds: Sequence[int]) -> Plan[Values]:
        return piece.plan([seed for seed in seeds if seed not in known])

    return replace(piece, plan=plan)


def _joined(part: JsonMapping, further: JsonMapping) -> JsonObject:
    """A recorded piece with further runs and their values, in the order of the seeds."""
    runs = [*part["runs"], *further["runs"]]
    order = sorted(range(len(runs)), key=lambda place: runs[place]["seed"])
    failures = {failure["id"]: failure for failure in [*part["failures"], *further["failures"]]}
    for run in runs:
        failures.pop(run["id"], None)
    cells = []
    for cell, other in zip(part["cells"], further["cells"], strict=True):
        values = [*cell["ours"]["values"], *other["ours"]["values"]]
        if len(values) != len(runs):
            raise InputError(
                f"a record must have one value per run, got {len(values)} values for {len(runs)} runs: "
                f"{cell['cell']}"
            )
        cells.append({**cell, "ours": {"values": [values[place] for place in order]}})
    return {
        **further,
        "seeds": sorted({run["seed"] for run in runs} | set(further["seeds"])),
        "runs": [runs[place] for place in order],
        "failures": list(failures.values()),
        "cells": cells,
    }


def _returned(pieces: Sequence[Piece], parts: Sequence[JsonMapping]) -> dict[str, Values]:
    """The values of recorded pieces, as their plans return them."""
    values = {
        part["piece"]: {cell["cell"]: cell["ours"]["values"] for cell in part["cells"]} for part in parts
    }
    return {
        piece.name: {cell: values[piece.name][cell.name] for cell in piece.cells}
        for piece in pieces
        if piece.name in values
    }
