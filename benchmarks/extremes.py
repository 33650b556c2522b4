"""Extremes on subsets: bias, error and coverage, as measured and corrected, against whole test sets.

Three methods learn Split-MNIST and are evaluated on all test samples after every update. From each trace,
subsets are drawn again and again, as an evaluator draws them, and the estimates from a subset are compared
with the value on all samples. The same is done with other data, another network and another seed, which had
no part in the choice of the interval. Runs are kept in `runs/extremes`: only the first time trains.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
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
from engram.metrics.extremes import estimate_extremes
from engram.metrics.registry import Options as MetricOptions
from engram.metrics.summary import summarise
from engram.record.run import Run


class Stream(NamedTuple):
    """What a trace is made with."""

    scenario: str
    method: str
    setting: str
    hidden: tuple[int, ...]
    seed: int

    @property
    def name(self) -> str:
        """What tables call it."""
        data = "" if self.scenario == "split-mnist" else f" {self.scenario.removeprefix('split-')}"
        return f"{self.method} {self.setting}{data}"


_PAIRS = [(method, setting) for setting in ("class", "task") for method in ("er", "gem", "ewc")]
CHOSEN_ON = [Stream("split-mnist", method, setting, (100, 100), 0) for method, setting in _PAIRS]
"""The traces on which the interval was chosen."""
OTHERS = [Stream("split-fashion-mnist", method, setting, (64,), 1) for method, setting in _PAIRS]
"""Traces that were first looked at when the interval was settled."""
METRICS = ("min-ACC", "WC-ACC", "WF10", "WF100", "WP10")
SAMPLES = (100, 300, 1000)
DRAWS, QUICK_DRAWS = 200, 20
UPDATES = 200
LEAST, MOST = 0.92, 0.98
CHUNK = 10


@dataclass(frozen=True, slots=True)
class Row:
    """How well one metric of one trace is estimated from subsets of one size, in points.

    Attributes:
        trace: The method and the setting.
        samples: Samples of each task in a subset.
        metric: The metric.
        truth: Its value on all samples.
        bias: The mean error, as measured and corrected.
        error: The root mean square error, likewise.
        coverage: The share of intervals that contain the truth: of the same width around the value as
            measured, and around the corrected one.
    """

    trace: str
    samples: int
    metric: str
    truth: float
    bias: tuple[float, float]
    error: tuple[float, float]
    coverage: tuple[float, float]

    @property
    def exact(self) -> bool:
        """Whether there is no error at all, so that every interval contains the truth."""
        return self.error[1] == 0


@dataclass(slots=True)
class Comparison(Report):
    """One row per trace, size and metric, and their means over traces, besides the figures."""

    rows: list[Row] = field(default_factory=list)
    means: list[Row] = field(default_factory=list)

    def as_json(self) -> JsonObject:
        """What `--json` prints."""
        tables = {"rows": self.rows, "means": self.means}
        return {
            **Report.as_json(self),
            **{name: [asdict(row) for row in table] for name, table in tables.items()},
        }

    def show(self, console: Console) -> None:
        """Print all tables."""
        for rows in (self.rows, self.means):
            table = Table(box=None, header_style="bold")
            for column in ("trace", "samples", "metric", "truth", "bias", "→", "RMSE", "→", "coverage", "→"):
                table.add_column(column, justify="left" if column in ("trace", "metric") else "right")
            for row in rows:
                pairs = [f"{value:+.2f}" for value in row.bias] + [f"{value:.2f}" for value in row.error]
                covered = [f"{value:.3f}" for value in row.coverage]
                covered[1] += " (exact)" if row.exact else ""
                table.add_row(row.trace, str(row.samples), row.metric, f"{row.truth:.2f}", *pairs, *covered)
            console.print(table)
        Report.show(self, console)


def measure(options: Options) -> list[Report]:
    """Draw subsets of every trace, and compare what they say with all samples."""
    # Each process computes with one thread.
    os.environ["OMP_NUM_THREADS"] = "1"
    draws = QUICK_DRAWS if options.quick else DRAWS
    with ProcessPoolExecutor(options.threads, mp_context=get_context("spawn")) as pool:
        return [
            compared(streams, words, draws, pool)
            for streams, words in ((CHOSEN_ON, "on which it was chosen"), (OTHERS, "on other traces"))
        ]


def compared(streams: Sequence[Stream], words: str, draws: int, pool: ProcessPoolExecutor) -> Comparison:
    """The estimates from subsets of some traces, and the values on all samples."""
    folders = {stream.name: whole_trace_of(stream) for stream in streams}
    sizes = ", ".join(map(str, SAMPLES))
    shown = Comparison(f"Extremes on subsets of {sizes} samples, {draws} draws each, {words}")
    for name, folder in folders.items():
        truth = final(Run.load(folder).trace)
        for samples in SAMPLES:
            chunks = [range(first, min(first + CHUNK, draws)) for first in range(0, draws, CHUNK)]
            tables = np.concatenate(list(pool.map(partial(estimates, folder, samples), chunks)))
            shown.rows += rows(name, samples, truth, tables)
        noise = np.mean(list(pool.map(partial(redrawn, folder, SAMPLES[0]), range(8))), axis=0) - truth
        errors = ", ".join(f"{m} {100 * e:+.1f}" for m, e in zip(METRICS, noise, strict=True))
        shown.remarks.append(f"{name}, {SAMPLES[0]} samples redrawn for every evaluation: {errors} points")
    shown.means = [
        mean_row([row for row in shown.rows if (row.samples, row.metric) == (samples, metric)])
        for samples in SAMPLES
        for metric in METRICS
    ]
    covered = [row.coverage[1] for row in shown.means]
    shown.figures = [
        Figure(
            "lowest mean coverage",
            min(covered),
            min(covered),
            max(covered),
            len(covered),
            "",
            LEAST,
            "at least",
        ),
        Figure("highest mean coverage", max(covered), min(covered), max(covered), len(covered), "", MOST),
    ]
    shown.remarks.append("means over traces leave out those in which a metric has no error at all")
    return shown


def mean_row(table: Sequence[Row]) -> Row:
    """The mean of a metric over traces; biases may cancel, so that their sizes are averaged."""
    kept = [row for row in table if not row.exact]

    def mean(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
        first, second = np.abs(values).mean(axis=0).tolist()
        return first, second

    return Row(
        trace="mean",
        samples=table[0].samples,
        metric=table[0].metric,
        truth=float(np.mean([row.truth for row in kept])),
        bias=mean([row.bias for row in kept]),
        error=mean([row.error for row in kept]),
        coverage=mean([row.coverage for row in kept]),
    )


def rows(name: str, samples: int, truth: NDArray[np.float64], tables: NDArray[np.float64]) -> list[Row]:
    """The rows of one trace and size; `tables[draw, metric]` has measured, corrected, low and high."""
    made = []
    for place, metric in enumerate(METRICS):
        measured, corrected, low, high = tables[:, place].T
        half = (high - low) / 2
        errors = (measured - truth[place], corrected - truth[place])
        # Rounding must not exclude the truth from an interval without width.
        slack = 1e-9
        made.append(
            Row(
                trace=name,
                samples=samples,
                metric=metric,
                truth=100 * float(truth[place]),
                bias=(100 * float(errors[0].mean()), 100 * float(errors[1].mean())),
                error=(_rms(errors[0]), _rms(errors[1])),
                coverage=(
                    float((np.abs(errors[0]) <= half + slack).mean()),
                    float(((low - slack <= truth[place]) & (truth[place] <= high + slack)).mean()),
                ),
            )
        )
    return made


def _rms(errors: NDArray[np.float64]) -> float:
    return 100 * float(np.sqrt((errors**2).mean()))


def whole_trace_of(stream: Stream) -> Path:
    """The folder of the run of a stream."""
    return whole_run(
        stream.scenario,
        stream.method,
        out=ROOT / "runs" / "extremes",
        setting=stream.setting,
        hidden=stream.hidden,
        seed=stream.seed,
        updates=UPDATES,
        subset=0,
    )


@cache
def answers(folder: Path) -> tuple[Trace, dict[int, NDArray[np.uint8]]]:
    """The trace of a run, and for each task `right[evaluation, sample]`."""
    trace = Run.load(folder).trace
    tasks = np.asarray(trace.task)
    return trace, {
        int(task): np.array([trace.right(int(row)) for row in np.flatnonzero(tasks == task)], dtype=np.uint8)
        for task in np.unique(tasks)
    }


def final(trace: Trace) -> NDArray[np.float64]:
    """The metrics of a trace."""
    measured = summarise(trace, only=METRICS).final
    return np.array([measured[metric] for metric in METRICS])


def estimates(folder: Path, samples: int, draws: Sequence[int]) -> NDArray[np.float64]:
    """For each draw and metric: the value on the subset, the corrected one, and its interval."""
    _, whole = answers(folder)
    sizes = {task: right.shape[1] for task, right in whole.items()}
    tables = []
    for number in draws:
        trace = subset(folder, samples, generator(folder, samples, number))
        corrected = estimate_extremes(trace, sizes=sizes, options=MetricOptions(windows=(10, 100))).values
        tables.append(
            [
                [value, corrected[name].corrected, corrected[name].low, corrected[name].high]
                for name, value in zip(METRICS, final(trace), strict=True)
            ]
        )
    return np.array(tables)


def redrawn(folder: Path, samples: int, number: int) -> NDArray[np.float64]:
    """The metrics of subsets that are drawn again for every evaluation."""
    return final(subset(folder, samples, generator(folder, samples, number), redraw=True))


def generator(folder: Path, samples: int, number: int) -> np.random.Generator:
    """Other draws for every trace, so that their luck is not shared."""
    return np.random.default_rng([crc32(folder.name.encode()), samples, number])


def subset(folder: Path, samples: int, draw: np.random.Generator, *, redraw: bool = False) -> Trace:
    """The trace of a run that evaluates some samples of each task."""
    trace, whole = answers(folder)
    rows: dict[int, list[tuple[int, bytes]]] = {}
    for task, right in whole.items():
        if redraw:
            chosen = np.array([row[draw.permutation(len(row))[:samples]] for row in right])
        else:
            chosen = right[:, draw.permutation(right.shape[1])[:samples]]
        counts = chosen.sum(axis=1, dtype=np.int64).tolist()
        packed = [row.tobytes() for row in np.packbits(chosen, axis=1)]
        rows[task] = [*zip(counts, packed, strict=True)][::-1]
    correct, bits = zip(*(rows[task].pop() for task in trace.task), strict=True)
    totals = [samples] * len(trace)
    return Trace(trace.step, trace.learning, trace.task, [*correct], totals, [*bits])
