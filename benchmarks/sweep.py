"""A sweep of sixteen equal runs: two processes against one, each with one thread."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Options, Report, figure, ratios
from benchmarks.turns import ROOT

RUNS = 16
UPDATES, QUICK_UPDATES = 600, 40
TARGET = 0.56


def measure(options: Options) -> list[Report]:
    """Time whole commands from start to end: one run after the other, and two in parallel."""
    updates = QUICK_UPDATES if options.quick else UPDATES
    seconds: dict[str, list[float]] = {"serial": [], "processes": []}
    for number in range(options.rounds):
        # The order changes from round to round.
        for way in sorted(seconds, reverse=bool(number % 2)):
            seconds[way].append(command(way, updates))
    shown = Report(f"A sweep of {RUNS} equal runs, {updates} updates per task")
    shown.figures = [
        figure(
            "two processes / one process, one thread",
            ratios(seconds["processes"], seconds["serial"]),
            target=TARGET,
            note="on two idle cores",
        ),
        figure("one process, one thread", seconds["serial"], unit="s"),
        figure("two processes", seconds["processes"], unit="s"),
    ]
    return [shown]


def command(way: str, updates: int) -> float:
    """The time of the sweep in a new interpreter, serially or in processes."""
    quiet = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
        "KMP_BLOCKTIME": "0",
    }
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "benchmarks.sweep", way, place, str(updates)],
            cwd=ROOT,
            env={**os.environ, **quiet},
            check=True,
        )
        return time.perf_counter() - started


def main() -> None:
    """Run the sweep, serially or in processes."""
    from engram.engine.execute import execute
    from engram.engine.where import Where
    from engram.executors.processes import Processes
    from engram.protocols.sweep_file import expand

    way, out, updates = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    # A common network and several seconds per run, as in real sweeps: neither the start of processes nor the
    # cache that both cores share must dominate.
    table = {
        "scenario": "split-digits",
        "method": "er",
        "hidden": [400, 400],
        "batch_size": 128,
        "updates": updates,
        "every": 10,
        "seeds": RUNS,
    }
    experiments = expand(table).experiments
    if way == "serial":
        for planned in experiments:
            execute(planned, Where(out=out))
        return
    runs = Processes(Where(out=out, jobs=2))(experiments)
    assert all(run.finished for run in runs), [run.failure for run in runs if run.failure]


if __name__ == "__main__":
    main()
