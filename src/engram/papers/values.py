"""What can be reproduced: tables and figures, and the plans that ask for their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

from engram.core.dataset_info import DATASETS
from engram.papers.pages import Page
from engram.papers.published import Cell
from engram.protocols.drive import Failure, Plan, Result
from engram.record.experiment import Experiment

T = TypeVar("T")
Scale = Literal["full", "small", "quick"]
"""The paper's own set-up; that set-up cut down to what one computer does; a few updates of each run."""
Values: TypeAlias = Mapping[Cell, Sequence[float]]
"""What came out for each number, one value a run, in the unit in which it is printed."""

QUICK_UPDATES = 20
QUICK_SUBSET = 200
QUICK_PASSES = 1
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
            stand for all, so that what it takes is known without planning each.
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
        name: What people type, as `002-table2`.
        title: One line.
        pieces: What it consists of.
        followed: Where paper and code disagree, which of them is followed.
        others: All pieces under another reading, by the name that `--follow` takes. One whose name begins
            with `small` is scaled down, and never compared by verdict.
        draw: For a figure: from what each piece returned, by its name, to a page.
        note: What a reader should know, such as what is left out and why.
        statements: From what each finished piece returned, by its name, to what the paper says of it.
    """

    name: str
    title: str
    pieces: tuple[Piece, ...]
    followed: tuple[str, ...] = ()
    others: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)
    draw: Callable[[Mapping[str, Any]], Page] | None = None
    note: str = ""
    statements: Callable[[Mapping[str, Any]], Sequence[Statement]] | None = None

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
    read: Mapping[Cell, Callable[[Result], float]],
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
        >>> made_up = lambda runs: [Result(run, {"metrics": {"AvgAcc": 0.5}}) for run in runs]
        >>> list(drive(piece.plan([0, 1]), made_up).values())
        [[50.0, 50.0]]
    """

    def plan(chosen: Sequence[int]) -> Plan[Values]:
        found = yield [make(seed) for seed in chosen]
        done = [each for each in found if isinstance(each, Result)]
        return {cell: [reading(each) for each in done] for cell, reading in read.items()}

    return Piece(name, plan, tuple(read), seeds)


def percent(metric: str) -> Callable[[Result], float]:
    """Read a metric in percent.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> percent("ACC")(Result(experiment("split-digits", "er"), {"metrics": {"ACC": 0.25}}))
        25.0
    """
    return lambda result: 100 * result.metric(metric)


def quick(plan: Plan[Any]) -> Plan[Any]:
    """The same plan with runs of a few updates: it shows that everything works, and nothing else.

    Example:
        >>> from engram.papers.catalogue import artefact
        >>> plan = quick(artefact("002-table2").pieces[0].plan([0]))
        >>> next(plan)[0].updates
        20
    """
    sent: Sequence[Result | Failure] | None = None
    while True:
        try:
            asked = next(plan) if sent is None else plan.send(sent)
        except StopIteration as end:
            return end.value
        sent = yield [scaled_down(each) for each in asked]


def scaled_down(planned: Experiment) -> Experiment:
    """An experiment with few updates a task, evaluated on few samples.

    What a method or a probe fits on its own has few passes as well; fine-tuned probes keep theirs, because
    they are told apart by their passes.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> short = scaled_down(experiment("split-cifar100", "gdumb"))
        >>> updates_of(short), short.settings["epochs"], short.evaluation.subset
        (200, 1, 200)
    """
    spec = planned.evaluation
    evaluation = replace(
        spec,
        subset=min(spec.subset or QUICK_SUBSET, QUICK_SUBSET),
        full_ends=False,
        transfer=replace(spec.transfer, epochs=QUICK_PASSES) if spec.transfer else None,
    )
    phases = tuple(
        replace(phase, updates=None if phase.updates is None else min(phase.updates, QUICK_UPDATES))
        for phase in planned.by_phase
    )
    fits = {"epochs": QUICK_PASSES} if "epochs" in planned.settings else {}
    return replace(
        planned,
        # A stream that is shown once counts passes, whatever is said of updates.
        scenario=replace(planned.scenario, passes=None),
        settings={**planned.settings, **fits},
        updates=QUICK_UPDATES,
        evaluation=evaluation,
        by_phase=phases,
    )


def updates_of(planned: Experiment) -> int:
    """About how many updates an experiment takes, judged by the sizes of complete data sets.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> updates_of(experiment("split-mnist-002", "ewc"))
        1880
    """
    total = 0
    for number, phase in enumerate(planned.scenario.phases):
        samples = 0.0
        for task in (planned.scenario.tasks[place] for place in phase):
            info = DATASETS[task.source.dataset]
            share = len(task.source.classes) / info.classes if task.source.classes else 1.0
            samples += (info.train - task.source.unused) * share * (1 - planned.scenario.held_out)
        total += planned.steps(max(1, round(samples)), phase=number)
    return total


def together(plans: Sequence[Plan[T]]) -> Plan[list[T]]:
    """Several plans as one: what they ask for at the same time is run at the same time.

    Example:
        >>> def counting(rounds: int) -> Plan[int]:
        ...     for _ in range(rounds):
        ...         yield []
        ...     return rounds
        >>> from engram.protocols.drive import drive
        >>> drive(together([counting(2), counting(0), counting(1)]), lambda asked: [])
        [2, 0, 1]
    """
    ended: dict[int, T] = {}
    asked: dict[int, list[Experiment]] = {}

    def go_on(number: int, found: Sequence[Result | Failure] | None) -> None:
        asked.pop(number, None)
        try:
            asked[number] = next(plans[number]) if found is None else plans[number].send(found)
        except StopIteration as end:
            ended[number] = end.value

    for number in range(len(plans)):
        go_on(number, None)
    while asked:
        found = yield [each for experiments in asked.values() for each in experiments]
        start = 0
        for number, experiments in list(asked.items()):
            go_on(number, found[start : start + len(experiments)])
            start += len(experiments)
    return [ended[number] for number in range(len(plans))]
