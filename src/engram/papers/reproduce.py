"""Running tables and figures, and seeing how far they are done."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engram.core.errors import InputError, unknown_name
from engram.core.folder import RESULT, finite, versions
from engram.executors import Executor
from engram.papers.needs import absent
from engram.papers.pages import Page
from engram.papers.plans import quick, together
from engram.papers.values import Artefact, Piece, Scale, Statement
from engram.papers.verdict import Compared, compare
from engram.protocols.drive import Plan, drive
from engram.record.experiment import Experiment
from engram.record.run import Run


@dataclass(frozen=True, slots=True)
class Reproduced:
    """What became of a piece.

    Attributes:
        piece: What was asked for.
        seeds: With which seeds.
        results: Its runs.
        failures: Those that failed.
        missing: How many of the runs that it asked for are not there; then it is not finished.
        compared: The published numbers beside ours.
        returned: What its plan returned; None where runs are missing, or where it could not go on.
        stopped: Why it could not begin or go on, in one line; nothing where it could.
    """

    piece: Piece
    seeds: tuple[int, ...]
    results: tuple[Run, ...]
    failures: tuple[Run, ...]
    missing: int
    compared: tuple[Compared, ...]
    returned: Any = field(repr=False)
    stopped: str = ""

    def as_json(self) -> dict[str, Any]:
        """What is recorded of it."""
        return {
            "piece": self.piece.name,
            "seeds": list(self.seeds),
            "runs": [
                {
                    "id": name,
                    "seed": run.seed,
                    "updates": run.updates,
                    "seconds": run.seconds.total,
                }
                # A plan may ask for a run again.
                for name, run in {run.id: run for run in self.results}.items()
            ],
            "failures": [
                {"id": run.id, "kind": run.failure.kind, "reason": run.failure.reason}
                for run in self.failures
                if run.failure is not None
            ],
            "missing": self.missing,
            "stopped": self.stopped,
            "cells": [each.as_json() for each in self.compared],
        }


class MissingRuns(Exception):
    """A plan asked for runs that are not there."""

    def __init__(self, found: Sequence[Run], missing: int) -> None:
        super().__init__(f"{missing} runs are missing")
        self.found, self.missing = found, missing


class Stored:
    """The executor that runs nothing: it reads what is there, and stops a plan that asks for more.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> Stored(Path("nowhere"))([experiment("split-digits", "er")])
        Traceback (most recent call last):
        engram.papers.reproduce.MissingRuns: 1 runs are missing
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    def __call__(self, experiments: Sequence[Experiment]) -> list[Run]:
        """The runs of all of them."""
        runs = [Run.find(experiment, self.out) for experiment in experiments]
        ended = [run for run in runs if _ended(run)]
        if len(ended) < len(runs):
            raise MissingRuns(ended, len(runs) - len(ended))
        return ended


def chosen_pieces(artefact: Artefact, *, follow: str | None = None, cells: str | None = None) -> list[Piece]:
    """The pieces of a table or figure under one reading of the paper, those whose names match.

    Args:
        artefact: The table or figure.
        follow: Another reading than the usual one.
        cells: A part of a piece's name, the name of one of its cells, or a regular expression.

    Example:
        >>> from engram.papers.catalogue import artefact
        >>> [piece.name for piece in chosen_pieces(artefact("002-table2"), cells="task/(EWC|MAS)")]
        ['Split MNIST/task/EWC/AvgAcc', 'Split MNIST/task/MAS/AvgAcc']
    """
    if follow is None:
        pieces = artefact.pieces
    elif follow in artefact.others:
        pieces = artefact.others[follow]
    elif artefact.others:
        raise unknown_name(f"reading of {artefact.name}", follow, artefact.others)
    else:
        raise InputError(f"{artefact.name} has one reading only: leave --follow out")
    try:
        pattern = re.compile(cells or "", re.IGNORECASE)
    except re.error as error:
        raise InputError(f"--cells {cells!r} is no regular expression: {error}") from error
    found = [
        piece
        for piece in pieces
        if pattern.search(piece.name) or any(cells == cell.name for cell in piece.cells)
    ]
    if not found:
        raise InputError(f"no part of {artefact.name} matches {cells!r}: its parts are {_names(pieces)}")
    return found


