"""`engram compare` of 2,000 runs, in seconds."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.report import Options, Report, figure
from engram.core.trace import Trace
from engram.metrics.summary import summarise
from engram.record.run import Run
from engram.record.tables import Tables

TASKS, EVALUATIONS, SAMPLES = 3, 3, 100


def measure(options: Options) -> list[Report]:
    """Compare many seeds of few methods, and few seeds of many."""
    shapes = [(10, 20)] if options.quick else [(20, 100), (200, 10)]
    report = Report("engram compare, with all its tests")
    for methods, seeds in shapes:
        with tempfile.TemporaryDirectory() as folder:
            write_runs(Path(folder), methods=methods, seeds=seeds)
            for arguments in ([], ["--json"]):
                command = [sys.executable, "-m", "engram.cli", "compare", folder, *arguments]
                seconds = [_seconds(command) for _ in range(options.rounds)]
                what = f"{methods * seeds:,} runs: {methods} methods × {seeds} seeds"
                report.figures.append(figure(" ".join([what, *arguments]), seconds, unit="s", target=10.0))
    return [report]


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def write_runs(folder: Path, *, methods: int, seeds: int) -> None:
    """Run folders with made-up traces: each method is a little better than the one before."""
    random = np.random.default_rng(0)
    for method in range(methods):
        for seed in range(seeds):
            trace = Trace()
            for learning in range(TASKS):
                for update in range(EVALUATIONS):
                    for task in range(learning + 1):
                        right = random.random(SAMPLES) < 0.5 + 0.4 * method / methods
                        step = learning * EVALUATIONS + update + 1
                        trace.add(step=step, learning=learning, task=task, right=right)
            measured = summarise(trace, classes_seen=[2, 4, 6])
            name = f"er-{method}-{seed}"
            Run(
                description={
                    "id": name,
                    "label": f"er-{method}",
                    "scenario": {
                        "name": "made-up",
                        "tasks": [{"name": str(task)} for task in range(TASKS)],
                        "setting": {"kind": "domain"},
                        "phases": [[task] for task in range(TASKS)],
                    },
                    "method": "er",
                    "settings": {"memory": method},
                    "evaluation": {"every": 1, "subset": SAMPLES},
                    "seed": seed,
                },
                finished=True,
                stored=measured.final,
                by_task=measured.by_task,
                why=measured.why,
                classes=(2, 4, 6),
                tables=Tables(trace),
            ).save(folder / name)
