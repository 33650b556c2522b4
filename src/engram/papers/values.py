"""Tables and figures that can be reproduced, and the plans that ask for their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from engram.core.jsons import JsonMapping
from engram.papers.pages import Page
from engram.papers.plans import Plan, Run, repeated
from engram.papers.published import Cell
from engram.record.experiment import Experiment

Scale = Literal["full", "small", "quick"]
"""The paper's own set-up; that set-up scaled down to what one computer can run; a few updates per run."""
Values: TypeAlias = Mapping[Cell, Sequence[float]]
"""Our values for each published number, one per run, in the unit in which it is printed."""

Returned: TypeAlias = Mapping[str, Any]
"""The return value of the plan of each piece, by the name of the piece."""

AT_ENDS: JsonMapping = {"every": 10**9, "before": False, "subset": None}
"""Evaluation on whole test sets, at task ends only."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a table or figure whose runs belong together.

    Attributes:
        name: Its name.
        plan: Returns the plan that asks for its runs, given the seeds. The plan of a table returns `Values`,
            that of a figure returns what `Artefact.draw` takes.
        cells: The published numbers that it reproduces; none for a figure.
        seeds: The number of runs that the paper made.
        later: The number of runs that the plan may ask for after the first ones, as a multiple of these.
        outline: For a plan that first asks for very many runs: their number with one seed, and a few
            representative ones, so that the cost can be estimated without planning every run.
        per_run: Whether each value is that of one run with one seed, in the order of the seeds, so that runs
            with further seeds add values and change no others.
        exact: Whether its numbers are computed or counted, so that they have no spread.
    """

    name: str
    plan: Callable[[Sequence[int]], Plan[Any]]
    cells: tuple[Cell, ...] = ()
    seeds: int = 1
    later: float = 0.0
    outline: Callable[[], tuple[int, list[Experiment]]] | None = None
    per_run: bool = False
    exact: bool = False

    def first_runs(self, seeds: int | Sequence[int] | None = None) -> list[Experiment]:
        """The runs that the plan asks for first; for most pieces, these are all.

        Args:
            seeds: The number of seeds, or the seeds themselves (default: as many as the paper has).

        Example:
            >>> from engram.papers.catalogue import artefact
            >>> piece = artefact("002-table2").pieces[0]
            >>> len(piece.first_runs()), piece.first_runs()[0].method
            (10, 'finetune')
        """
        wanted = self.seeds if seeds is None else seeds
        plan = self.plan(range(wanted) if isinstance(wanted, int) else wanted)
        try:
            return next(plan)
        except StopIteration:
            return []
        finally:
            plan.close()


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a paper, or one that follows from its numbers, and whether it holds here.

    Attributes:
        says: The statement.
        holds: Whether it holds.
        figures: The numbers by which this is judged.
    """

    says: str
    holds: bool
    figures: str


@dataclass(frozen=True, slots=True)
class Artefact:
    """A table or a figure of a paper.

    Attributes:
        name: The name on the command line, such as `002-table2`.
        title: One line.
        pieces: Its pieces.
        followed: Which of paper and code is followed where they disagree.
        others: All pieces under other interpretations of the paper, by the name that `--follow` takes. An
            interpretation whose name begins with `small` is scaled down, and not compared by verdict.
        draw: For a figure: draws the page from the return values of its pieces, by name.
        note: Notes for readers, such as what is left out and why.
        statements: Judges the statements of the paper from the return values of the finished pieces, by name.
    """

    name: str
    title: str
    pieces: tuple[Piece, ...]
    followed: tuple[str, ...] = ()
    others: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)
    draw: Callable[[Returned], Page] | None = None
    note: str = ""
    statements: Callable[[Returned], Sequence[Statement]] | None = None

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets that its runs read."""
        names = {
            task.source.dataset
            for piece in self.pieces
            for planned in piece.first_runs(1)
            for task in planned.scenario.tasks
        }
        return tuple(sorted(names))


def measured(
    name: str,
    make: Callable[[int], Experiment],
    read: Mapping[Cell, Callable[[Run], float]],
    *,
    seeds: int,
) -> Piece:
    """The numbers of one experiment, repeated with several seeds.

    Args:
        name: The name of the piece.
        make: Returns the experiment for a seed.
        read: Returns the value of each published number for a run.
        seeds: The number of runs that the paper made.

    Example:
        >>> from engram.papers.published import cells
        >>> from engram.protocols.drive import drive
        >>> from engram.engine.recipe import experiment
        >>> cell = cells("002", "2")[0]
        >>> adam = lambda seed: experiment("split-mnist-002", "finetune", seed=seed)
        >>> piece = measured("Adam", adam, {cell: percent("AvgAcc")}, seeds=10)
        >>> made_up = lambda experiments: [
        ...     Run(planned=planned, stored={"AvgAcc": 0.5}) for planned in experiments
        ... ]
        >>> list(drive(piece.plan([0, 1]), made_up).values())
        [[50.0, 50.0]]
    """

    def plan(chosen: Sequence[int]) -> Plan[Values]:
        runs = yield from repeated(make, chosen)
        return {cell: [value_of(run) for run in runs] for cell, value_of in read.items()}

    return Piece(name, plan, tuple(read), seeds, per_run=True)


def percent(metric: str) -> Callable[[Run], float]:
    """A function that returns a metric of a run in percent.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> percent("ACC")(Run(planned=experiment("split-digits", "er"), stored={"ACC": 0.25}))
        25.0
    """
    return lambda run: 100 * run.metric(metric)