def reproduce(
    pieces: Sequence[Piece],
    execute: Executor,
    *,
    seeds: int | None = None,
    scale: Scale = "full",
    data: Path | None = None,
) -> list[Reproduced]:
    """Run pieces to their end, all that they ask for at a time together.

    Pieces whose data are not here are left out, unless that is so for all of them: then the first run says
    what is missing.

    Args:
        pieces: What to run.
        execute: What runs experiments.
        seeds: How many runs of each; as many as the paper made unless given.
        scale: `quick` for a few updates of each run. Only what is run in `full` is compared.
        data: Where data sets are looked for first.
    """
    asked: list[list[Run]] = [[] for _ in pieces]
    wanting = [absent(piece, data) for piece in pieces]
    plans = [
        _left_out(names) if names and not all(wanting) else _listening(_planned(piece, seeds, scale), heard)
        for piece, names, heard in zip(pieces, wanting, asked, strict=True)
    ]
    returned = drive(together(plans), execute)
    return [
        _summed_up(piece, seeds, scale, heard, found, missing=0)
        for piece, heard, found in zip(pieces, asked, returned, strict=True)
    ]


def survey(
    pieces: Sequence[Piece], out: Path, *, seeds: int | None = None, scale: Scale = "full"
) -> list[Reproduced]:
    """What the runs in a folder say of pieces so far; nothing is run.

    A piece of which some seeds are done is judged by these.
    """
    found = []
    for piece in pieces:
        wanted = piece.seeds if seeds is None else seeds
        heard: list[Run] = []
        done, missing = _seeds_done(piece, wanted, scale, out)
        returned = None
        try:
            if done:
                returned = drive(_listening(_planned(piece, done, scale), heard), Stored(out))
        except MissingRuns as error:
            heard += error.found
            missing += error.missing
        found.append(_summed_up(piece, done, scale, heard, returned, missing=missing))
    return found


def finished_runs(out: Path) -> set[str]:
    """All runs in a folder that have a result, by their ids."""
    return {result.parent.name for result in out.glob(f"*/{RESULT}")}


def runs_done(pieces: Sequence[Piece], out: Path, *, there: Set[str], seeds: int | None = None) -> set[str]:
    """Those of the finished runs in a folder that pieces ask for.

    Args:
        pieces: What asks for runs.
        out: The folder.
        there: The ids of the runs that are finished: see `finished_runs`.
        seeds: How many runs of each; as many as the paper made unless given.
    """
    found: set[str] = set()
    for piece in pieces:
        if _begun(piece, there):
            first = {planned.id for planned in piece.first_runs(seeds)}
            found |= first & there
            # What is asked for later depends on what came out first.
            if piece.later and first <= there:
                [asked] = survey([piece], out, seeds=seeds)
                found |= {run.id for run in asked.results}
    return found


def _begun(piece: Piece, there: Set[str]) -> bool:
    """Whether any run that is there might be of a piece; one with an outline is judged by its streams."""
    if piece.outline is None:
        return bool(there)
    names = {planned.scenario.name for planned in piece.outline()[1]}
    return any(run.startswith(f"{name}-") for run in there for name in names)


def statements(artefact: Artefact, found: Sequence[Reproduced]) -> list[Statement]:
    """What the paper says of a table or figure, as far as the finished pieces tell whether it holds."""
    finished = {each.piece.name: each.returned for each in found if each.returned is not None}
    return list(artefact.statements(finished)) if artefact.statements is not None and finished else []


def scale_of(follow: str | None, *, quick: bool = False) -> Scale:
    """How much of the paper's set-up is run.

    Example:
        >>> scale_of("code"), scale_of("small-code"), scale_of("small", quick=True)
        ('full', 'small', 'quick')
    """
    if quick:
        return "quick"
    return "small" if follow is not None and follow.startswith("small") else "full"


