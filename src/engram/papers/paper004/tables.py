"""The tables: facts of data sets, accuracies after sequential learning, and flags of forgetting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from engram.core.trace import Trace
from engram.engine.check import complete
from engram.metrics.joint import CF_THRESHOLDS
from engram.models.spec import ModelSpec
from engram.papers.paper004.interpretations import (
    DATASETS,
    FOLLOWED,
    SMALL,
    TWO_STREAMS,
    Interpretation,
    planned,
)
from engram.papers.paper004.searches import MEAN, merged, searched
from engram.papers.plans import Plan, succeeded, together
from engram.papers.published import Cell, cells, grouped
from engram.papers.values import AT_ENDS, Piece, Statement, Values
from engram.protocols.causal import CausalOutcome, Quality
from engram.record.experiment import EvaluationSpec, Experiment
from engram.scenarios import slt, split

TYPES = ("D5-5", "D9-1", "DP10-10")


# Catastrophic forgetting --------------------------------------------------------------------------


def forgets(cell: Cell, value: float | None = None) -> bool | None:
    """The flag for catastrophic forgetting: best accuracy below .5, for D9-1 below .9.

    Args:
        cell: A number of table 3 or 4.
        value: Our value (default: the published number).

    Returns:
        None for numbers without a flag: all except the best accuracies.

    Example:
        >>> ewc = next(c for c in cells("004", "3") if (c.method, c.benchmark) == ("EWC", "MNIST"))
        >>> ewc.mean, forgets(ewc), forgets(ewc, 0.46)
        (0.5, False, True)
    """
    if cell.metric != "q best":
        return None
    return (cell.mean if value is None else value) < CF_THRESHOLDS[cell.scenario]


def flags(values: Values) -> dict[Cell, tuple[bool, bool]]:
    """Whether the published and our best accuracies show catastrophic forgetting.

    Example:
        >>> cell = cells("004", "3")[0]
        >>> list(flags({cell: [0.7]}).values())
        [(True, False)]
    """
    return {
        cell: (bool(forgets(cell)), bool(forgets(cell, sum(ours) / len(ours))))
        for cell, ours in values.items()
        if ours and forgets(cell) is not None
    }


def flags_agree(returned: Mapping[str, Values]) -> list[Statement]:
    """How often the flags for catastrophic forgetting agree with the paper.

    DP10-10 is judged separately: the released code never permutes it, and the published numbers reflect that.
    """
    by_cell = flags({cell: ours for values in returned.values() for cell, ours in values.items()})
    statements = []
    for kinds, permuted in (("D5-5 and D9-1", False), ("DP10-10", True)):
        of_kind = {cell: pair for cell, pair in by_cell.items() if (cell.scenario == "DP10-10") == permuted}
        if of_kind:
            wrong = [
                f"{cell.benchmark} {cell.scenario} {cell.method}"
                for cell, (theirs, ours) in of_kind.items()
                if theirs != ours
            ]
            equal = len(of_kind) - len(wrong)
            figures = f"{equal} of {len(of_kind)}" + (f", not on {', '.join(wrong)}" if wrong else "")
            says = f"{kinds}: forgetting is catastrophic where it is in the paper, in 90 % of the cells"
            statements.append(Statement(says, equal >= 0.9 * len(of_kind), figures))
    return statements


# Tables 3 to 5 ------------------------------------------------------------------------------------


def _number(cell: Cell, runs: Sequence[Quality]) -> float:
    """A number of tables 3 to 5: that of the stream with the lowest quality."""
    worst = min(runs, key=lambda run: run.best)
    return {
        "q best": worst.best,
        "q last": min(run.last for run in runs),
        "baseline accuracy": worst.baseline,
        "Omega_all": worst.best / worst.baseline,
    }[cell.metric]


def _numbers(cell: Cell, outcomes: Sequence[CausalOutcome | None]) -> list[float]:
    """The same, one value per seed; empty if the runs of a stream failed."""
    known = [outcome for outcome in outcomes if outcome is not None]
    if len(known) < len(outcomes):
        return []
    return [_number(cell, runs) for runs in zip(*(outcome.runs for outcome in known), strict=True)]


def _piece(
    benchmark: str, kind: str, model: str, wanted: tuple[Cell, ...], interpretation: Interpretation
) -> Piece:
    """The numbers of one model, or of both ways to merge, over the streams of a type."""
    dataset, codes = DATASETS[benchmark], interpretation.streams(kind)
    merges = model == "wtIMM"
    first = MEAN if merges else model

    def plan(seeds: Sequence[int]) -> Plan[Values]:
        if merges:
            pairs = yield from together([merged(code, dataset, seeds, interpretation) for code in codes])
            return {cell: _numbers(cell, [pair[cell.method] for pair in pairs]) for cell in wanted}
        outcomes = yield from together(
            [searched(model, code, dataset, seeds, interpretation) for code in codes]
        )
        return {cell: _numbers(cell, outcomes) for cell in wanted}

    def outline() -> tuple[int, list[Experiment]]:
        """The number of candidates on all streams, and one representative per stream."""
        samples = [planned(first, code, dataset, interpretation=interpretation) for code in codes]
        return len(codes) * interpretation.candidates(first), samples

    name = f"{benchmark}/{kind}/{model}"
    return Piece(name, plan, wanted, later=interpretation.later(first), outline=outline)


def accuracies(table: str, interpretation: Interpretation = FOLLOWED) -> tuple[Piece, ...]:
    """All pieces of table 3, 4 or 5, in the order in which it prints them."""
    groups = grouped(
        cells("004", table),
        lambda cell: (cell.benchmark, cell.scenario, "wtIMM" if "IMM" in cell.method else cell.method),
    )
    return tuple(
        _piece(benchmark, kind, model, wanted, interpretation)
        for (benchmark, kind, model), wanted in groups.items()
        if interpretation.streams(kind)
    )


_SMALL_DATASETS = ("Devanagari", "MNIST", "FashionMNIST")
_SMALL_DENSE = ("FC", "EWC", "wtIMM", "D-FC", "LWTA")
_SMALL_CONVOLUTIONAL = ("CONV", "D-CONV")


def small_accuracies(table: str, interpretation: Interpretation = SMALL) -> tuple[Piece, ...]:
    """The pieces of a table in the small reading: the cheapest and most informative first, CONV last."""
    on_two_streams = replace(interpretation, codes=TWO_STREAMS)
    chosen = []
    for models, cut in ((_SMALL_DENSE, interpretation), (_SMALL_CONVOLUTIONAL, on_two_streams)):
        pieces = {piece.name: piece for piece in accuracies(table, cut)}
        names = map("/".join, product(_SMALL_DATASETS, TYPES, models))
        chosen += [pieces[name] for name in names if name in pieces]
    return tuple(chosen)


def of_type(pieces: Sequence[Piece], kind: str) -> tuple[Piece, ...]:
    """The pieces of one type of streams."""
    return tuple(piece for piece in pieces if f"/{kind}/" in piece.name)


# Table 1 ------------------------------------------------------------------------------------------


def counted(dataset: str, part: str) -> Experiment:
    """A run whose trace contains the number of samples of each of the ten classes.

    Each class is a task of one update.

    Args:
        dataset: A data set's name.
        part: `train` or `test`.
    """
    order = (*range(1, 10), 0) if dataset == "svhn" else tuple(range(10))
    stream = split(dataset, 1, setting="class", order=order)
    unused = slt("DP10-10", dataset).tasks[0].source.unused
    tasks = tuple(replace(task, source=replace(task.source, unused=unused)) for task in stream.tasks)
    return complete(
        Experiment(
            replace(stream, name=f"classes-{dataset}", tasks=tasks),
            "finetune",
            model=ModelSpec("mlp", hidden=()),
            batch_size=1,
            updates=1,
            evaluation=EvaluationSpec(**{**AT_ENDS, "on": part}),
        )
    )


def class_counts(trace: Trace) -> list[int]:
    """The number of samples of each task, from a trace that evaluated all of them."""
    sizes = dict(zip(trace.task, trace.total, strict=True))
    return [sizes[task] for task in sorted(sizes)]


def facts(benchmark: str) -> Piece:
    """The row of a data set in table 1."""
    wanted = tuple(cell for cell in cells("004", "1") if cell.benchmark == benchmark)

    def plan(_seeds: Sequence[int]) -> Plan[Values]:
        # Counting does not depend on the seed, so one run is enough.
        runs = yield [counted(DATASETS[benchmark], part) for part in ("train", "test")]
        counts: dict[str, list[int]] = {}
        for run in succeeded(runs):
            counts[run.experiment.evaluation.on] = class_counts(run.trace)
        return {cell: _fact(cell, counts) for cell in wanted}

    return Piece(benchmark, plan, wanted, 1, exact=True)


def _fact(cell: Cell, counts: Mapping[str, Sequence[int]]) -> list[float]:
    sizes = counts.get("train" if "train" in cell.metric else "test")
    if sizes is None:
        return []
    if cell.metric.startswith("n_"):
        return [float(sum(sizes))]
    return [100 * (max(sizes) - min(sizes)) / sum(sizes)]
