"""Running the pieces of tables and figures, and recording the outcome."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path

from engram.core.errors import InputError, unknown_name
from engram.core.folder import RESULT, finite, versions
from engram.core.jsons import JsonObject
from engram.executors import Execute
from engram.papers.needs import absent, samples
from engram.papers.pages import Page
from engram.papers.plans import quick, relayed, together
from engram.papers.values import Artefact, Piece, Scale, Statement
from engram.papers.verdict import Compared, compare
from engram.protocols.drive import Plan, drive
from engram.record.experiment import Experiment
from engram.record.failure import FailureKind
from engram.record.run import Run


@dataclass(frozen=True, slots=True)
class Reproduced:
    """The outcome of a piece.

    Attributes:
        piece: The piece.
        seeds: The seeds.
        results: The runs that succeeded.
        failures: The runs that failed.
        missing: The number of runs that it asked for and that do not exist; if not 0, it is not finished.
        compared: The published numbers, compared with ours.
        returned: The return value of its plan; None if runs are missing or the plan stopped.
        stopped: Why the plan could not start or continue, in one line; otherwise empty.
    """

    piece: Piece
    seeds: tuple[int, ...]
    results: tuple[Run, ...]
    failures: tuple[Run, ...]
    missing: int
    compared: tuple[Compared, ...]
    returned: object = field(repr=False)
    stopped: str = ""

    def as_json(self) -> JsonObject:
        """The outcome as it is recorded."""
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
            "cells": [comparison.as_json() for comparison in self.compared],
        }


class MissingRuns(Exception):
    """A plan asked for runs that do not exist.

    Args:
        available: The runs that do exist.
        missing: The number of those that do not.
    """

    def __init__(self, available: Sequence[Run], missing: int) -> None:
        super().__init__(f"{missing} runs are missing")
        self.available, self.missing = available, missing


class Stored:
    """An executor that only reads existing runs, and stops a plan that asks for others.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> Stored(Path("nowhere"))([experiment("split-digits", "er")])
        Traceback (most recent call last):
        engram.papers.reproduce.MissingRuns: 1 runs are missing
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    def __call__(self, experiments: Sequence[Experiment]) -> list[Run]:
        """The stored runs of the experiments."""
        runs = [Run.find(experiment, self.out) for experiment in experiments]
        ended = [run for run in runs if _ended(run)]
        if len(ended) < len(runs):
            raise MissingRuns(ended, len(runs) - len(ended))
        return ended


