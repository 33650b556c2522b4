"""Two-level samples: errors against asking all samples at every update, and their price.

Runs that were evaluated on all samples after every update are thinned again and again, as an evaluator with
two levels of samples would have done: the bits are the same, so nothing has to be evaluated (a test holds
this). Errors are those of metrics, against their values on all samples at every update. Two levels were
developed on Fashion-MNIST; Split-MNIST and Permuted-MNIST had no part in it. Runs are
kept in `runs/two-level`: only the first time trains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.report import Figure, Options, Report
from benchmarks.turns import ROOT
from benchmarks.whole_runs import whole_run
from engram.core.jsons import JsonObject
from engram.core.trace import Trace
from engram.core.words import counted
from engram.evaluation.two_level import evaluations_of, two_levels
from engram.metrics.anchored import levels_of
from engram.metrics.extremes import estimate_extremes
from engram.metrics.registry import Options as MetricOptions
from engram.metrics.summary import summarise
from engram.record.run import Run

METHODS = ("er", "gem", "ewc", "finetune")
METRICS = {"min-ACC": 1.0, "WC-ACC": 1.0, "WF10": 2.0, "WF100": 2.0, "WP10": 2.0, "WP100": 2.0}
"""The goal for each metric: 95 % of the errors within so many points."""
PRICE = 0.30
SEEDS, QUICK_SEEDS = 10, 1
DRAWS, QUICK_DRAWS = 5, 2
UPDATES, HIDDEN = 100, (100,)
LEAST = 0.92


FOLDER = ROOT / "runs" / "two-level"


class Stream(NamedTuple):
    """What a trace is made with."""

    scenario: str
    setting: str
    method: str
    seed: int
    subset: int
    tasks: str = "seen"

    @property
    def group(self) -> str:
        """What tables call it, without the seed."""
        return f"{self.scenario.replace(':', '-')} {self.method}"


class Design(NamedTuple):
    """How samples or updates are thinned.

    Attributes:
        name: What tables call it.
        whole: Samples of each task that an evaluation of all samples asks; None for all there are.
        small: Samples of each task that are asked at every evaluation; None for all of them.
        every: Evaluate every so many updates.
        boundaries: Whether it is told which task is being learned.
    """

    name: str
    whole: int | None = None
    small: int | None = None
    every: int = 1
    boundaries: bool = True


TWO_LEVEL = Design("two-level", small=200)
OTHERS = (
    Design("two-level of 1,000", whole=1000, small=200),
    Design("two-level:100 of 1,000", whole=1000, small=100),
    Design("every 4th update", every=4),
)
UNTOLD = Design("two-level, no boundaries", small=200, boundaries=False)


def _streams(
    scenario: str, setting: str, seeds: Sequence[int], *, subset: int = 0, tasks: str = "seen"
) -> list[Stream]:
    return [Stream(scenario, setting, method, seed, subset, tasks) for seed in seeds for method in METHODS]


DEVELOPMENT = [
    *_streams("split-fashion-mnist", "class", [0], tasks="all"),
    *_streams("split-fashion-mnist", "task", [1]),
    *_streams("permuted:fashion-mnist", "domain", [0], subset=1000),
]
"""The traces on which the rule and the correction were developed."""


def goal_streams(seeds: int) -> list[Stream]:
    """The traces of the goal, which had no part in the development."""
    return [
        *_streams("split-mnist", "class", range(seeds)),
        *_streams("permuted-mnist", "domain", range(seeds), subset=2000),
    ]


UNTOLD_STREAMS = _streams("split-mnist", "class", [SEEDS], tasks="all")
"""Streams whose boundaries are not told: all tasks are evaluated from the beginning."""


@dataclass(frozen=True, slots=True)
class Row:
    """The errors of a design on the traces of one method, in points.

    Attributes:
        group: The scenario and the method.
        design: The design.
        traces: How many traces.
        price: The mean share of samples that were asked.
        errors: For each metric, the 95th percentile of its absolute error.
        largest: For each metric, the largest.
    """

    group: str
    design: str
    traces: int
    price: float
    errors: dict[str, float]
    largest: dict[str, float]


@dataclass(slots=True)
class Study(Report):
    """One row per method and design, besides the figures."""

    rows: list[Row] = field(default_factory=list)

    def as_json(self) -> JsonObject:
        """What `--json` prints."""
        return {**Report.as_json(self), "rows": [asdict(row) for row in self.rows]}

    def show(self, console: Console) -> None:
        """Print the rows, then the figures."""
        table = Table(box=None, header_style="bold")
        for column in ("traces", "design", "n", "price", *METRICS):
            table.add_column(column, justify="left" if column in ("traces", "design") else "right")
        for row in self.rows:
            errors = [f"{row.errors[name]:.2f} ({row.largest[name]:.2f})" for name in METRICS]
            table.add_row(row.group, row.design, str(row.traces), f"{row.price:.3f}", *errors)
        console.print(table)
        Report.show(self, console)


class Replay(NamedTuple):
    """One design on one trace: the price, the errors, and whether intervals hold the truth."""

    price: float
    errors: NDArray[np.float64]
    covered: NDArray[np.float64]


def measure(options: Options) -> list[Report]:
    """Thin every trace, and compare what is left with the whole."""
    # Each process computes with one thread.
    os.environ["OMP_NUM_THREADS"] = "1"
    seeds, draws = (QUICK_SEEDS, QUICK_DRAWS) if options.quick else (SEEDS, DRAWS)
    with ProcessPoolExecutor(options.threads, mp_context=get_context("spawn")) as pool:

        def study(title: str, streams: Sequence[Stream], designs: Sequence[Design]) -> Study:
            return studied(title, streams, designs, draws, pool)

        studies = [
            study("Two-level samples, traces of the development", DEVELOPMENT, [TWO_LEVEL]),
            study(
                f"Two-level samples, goal: {counted(seeds, 'seed')}, {draws} draws",
                goal_streams(seeds),
                [TWO_LEVEL, *OTHERS],
            ),
            study("Two-level samples, boundaries not told", UNTOLD_STREAMS, [UNTOLD]),
        ]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "rows.csv").write_text("".join(f"{line}\n" for line in csv_lines(studies)))
    studies[-1].remarks.append(f"all rows are in {FOLDER / 'rows.csv'}")
    return [*studies]


def studied(
    title: str, streams: Sequence[Stream], designs: Sequence[Design], draws: int, pool: ProcessPoolExecutor
) -> Study:
    """The errors of designs on some traces; the figures are those of the first design."""
    folders = {stream: whole_trace_of(stream) for stream in streams}
    shown = Study(title)
    for design in designs:
        jobs = [(stream, folder, draw) for stream, folder in folders.items() for draw in range(draws)]
        replays = list(pool.map(partial(replayed, design), *zip(*((f, d) for _, f, d in jobs), strict=True)))
        by_group: dict[str, list[Replay]] = {}
        for (stream, _, _), replay in zip(jobs, replays, strict=True):
            by_group.setdefault(stream.group, []).append(replay)
        shown.rows += [row_of(group, design, found, draws) for group, found in by_group.items()]
        shown.rows.append(row_of("all", design, replays, draws))
        if design is designs[0]:
            shown.figures = figures_of(replays, shown.rows[-1])
    shown.remarks.append(
        "errors in points: 95th percentile (largest); the figures are those of the first design"
    )
    return shown


def row_of(group: str, design: Design, replays: Sequence[Replay], draws: int) -> Row:
    """The row of some replays."""
    errors = np.abs([replay.errors for replay in replays])

    def by_metric(values: Callable[[NDArray[np.float64]], float]) -> dict[str, float]:
        known = [column[~np.isnan(column)] for column in errors.T]
        return {name: values(column) for name, column in zip(METRICS, known, strict=True)}

    return Row(
        group,
        design.name,
        len(replays) // draws,
        float(np.mean([replay.price for replay in replays])),
        by_metric(lambda column: float(np.percentile(column, 95)) if column.size else np.nan),
        by_metric(lambda column: float(column.max(initial=0.0))),
    )


def figures_of(replays: Sequence[Replay], row: Row) -> list[Figure]:
    """What was aimed at: errors, price, and the coverage of intervals."""
    prices = [replay.price for replay in replays]
    covered = np.array([replay.covered for replay in replays])
    n, held = len(replays), int((~np.isnan(covered).all(axis=1)).sum())
    return [
        Figure("price: mean share of samples asked", row.price, min(prices), max(prices), n, "", PRICE),
        *(
            Figure(f"{name}: 95 % of errors within", row.errors[name], 0.0, row.largest[name], n, "", goal)
            for name, goal in METRICS.items()
        ),
        *(
            Figure(f"{name}: intervals that hold it", share, share, share, held, "", LEAST, "at least")
            for name, share in zip(METRICS, np.nanmean(covered, axis=0).tolist(), strict=True)
        ),
    ]


def whole_trace_of(stream: Stream) -> Path:
    """The folder of the run of a stream."""
    return whole_run(
        stream.scenario,
        stream.method,
        out=FOLDER,
        setting=stream.setting,
        hidden=HIDDEN,
        seed=stream.seed,
        updates=UPDATES,
        subset=stream.subset,
        tasks=stream.tasks,
    )


@cache
def seen_trace(folder: Path, *, whole: bool) -> Trace:
    """The trace of a run; `whole` keeps evaluations of tasks before they are learned."""
    run = Run.load(folder)
    trace, kept, met = run.trace, Trace(), set[int]()
    for rows in evaluations_of(trace):
        met.update(run.phases.get(trace.learning[rows[0]], (trace.learning[rows[0]],)))
        for row in rows:
            if whole or trace.task[row] in met:
                kept.add(
                    step=trace.step[row],
                    learning=trace.learning[row],
                    task=trace.task[row],
                    right=trace.right(row),
                )
    return kept


def replayed(design: Design, folder: Path, draw: int) -> Replay:
    """A design on one trace, with samples drawn anew."""
    full = seen_trace(folder, whole=not design.boundaries)
    generator = np.random.default_rng([crc32(folder.name.encode()), draw])
    sizes = dict(zip(full.task, full.total, strict=True))
    orders = {task: generator.permutation(size) for task, size in sizes.items()}
    chosen = {task: np.sort(order[: design.whole]) for task, order in orders.items()}
    truth = full if design.whole is None else subset(full, chosen)
    if design.every > 1:
        thinned, price = every(truth, design.every), 1 / design.every
    else:
        few = {task: np.sort(order[: design.small]) for task, order in orders.items()}
        places = {task: np.searchsorted(chosen[task], rows) for task, rows in few.items()}
        thinned = two_levels(truth, places, boundaries=design.boundaries)
        levels = levels_of(thinned)
        assert levels is not None
        price = levels.share
    true = values(truth)
    covered = np.full(len(METRICS), np.nan)
    if design.small is not None and draw == 0:
        covered = holds(thinned, values(full), sizes)
    return Replay(price, 100 * (values(thinned) - true), covered)


def subset(trace: Trace, rows: Mapping[int, NDArray[np.int64]]) -> Trace:
    """The trace of some samples of each task."""
    made = Trace()
    for row, task in enumerate(trace.task):
        right = trace.right(row)[rows[task]]
        made.add(step=trace.step[row], learning=trace.learning[row], task=task, right=right)
    return made


def every(trace: Trace, number: int) -> Trace:
    """The trace of every so many updates and of task ends."""
    last = dict(zip(trace.learning, trace.step, strict=True))
    made = Trace()
    for row, (step, learning) in enumerate(zip(trace.step, trace.learning, strict=True)):
        if step % number == 0 or step == last[learning]:
            made.add(step=step, learning=learning, task=trace.task[row], right=trace.right(row))
    return made


def values(trace: Trace) -> NDArray[np.float64]:
    """The metrics of a trace. Windows are numbers of updates, whatever the distance of evaluations."""
    steps = sorted(set(trace.step))
    gap = int(np.median(np.diff(steps))) if len(steps) > 1 else 1
    windows = {name: int(name[2:]) for name in METRICS if name[:2] in ("WF", "WP")}
    asked = {
        name: f"{name[:2]}{max(1, windows[name] // gap)}" if name in windows else name for name in METRICS
    }
    options = sorted({max(1, window // gap) for window in windows.values()})
    measured = summarise(trace, windows=options, only=[*asked.values()]).final
    return np.array([measured.get(asked[name], np.nan) for name in METRICS])


def holds(thinned: Trace, truth: NDArray[np.float64], sizes: Mapping[int, int]) -> NDArray[np.float64]:
    """For each metric, whether its interval holds the value on all samples at every update."""
    estimates = estimate_extremes(thinned, sizes=sizes, options=MetricOptions(windows=(10, 100))).values
    # Rounding must not exclude the truth from an interval without width.
    slack = 1e-9
    inside = [
        np.nan
        if name not in estimates or np.isnan(value)
        else float(estimates[name].low - slack <= value <= estimates[name].high + slack)
        for name, value in zip(METRICS, truth, strict=True)
    ]
    return np.array(inside)


def csv_lines(studies: Sequence[Study]) -> Iterator[str]:
    """The rows of studies as CSV."""
    names = [f"{name} {what}" for name in METRICS for what in ("p95", "max")]
    yield ",".join(["traces", "design", "n", "price", *names])
    for row in (row for study in studies for row in study.rows):
        cells = [f"{table[name]:.3f}" for name in METRICS for table in (row.errors, row.largest)]
        yield ",".join([row.group, row.design.replace(",", ""), str(row.traces), f"{row.price:.4f}", *cells])
