"""Sweeps: two processes against one, each with one thread; and what a run costs beside the run itself."""

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
TARGET = 0.53
TINY, QUICK_TINY = 400, 100
"""So many tiny runs are made. 10,000 cost as much each (19 ms, with `python -m benchmarks.sweep tiny FOLDER
10000`)."""
TARGET_TINY = 50.0


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
    return [shown, tiny_runs(options)]


def tiny_runs(options: Options) -> Report:
    """What a run of a sweep costs beside the run itself, at two sizes, so that a growing cost shows."""
    most = QUICK_TINY if options.quick else TINY
    beside: dict[int, list[float]] = {most // 4: [], most: []}
    for _ in range(options.rounds):
        for count, measured in beside.items():
            measured.append(milliseconds_beside(count))
    shown = Report(f"Tiny runs in two processes, {most} of them")
    shown.figures = [
        figure(
            f"beside each of {most} runs",
            beside[most],
            unit="ms",
            target=TARGET_TINY,
            note="core time in both processes, without waiting for the disk",
        ),
        figure(f"beside each of {most // 4} runs", beside[most // 4], unit="ms"),
    ]
    return shown


def milliseconds_beside(count: int) -> float:
    """The core time per run of a sweep beside the run itself, in a new interpreter."""
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, "-m", "benchmarks.sweep", "tiny", place, str(count)]
        printed = subprocess.run(
            words, cwd=ROOT, env={**os.environ, **_QUIET}, check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    return float(printed)


_QUIET = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "KMP_BLOCKTIME": "0",
}


def command(way: str, updates: int) -> float:
    """The time of the sweep in a new interpreter, serially or in processes."""
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "benchmarks.sweep", way, place, str(updates)],
            cwd=ROOT,
            env={**os.environ, **_QUIET},
            check=True,
        )
        return time.perf_counter() - started


def main() -> None:
    """Run the sweep, serially or in processes."""
    way, out, number = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if way == "tiny":
        print(_beside_tiny_runs(out, number))
        return
    if way == "processes":
        from engram.executors.forkserver import prepare_workers

        # As `engram sweep` does.
        prepare_workers()
    from engram.engine.execute import execute
    from engram.engine.memory import keep_freed_memory
    from engram.engine.where import Where
    from engram.executors.processes import Processes
    from engram.protocols.sweep_file import expand

    # A common network and several seconds per run, as in real sweeps: neither the start of processes nor the
    # cache that both cores share must dominate.
    table = {
        "scenario": "split-digits",
        "method": "er",
        "hidden": [400, 400],
        "batch_size": 128,
        "updates": number,
        "every": 10,
        "seeds": RUNS,
    }
    experiments = expand(table).experiments
    if way == "serial":
        # As `engram run` does.
        keep_freed_memory()
        for planned in experiments:
            execute(planned, Where(out=out))
        return
    runs = Processes(Where(out=out, jobs=2))(experiments)
    assert all(run.finished for run in runs), [run.failure for run in runs if run.failure]


def _beside_tiny_runs(out: Path, count: int) -> float:
    """Milliseconds of core time per run beside the run itself, in the worker and in the process that asks.

    Time on a core, and not on the clock, so that other load on the machine matters little.
    """
    from engram.engine.execute import execute, run_in_memory
    from engram.engine.where import Where
    from engram.executors.processes import Processes
    from engram.protocols.sweep_file import expand

    table = {"scenario": "split-digits", "method": "finetune", "updates": 1, "every": 100, "subset": 20}
    experiments = expand({**table, "seeds": count}).experiments
    some = experiments[:40]
    for planned in some[:5]:
        run_in_memory(planned, Where(out=None))
    started = time.process_time()
    for planned in some:
        run_in_memory(planned, Where(out=None))
    itself = (time.process_time() - started) / len(some)
    started = time.process_time()
    for planned in some:
        execute(planned, Where(out=out / "here"))
    in_worker = (time.process_time() - started) / len(some) - itself
    started = time.process_time()
    runs = Processes(Where(out=out / "sweep", jobs=2))(experiments)
    asking = (time.process_time() - started) / count
    assert all(run.finished for run in runs)
    return 1000 * (in_worker + asking)


if __name__ == "__main__":
    main()