def record(
    artefact: Artefact,
    found: Sequence[Reproduced],
    *,
    scale: Scale,
    follow: str | None = None,
    drawn: Page | None = None,
) -> dict[str, Any]:
    """All that is worth keeping of a reproduction, as one JSON object.

    Args:
        artefact: The table or figure.
        found: What became of its pieces.
        scale: How they were run.
        follow: Under which reading.
        drawn: A figure's page, whose curves are kept.
    """
    verdicts = [each.verdict for piece in found for each in piece.compared]
    counts = {name: verdicts.count(name) for name in sorted(set(verdicts))}
    whole: dict[str, Any] = finite(
        {
            "name": artefact.name,
            "title": artefact.title,
            "scale": scale,
            "follow": follow,
            "followed": list(artefact.followed),
            "note": artefact.note,
            "verdicts": counts,
            # Runs of a few updates say nothing about what a paper says.
            "statements": [asdict(each) for each in statements(artefact, found)] if scale != "quick" else [],
            "pieces": [each.as_json() for each in found],
            "panels": [] if drawn is None else drawn.numbers(),
            "versions": _versions(found),
        }
    )
    return whole


def _versions(found: Sequence[Reproduced]) -> list[dict[str, str]]:
    """The versions that the runs were made with; those of now where nothing had to be run."""
    results = [result for piece in found for result in piece.results]
    made = [dict(result.versions) for result in results if result.versions]
    distinct = [each for place, each in enumerate(made) if each not in made[:place]]
    return distinct or [versions()]


def _planned(piece: Piece, seeds: int | None, scale: Scale) -> Plan[Any]:
    plan = piece.plan(range(piece.seeds if seeds is None else seeds))
    return quick(plan) if scale == "quick" else plan


def _seeds_done(piece: Piece, seeds: int, scale: Scale, out: Path) -> tuple[int, int]:
    """With how many seeds the first runs of a piece are all there, and how many are missing for all seeds."""

    def missing(count: int) -> int:
        plan = _planned(piece, count, scale)
        try:
            asked = next(plan)
        except StopIteration:
            return 0
        finally:
            plan.close()
        return sum(not _ended(Run.find(experiment, out)) for experiment in asked)

    done = next((count for count in range(seeds, 0, -1) if missing(count) == 0), 0)
    return done, missing(seeds)


def _ended(run: Run) -> bool:
    """Whether a run has a result, or would fail in the same way again."""
    return run.finished or (run.failure is not None and run.failure.final)


@dataclass(frozen=True, slots=True)
class _Stopped:
    """What a plan that could not go on returns: why. The others go on."""

    reason: str


def _left_out(datasets: Sequence[str]) -> Plan[Any]:
    """The plan of a piece whose data are not here: it asks for nothing."""
    yield []
    return _Stopped(f"{' and '.join(datasets)} not found; engram data says what to get, and where to put it")


def _listening(plan: Plan[Any], heard: list[Run]) -> Plan[Any]:
    sent: Sequence[Run] | None = None
    while True:
        try:
            asked = next(plan) if sent is None else plan.send(sent)
        except StopIteration as end:
            return end.value
        except InputError as error:
            return _Stopped(str(error))
        sent = yield asked
        heard += sent


def _summed_up(
    piece: Piece,
    seeds: int | None,
    scale: Scale,
    heard: Sequence[Run],
    returned: Any,
    *,
    missing: int,
) -> Reproduced:
    stopped = returned.reason if isinstance(returned, _Stopped) else ""
    returned = None if stopped else returned
    values = returned if piece.cells and returned is not None else {}
    return Reproduced(
        piece,
        tuple(range(piece.seeds if seeds is None else seeds)),
        tuple(run for run in heard if run.failure is None),
        tuple(run for run in heard if run.failure is not None),
        missing,
        tuple(compare(cell, values.get(cell, ()), comparable=scale == "full") for cell in piece.cells),
        returned,
        stopped,
    )


def _names(pieces: Sequence[Piece], shown: int = 6) -> str:
    names = [piece.name for piece in pieces]
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
