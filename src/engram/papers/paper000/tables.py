"""The tables: the runs behind their numbers, and how these are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from engram.metrics.summary import Measurement, summarise
from engram.papers.paper000.evaluations import Interpretation, watched
from engram.papers.paper000.runs import (
    SEEDS,
    on_training_data,
    other,
    replayed,
    runs_after_search,
    searched,
)
from engram.papers.plans import Plan, Run, Runs, repeated
from engram.papers.published import Cell, cells, grouped
from engram.papers.values import Piece, Values
from engram.scenarios import SettingName


def _options(cell: Cell) -> dict[str, str]:
    """The options in the setting of a number, such as `rho=10;eval=test;subset=1000`.

    Example:
        >>> _options(cells("000", "5")[0])
        {'rho': '1', 'eval': 'test', 'subset': '1000'}
    """
    return dict(part.split("=", 1) for part in cell.setting.split(";") if "=" in part)


def _samples_and_period(cell: Cell) -> tuple[int | None, int]:
    """The number of samples (None: all) and the evaluation period of a number."""
    options = _options(cell)
    subset = options.get("subset", "All")
    return (None if subset == "All" else int(subset), int(options.get("rho", "1")))


def _on_training_data(cell: Cell) -> bool:
    return _options(cell).get("eval") == "train" or cell.setting == "train set"


def _value(measurement: Measurement, cell: Cell) -> float:
    """A metric in percent; ACC of class-incremental streams is pooled over samples, as published."""
    name = "ACC-pooled" if cell.metric == "ACC" and cell.scenario == "class" else cell.metric
    return 100 * measurement.final[name]


def _summary(run: Run, interpretation: Interpretation) -> Measurement:
    """The metrics of a run that was evaluated on all samples at task ends, and on subsets in between."""
    windows = summarise(watched(run, interpretation), mode=interpretation.mode)
    at_ends = {name: run.metric(name) for name in ("ACC", "ACC-pooled", "FORG")}
    return replace(windows, final={**windows.final, **at_ends})


def _fresh_piece(
    name: str,
    runs_with: Callable[[Sequence[int]], Plan[Runs]],
    wanted: tuple[Cell, ...],
    interpretation: Interpretation,
    *,
    later: float = 0.0,
) -> Piece:
    """Numbers of tables 3 and 6, all from the same runs."""

    def plan(seeds: Sequence[int]) -> Plan[Values]:
        runs = yield from runs_with(seeds)
        summaries = [_summary(run, interpretation) for run in runs]
        return {cell: [_value(summary, cell) for summary in summaries] for cell in wanted}

    return Piece(name, plan, wanted, SEEDS, later)


def _tuned_piece(wanted: tuple[Cell, ...], interpretation: Interpretation, *, metric: str) -> Piece:
    benchmark, setting = wanted[0].benchmark, cast(SettingName, wanted[0].scenario)
    return _fresh_piece(
        f"{benchmark}/{setting}/finetune",
        lambda seeds: searched(benchmark, setting, seeds, interpretation, metric=metric),
        wanted,
        interpretation,
        later=runs_after_search(benchmark),
    )


def _replay_piece(name: str, wanted: tuple[Cell, ...], interpretation: Interpretation) -> Piece:
    """Numbers of tables 1, 2, 4 and 5: the same runs, evaluated with several periods or subsets."""
    benchmark = wanted[0].benchmark
    make = on_training_data if any(_on_training_data(cell) for cell in wanted) else replayed
    evaluations = dict.fromkeys(_samples_and_period(cell) for cell in wanted)

    def summary(run: Run, subset: int | None, every: int) -> Measurement:
        trace = watched(run, interpretation, subset=subset, every=every)
        return summarise(trace, mode=interpretation.mode)

    def plan(seeds: Sequence[int]) -> Plan[Values]:
        runs = yield from repeated(lambda seed: make(benchmark, seed, interpretation), seeds)
        values: dict[Cell, list[float]] = {cell: [] for cell in wanted}
        for run in runs:
            summaries = {evaluation: summary(run, *evaluation) for evaluation in evaluations}
            for cell in wanted:
                values[cell].append(_value(summaries[_samples_and_period(cell)], cell))
        return values

    return Piece(name, plan, wanted, SEEDS, per_run=True)


def fine_tuning(interpretation: Interpretation) -> tuple[Piece, ...]:
    """Table 3: fine-tuning, with the learning rate that has the best worst-case accuracy."""
    groups = grouped(cells("000", "3"), lambda cell: (cell.benchmark, cell.scenario))
    return tuple(_tuned_piece(wanted, interpretation, metric="WC-ACC") for wanted in groups.values())


def periods(table: str, interpretation: Interpretation) -> tuple[Piece, ...]:
    """Tables 1 and 4: ER evaluated with several periods."""
    groups = grouped(cells("000", table), lambda cell: cell.benchmark)
    return tuple(_replay_piece(f"{name}/ER", wanted, interpretation) for name, wanted in groups.items())


def subsets(table: str, interpretation: Interpretation) -> tuple[Piece, ...]:
    """Tables 2 and 5: ER evaluated on several numbers of test samples, and on training samples."""
    wanted = cells("000", table) + (cells("000", "text(sec3.3)") if table == "2" else ())
    groups = grouped(
        wanted, lambda cell: f"{cell.benchmark}/ER/{'train' if _on_training_data(cell) else 'test'}"
    )
    return tuple(_replay_piece(name, group, interpretation) for name, group in groups.items())


def four_methods(interpretation: Interpretation) -> tuple[Piece, ...]:
    """Table 6: fine-tuning, ER, LwF and EWC on Mini-DomainNet."""
    makes = {
        "ER": partial(replayed, "Mini-DomainNet"),
        "LwF": partial(other, "lwf", "Mini-DomainNet", parts=True),
        "EWC": partial(other, "ewc", "Mini-DomainNet"),
    }

    def piece(method: str, wanted: tuple[Cell, ...]) -> Piece:
        if method == "finetune":
            return _tuned_piece(wanted, interpretation, metric="ACC")
        make = partial(makes[method], interpretation=interpretation)
        return _fresh_piece(
            f"Mini-DomainNet/domain/{method}", partial(repeated, make), wanted, interpretation
        )

    groups = grouped(cells("000", "6"), lambda cell: cell.method)
    return tuple(piece(method, wanted) for method, wanted in groups.items())