def chosen_pieces(artefact: Artefact, *, follow: str | None = None, cells: str | None = None) -> list[Piece]:
    """The pieces of a table or figure under one reading of the paper whose names match.

    Args:
        artefact: The table or figure.
        follow: The name of another reading than the default one.
        cells: A part of the name of a piece, the name of one of its cells, or a regular expression.

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
        raise InputError(f"{artefact.name} has only one reading: omit --follow")
    try:
        pattern = re.compile(cells or "", re.IGNORECASE)
    except re.error as error:
        raise InputError(f"--cells must be a valid regular expression, got {cells!r}: {error}") from error
    matching = [
        piece
        for piece in pieces
        if pattern.search(piece.name) or any(cells == cell.name for cell in piece.cells)
    ]
    if not matching:
        raise InputError(f"no part of {artefact.name} matches {cells!r}: its parts are {_names(pieces)}")
    return matching


def reproduce(
    pieces: Sequence[Piece],
    execute: Execute,
    *,
    seeds: int | None = None,
    scale: Scale = "full",
    data: Path | None = None,
) -> list[Reproduced]:
    """Run pieces to completion; experiments that they ask for at the same time are run together.

    Pieces whose data sets are not available are skipped. If that is true for all of them, none is skipped,
    and the error of the first run says what is missing.

    Args:
        pieces: The pieces.
        execute: The executor.
        seeds: The number of runs of each experiment (default: as many as the paper made).
        scale: `quick` for a few updates per run. Only `full` runs are compared with the paper.
        data: A folder to search for data sets first.
    """
    runs_of: list[list[Run]] = [[] for _ in pieces]
    unavailable = [absent(piece, data) for piece in pieces]
    plans = [
        _skipped(names)
        if names and not all(unavailable)
        else _observed(_planned(piece, _wanted(piece, seeds), scale), runs)
        for piece, names, runs in zip(pieces, unavailable, runs_of, strict=True)
    ]
    returned = drive(together(plans), execute)
    return [
        _outcome(piece, _wanted(piece, seeds), scale, runs, value, missing=0)
        for piece, runs, value in zip(pieces, runs_of, returned, strict=True)
    ]


def survey(
    pieces: Sequence[Piece], out: Path, *, seeds: int | None = None, scale: Scale = "full"
) -> list[Reproduced]:
    """The outcome of pieces from the runs that exist in a folder; nothing is run.

    A piece of which only some seeds are done is judged by these.
    """
    outcomes = []
    for piece in pieces:
        runs: list[Run] = []
        done, missing = _seeds_done(piece, _wanted(piece, seeds), scale, out)
        returned = None
        try:
            if done:
                returned = drive(_observed(_planned(piece, done, scale), runs), Stored(out))
        except MissingRuns as error:
            runs += error.available
            missing += error.missing
        outcomes.append(_outcome(piece, done, scale, runs, returned, missing=missing))
    return outcomes


def finished_runs(out: Path) -> set[str]:
    """The ids of all runs in a folder that have a result."""
    return {result.parent.name for result in out.glob(f"*/{RESULT}")}


def runs_done(
    pieces: Sequence[Piece], out: Path, *, finished: Set[str], seeds: int | None = None
) -> set[str]:
    """The ids of the finished runs in a folder that pieces ask for.

    Args:
        pieces: The pieces.
        out: The folder.
        finished: The ids of all finished runs in it; see `finished_runs`.
        seeds: The number of runs of each experiment (default: as many as the paper made).
    """
    done: set[str] = set()
    stems = {_stem(name) for name in finished}
    begun = {_kind(stem) for stem in stems}
    for piece in pieces:
        if not any(_kind(planned.stem) in begun for planned in samples(piece)):
            continue
        one = piece.outline is None and len(_wanted(piece, seeds)) == 1
        first = samples(piece) if one else piece.first_runs(seeds)
        # Hashing an experiment takes long, and most of them have no run.
        possible = [planned for planned in first if planned.stem in stems]
        names = {planned.id for planned in possible}
        done |= names & finished
        # Which runs follow depends on the results of the first ones.
        if piece.later and len(possible) == len(first) and names <= finished:
            done |= {run.id for run in _stored(piece, _wanted(piece, seeds), out) if run.failure is None}
    return done


def _stem(name: str) -> str:
    """The readable part of the name of a run; see `Experiment.stem`."""
    return name.rpartition("-")[0]


def _kind(stem: str) -> str:
    """The part of a stem that runs with different seeds and methods share: its stream and setting."""
    return stem.rpartition("-s")[0]


def _stored(piece: Piece, seeds: range, out: Path) -> list[Run]:
    """The runs in a folder that a piece asks for, until one is missing."""
    runs: list[Run] = []
    try:
        drive(_observed(_planned(piece, seeds, "full"), runs), Stored(out))
    except MissingRuns as error:
        runs += error.available
    return runs


def statements(artefact: Artefact, outcomes: Sequence[Reproduced]) -> list[Statement]:
    """The paper's statements about a table or figure that the finished pieces can judge."""
    finished = {outcome.piece.name: outcome.returned for outcome in outcomes if outcome.returned is not None}
    return list(artefact.statements(finished)) if artefact.statements is not None and finished else []


def scale_of(follow: str | None, *, quick: bool = False) -> Scale:
    """The scale of a reading of a paper.

    Example:
        >>> scale_of("code"), scale_of("small-code"), scale_of("small", quick=True)
        ('full', 'small', 'quick')
    """
    if quick:
        return "quick"
    return "small" if follow is not None and follow.startswith("small") else "full"


