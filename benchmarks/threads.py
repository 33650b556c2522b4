"""Threads on an idle and on a busy machine: one, two that spin while they wait, two that sleep."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.report import Options, Report, figure, ratios
from benchmarks.turns import Contestant, race
from engram.engine.threads import WAITING

UPDATES, QUICK_UPDATES = 30, 8
_TWO = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
WAYS = {
    "one thread": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    "two that spin": _TWO,
    "two that sleep at once": {**_TWO, "OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"},
    "two that soon sleep": {**_TWO, **WAITING},
}
"""By default, OpenMP's threads spin for a while before they sleep."""


def measure(options: Options) -> list[Report]:
    """Time the job's updates and evaluations on synthetic data, next to 0, 1 and 2 busy loops."""
    updates = str(QUICK_UPDATES if options.quick else UPDATES)
    shown = Report("Threads: time against two threads that soon sleep")
    with ExitStack() as stack:
        playing = {
            way: stack.enter_context(Contestant("inner_work", [updates], settings=settings))
            for way, settings in WAYS.items()
        }
        quiet: list[float] = []
        for loops, beside in enumerate(("nothing", "one busy loop", "two busy loops")):
            with busy(loops):
                times = race(playing, laps=1, rounds=options.rounds)
            wall = {way: [spent.wall for spent in laps] for way, laps in times.items()}
            sleeping = wall["two that soon sleep"]
            quiet = quiet or sleeping
            for way in list(WAYS)[:-1]:
                shown.figures.append(figure(f"{way}, beside {beside}", ratios(wall[way], sleeping)))
            if loops:
                slower = ratios(sleeping, quiet)
                shown.figures.append(figure(f"two that soon sleep, beside {beside} / nothing", slower))
    return [shown]


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep `loops` cores busy."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
