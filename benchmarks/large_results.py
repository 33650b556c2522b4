"""A compact store of 10,000 made-up runs with 24 million evaluation rows: what commands take to answer."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, Options, Report, figure
from benchmarks.turns import ROOT
from engram.core.scores import Scores
from engram.core.trace import Trace
from engram.record.answers import Answers
from engram.record.run import Run
from engram.record.samples import Samples
from engram.record.tables import Tables
from engram.results.store import compact

METHODS = ("er", "finetune", "ewc", "gem", "si", "mas", "lwf", "a-gem", "l2", "gdumb")
RUNS, QUICK_RUNS = 10_000, 500
TASKS, EVALUATIONS, SAMPLES = 5, 480, 100
SECONDS, MEGABYTES = 5.0, 2_000.0


def measure(options: Options) -> list[Report]:
    """Write the store, and time whole commands on it."""
    runs = QUICK_RUNS if options.quick else RUNS
    with tempfile.TemporaryDirectory() as place:
        store = Path(place, "store")
        started = time.perf_counter()
        written = compact(made_up(runs), store)
        rows = runs * TASKS * EVALUATIONS
        report = Report(
            f"{runs:,} runs with {rows / 1e6:.1f} million evaluation rows in {written.files} files"
        )
        report.remarks.append(
            f"written in {time.perf_counter() - started:.0f} s, {written.size / 1e6:,.0f} MB; {SAMPLES} "
            "samples per evaluation"
        )
        for arguments in (
            ["table"],
            ["compare", "--metric", "ACC"],
            ["report", "-o", f"{place}/report.html"],
        ):
            verb, *rest = arguments
            command = [sys.executable, "-m", "engram", verb, str(store), *rest]
            report.figures += figures_of(f"engram {verb}", command, options.rounds, megabytes=MEGABYTES)
        load = "import sys, engram; engram.load(sys.argv[1]).frame()"
        command = [sys.executable, "-c", load, str(store)]
        report.figures += figures_of("engram.load(...).frame()", command, options.rounds, megabytes=MEGABYTES)
    return [report]


def made_up(count: int) -> Iterator[Run]:
    """Runs of ten methods on Split-Digits, with made-up traces and metrics, and all else as a run has it."""
    import engram

    random = np.random.default_rng(0)
    plain = engram.run("split-digits", "er", updates=20)
    for number in range(count):
        seed, method = divmod(number, len(METHODS))
        name = METHODS[method]
        description = {
            **plain.description,
            "id": f"split-digits-{name}-s{seed}-{number:012x}",
            "label": f"{name} on split-digits",
            "method": name,
            "seed": seed,
        }
        stored = {metric: value + float(random.normal(0, 0.01)) for metric, value in plain.stored.items()}
        tables = _MadeUp(number, plain.samples)
        yield replace(plain, planned=None, description=description, stored=stored, tables=tables)


class _MadeUp(Tables):
    """The tables of a made-up run, whose trace is drawn when it is asked for: together they are large."""

    def __init__(self, number: int, samples: Samples | None) -> None:
        self.number = number
        self.ends, self.scores, self.answers = Trace(), Scores(), Answers()
        self.readings, self.samples = (), samples

    @property
    def trace(self) -> Trace:  # type: ignore[override]
        """Every task at every evaluation, right in seven of ten cases."""
        rows = EVALUATIONS * TASKS
        right = np.random.default_rng(self.number).random((rows, SAMPLES), dtype=np.float32) < 0.7
        step = np.repeat(np.arange(1, EVALUATIONS + 1), TASKS)
        return Trace(
            step=step.tolist(),
            learning=((step - 1) * TASKS // EVALUATIONS).tolist(),
            task=np.tile(np.arange(TASKS), EVALUATIONS).tolist(),
            correct=right.sum(axis=1).tolist(),
            total=[SAMPLES] * rows,
            bits=[row.tobytes() for row in np.packbits(right, axis=1)],
        )


def figures_of(what: str, command: list[str], rounds: int, *, megabytes: float) -> list[Figure]:
    """The time and the memory of a command in a new interpreter.

    Args:
        what: What is measured.
        command: Its words; it must succeed.
        rounds: How often it is measured.
        megabytes: The memory that it may take.
    """
    seconds, peaks = [], []
    for _ in range(rounds):
        # The peak of a process counts that of the one it was forked from: so a small one starts it.
        told = subprocess.run(
            [sys.executable, "-c", _MEASURED, *command],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        seconds.append(float(told[0]))
        peaks.append(float(told[1]) * _UNIT / 1e6)
    return [
        figure(what, seconds, unit="s", target=SECONDS, note="on an idle machine"),
        figure(f"{what}, memory", peaks, unit="MB", target=megabytes),
    ]


_MEASURED = """
import resource, subprocess, sys, time
started = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
_UNIT = 1 if sys.platform == "darwin" else 1024
"""In how many bytes `ru_maxrss` counts."""
