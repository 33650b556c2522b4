"""The tables: numbers of one method, and correlations over all methods and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from engram.papers.paper003.runs import (
    SMALL,
    SMALL_BENCHMARK,
    SMALL_SEEDS,
    Interpretation,
    MethodRuns,
    transfers,
)
from engram.papers.plans import Plan
from engram.papers.published import Cell, cells, grouped
from engram.papers.values import Piece, Values
from engram.protocols.forward_transfer import Correlation, MethodTransfer, RunTransfer, spearman


def _plain(method: str) -> str:
    """A method's name without what is in brackets.

    Example:
        >>> _plain("Vanilla L2 (lambda=0.01)"), _plain("ER (m=50)")
        ('L2', 'ER')
    """
    return method.partition(" (")[0].removeprefix("Vanilla ")


def _init(cell: Cell) -> str:
    return cell.setting.partition(";")[0]


def _shots(cell: Cell) -> int:
    """The number of samples per class (k) of a cell."""
    return int((cell.setting + " " + cell.metric).partition("k=")[2].split(";")[0])


_VALUES: Mapping[str, Callable[[RunTransfer, Cell], float]] = {
    "AvgFgt": lambda run, _: 100 * run.matrix["AvgFgt"],
    "AvgAcc": lambda run, _: 100 * run.matrix["AvgAcc"],
    "AvgLAcc": lambda run, _: 100 * run.matrix["AvgLAcc"],
    "AvgFDiv": lambda run, _: run.diversity,
    "AvgFwt^k": lambda run, cell: 100 * run.linear[_shots(cell)],
}


def _groups(table: str) -> list[tuple[Cell, ...]]:
    """The cells of a table that come from the same runs."""
    groups = grouped(cells("003", table), lambda cell: (cell.benchmark, _init(cell), cell.method))
    return list(groups.values())


def _small_groups(table: str) -> list[tuple[Cell, ...]]:
    """The groups that the small interpretation runs."""
    where = (SMALL_BENCHMARK, "random init")
    return [group for group in _groups(table) if (group[0].benchmark, _init(group[0])) == where]


# Numbers ------------------------------------------------------------------------------------------


def _numbers_piece(wanted: tuple[Cell, ...], interpretation: Interpretation) -> Piece:
    """The numbers of one method on one benchmark."""
    first = wanted[0]
    method_runs = MethodRuns(first.benchmark, _plain(first.method), _init(first), interpretation)

    def plan(seeds: Sequence[int]) -> Plan[Values]:
        transfer = yield from method_runs.plan(seeds)
        runs = () if transfer is None else transfer.runs
        return {cell: [_VALUES[cell.metric.split(" ")[0]](run, cell) for run in runs] for cell in wanted}

    name = f"{first.benchmark}/{_init(first)}/{first.method}"
    return Piece(name, plan, wanted, 5, later=method_runs.later)


def numbers(table: str, interpretation: Interpretation) -> tuple[Piece, ...]:
    """The pieces of tables 2, 3 and 6."""
    return tuple(_numbers_piece(group, interpretation) for group in _groups(table))


def small_numbers(table: str) -> tuple[Piece, ...]:
    """The pieces of these tables that the small interpretation runs."""
    return tuple(replace(_numbers_piece(group, SMALL), seeds=SMALL_SEEDS) for group in _small_groups(table))


# Correlations -------------------------------------------------------------------------------------


def correlation(
    transfers: Mapping[str, MethodTransfer | None], with_what: Callable[[RunTransfer], float]
) -> Correlation | None:
    """Spearman's ρ of AvgFgt with another value, over methods and runs.

    Args:
        transfers: The runs of each method; if any is None because it failed, there is no correlation.
        with_what: Returns the other value of a run.
    """
    methods = [method for method in transfers.values() if method is not None]
    if len(methods) < len(transfers):
        return None
    runs = [run for method in methods for run in method.runs]
    return spearman([run.matrix["AvgFgt"] for run in runs], [with_what(run) for run in runs])


def _correlated_with(cell: Cell) -> Callable[[RunTransfer], float]:
    """The value of a run that is correlated with its forgetting."""
    if cell.table == "4":
        return lambda run: run.diversity
    shots = _shots(cell)
    if cell.table == "5":
        return lambda run: run.tuned[shots]
    return lambda run: run.linear[shots]


def _correlations_piece(wanted: tuple[Cell, ...], interpretation: Interpretation, *, seeds: int = 5) -> Piece:
    """The correlations of one benchmark and initialisation, over all methods and runs."""
    first = wanted[0]
    init, table = _init(first), first.table
    methods = interpretation.methods(init)
    if table == "4":
        methods = tuple(method for method in methods if method != "IND")
    method_runs = {
        method: MethodRuns(first.benchmark, method, init, interpretation, tuned=table == "5")
        for method in methods
    }

    def plan(seeds: Sequence[int]) -> Plan[Values]:
        by_method = yield from transfers(method_runs, seeds)
        values = {}
        for cell in wanted:
            rank = correlation(by_method, _correlated_with(cell))
            values[cell] = [] if rank is None else [rank.rho]
        return values

    later = interpretation.later("MT") / len(methods)
    return Piece(f"{first.benchmark}/{init}", plan, wanted, seeds, later=later)


def correlations(table: str, interpretation: Interpretation) -> tuple[Piece, ...]:
    """The pieces of tables 1, 4 and 5."""
    return tuple(_correlations_piece(group, interpretation) for group in _groups(table))


def small_correlations(table: str, interpretation: Interpretation) -> tuple[Piece, ...]:
    """The pieces of these tables that a small interpretation runs, over the methods of the tables."""
    tabled = replace(interpretation, more=())
    return tuple(_correlations_piece(group, tabled, seeds=SMALL_SEEDS) for group in _small_groups(table))