def record(
    artefact: Artefact,
    outcomes: Sequence[Reproduced],
    *,
    scale: Scale,
    follow: str | None = None,
    drawn: Page | None = None,
) -> JsonObject:
    """The record of a reproduction, as one JSON object.

    Args:
        artefact: The table or figure.
        outcomes: The outcomes of its pieces.
        scale: The scale at which they were run.
        follow: The reading of the paper.
        drawn: The page of a figure, whose curves are recorded.
    """
    verdicts = [comparison.verdict for outcome in outcomes for comparison in outcome.compared]
    counts = {name: verdicts.count(name) for name in sorted(set(verdicts))}
    judged = statements(artefact, outcomes) if scale != "quick" else []
    whole: JsonObject = finite(
        {
            "name": artefact.name,
            "title": artefact.title,
            "scale": scale,
            "follow": follow,
            "followed": list(artefact.followed),
            "note": artefact.note,
            "verdicts": counts,
            "statements": [asdict(statement) for statement in judged],
            "pieces": [outcome.as_json() for outcome in outcomes],
            "panels": [] if drawn is None else drawn.numbers(),
            "versions": _versions(outcomes),
        }
    )
    return whole


def _versions(outcomes: Sequence[Reproduced]) -> list[dict[str, str]]:
    """The distinct versions of the runs; the current versions if nothing had to be run."""
    distinct: list[dict[str, str]] = []
    for run in (run for outcome in outcomes for run in outcome.results):
        if run.versions and dict(run.versions) not in distinct:
            distinct.append(dict(run.versions))
    return distinct or [versions()]


def _wanted(piece: Piece, seeds: int | None) -> range:
    """The seeds of a piece: by default, as many as the paper has runs."""
    return range(piece.seeds if seeds is None else seeds)


def _planned(piece: Piece, seeds: Sequence[int], scale: Scale) -> Plan[object]:
    plan = piece.plan(seeds)
    return quick(plan) if scale == "quick" else plan


def _seeds_done(piece: Piece, seeds: range, scale: Scale, out: Path) -> tuple[Sequence[int], int]:
    """The seeds for which all first runs of a piece exist, and how many runs are missing for all seeds."""

    def missing(some: Sequence[int]) -> int:
        plan = _planned(piece, some, scale)
        try:
            experiments = next(plan)
        except StopIteration:
            return 0
        finally:
            plan.close()
        return sum(not _ended(Run.find(experiment, out)) for experiment in experiments)

    if piece.per_run:
        lacking = {seed: missing([seed]) for seed in seeds}
        return [seed for seed in seeds if not lacking[seed]], sum(lacking.values())
    # The plan may choose by all seeds together, so that they have to be the first ones.
    done = next((seeds[:count] for count in range(len(seeds), 0, -1) if missing(seeds[:count]) == 0), ())
    return done, missing(seeds)


def _ended(run: Run) -> bool:
    """Whether a run has a result, or would fail in the same way again.

    Raises:
        InputError: The run is damaged.
    """
    if run.failure is not None and run.failure.kind is FailureKind.DAMAGED:
        raise InputError(f"{run.failure.reason}; run it again without --done")
    return run.finished or (run.failure is not None and run.failure.final)


@dataclass(frozen=True, slots=True)
class _Stopped:
    """Returned in place of the value of a plan that could not continue; the other plans do continue."""

    reason: str


def _skipped(datasets: Sequence[str]) -> Plan[object]:
    """The plan of a piece whose data sets are not available: it asks for nothing."""
    yield []
    return _Stopped(f"{' and '.join(datasets)} not found; engram data says what to get, and where to put it")


def _observed(plan: Plan[object], runs: list[Run]) -> Plan[object]:
    """The same plan, whose runs are appended to a list; bad input stops it instead of being raised."""
    try:
        return (yield from relayed(plan, hear=runs.extend))
    except InputError as error:
        return _Stopped(str(error))


def _outcome(
    piece: Piece,
    seeds: Sequence[int],
    scale: Scale,
    runs: Sequence[Run],
    returned: object,
    *,
    missing: int,
) -> Reproduced:
    stopped = returned.reason if isinstance(returned, _Stopped) else ""
    returned = None if stopped else returned
    values = returned if piece.cells and isinstance(returned, Mapping) else {}
    return Reproduced(
        piece,
        tuple(seeds),
        tuple(run for run in runs if run.failure is None),
        tuple(run for run in runs if run.failure is not None),
        missing,
        tuple(
            compare(cell, values.get(cell, ()), comparable=scale == "full", exact=piece.exact)
            for cell in piece.cells
        ),
        returned,
        stopped,
    )


def _names(pieces: Sequence[Piece], shown: int = 6) -> str:
    names = [piece.name for piece in pieces]
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
