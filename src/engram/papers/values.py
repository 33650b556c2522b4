"""What can be reproduced: tables and figures, and the plans that ask for their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from engram.papers.pages import Page
from engram.papers.plans import Plan, Run, repeated
from engram.papers.published import Cell
from engram.record.experiment import Experiment

Scale = Literal["full", "small", "quick"]
"""The paper's own set-up; that set-up scaled down to what one computer can run; a few updates per run."""
Values: TypeAlias = Mapping[Cell, Sequence[float]]
"""What came out for each number, one value per run, in the unit in which it is printed."""

Returned: TypeAlias = Mapping[str, Any]
"""What the plan of each piece returned, by the piece's name."""

AT_ENDS: Mapping[str, Any] = {"every": 10**9, "before": False, "subset": None}
"""An evaluation on whole test sets, when a task ends and at no other time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a table or figure whose runs belong together.

    Attributes:
        name: What it is called.
        plan: From seeds to the plan that asks for its runs. A table's returns `Values`, a figure's what the
            figure draws.
        cells: The published numbers that come out; none for a figure.
        seeds: How many runs the paper made.
        later: How many runs the plan may ask for beyond its first ones, as a multiple of these.
        outline: For a plan that asks for very many runs at first: how many with one seed, and a few that
            stand for all of them, so that the cost is known without planning every run.
    """

    name: str
    plan: Callable[[Sequence[int]], Plan[Any]]
    cells: tuple[Cell, ...] = ()
    seeds: int = 1
    later: float = 0.0
    outline: Callable[[], tuple[int, list[Experiment]]] | None = None

    def first_runs(self, seeds: int | None = None) -> list[Experiment]:
        """The runs that are asked for first, which for most pieces are all.

        Example:
            >>> from engram.papers.catalogue import artefact
            >>> piece = artefact("002-table2").pieces[0]
            >>> len(piece.first_runs()), piece.first_runs()[0].method
            (10, 'finetune')
        """
        plan = self.plan(range(self.seeds if seeds is None else seeds))
        try:
            return next(plan)
        except StopIteration:
            return []
        finally:
            plan.close()


@dataclass(frozen=True, slots=True)
class Statement:
    """What a paper says in words, or what its numbers say together, and whether it holds here.

    Attributes:
        says: The statement.
        holds: Whether it holds.
        figures: By what that is judged.
    """

    says: str
    holds: bool
    figures: str


@dataclass(frozen=True, slots=True)
class Artefact:
    """A table or a figure of a paper.

    Attributes:
        name: What people type, such as `002-table2`.
        title: One line.
        pieces: What it consists of.
        followed: Where paper and code disagree, which of them is followed.
        others: All pieces under another interpretation of the paper, by the name that `--follow` takes. One
            whose name begins with `small` is scaled down, and never compared by verdict.
        draw: For a figure: from what each piece returned, by its name, to a page.
        note: What a reader should know, such as what is left out and why.
        statements: From what each finished piece returned, by its name, to what the paper says of it.
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
        """The data sets that it needs."""
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
        name: What the piece is called.
        make: From a seed to the experiment.
        read: How each published number is read from a run.
        seeds: How many runs the paper made.

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

    return Piece(name, plan, tuple(read), seeds)


def percent(metric: str) -> Callable[[Run], float]:
    """Read a metric in percent.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> percent("ACC")(Run(planned=experiment("split-digits", "er"), stored={"ACC": 0.25}))
        25.0
    """
    return lambda run: 100 * run.metric(metric)
