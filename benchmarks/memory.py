"""Updates of a large network: freed memory kept by the process, and returned to the system.

`python -m benchmarks.memory UPDATES WAY` is started here and works in turns.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from itertools import islice

from benchmarks.report import Options, Report, figure, ratios
from benchmarks.turns import Contestant, Lap, play, race

UPDATES, QUICK_UPDATES = 200, 40
HIDDEN = (1000, 1000, 1000)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
RETURNED, KEPT = "returned to the system", "kept by the process"


def measure(options: Options) -> list[Report]:
    """Time updates of SI in two processes that allocate memory differently, one thread each."""
    updates = str(QUICK_UPDATES if options.quick else UPDATES)
    with ExitStack() as stack:
        playing = {
            way: stack.enter_context(Contestant("memory", [updates, way], settings=ONE_THREAD))
            for way in (RETURNED, KEPT)
        }
        times = race(playing, laps=1, rounds=options.rounds)
    cpu = {way: [spent.cpu for spent in laps] for way, laps in times.items()}
    shown = Report(
        f"SI on a network with {len(HIDDEN)} layers of {HIDDEN[0]} units, CPU time of {updates} updates"
    )
    shown.figures = [figure(f"freed memory {KEPT} / {RETURNED}", ratios(cpu[KEPT], cpu[RETURNED]))]
    return [shown]


def updates_of_si(lap: Lap, *, updates: int) -> None:
    """Some updates, without evaluation."""
    from engram.engine.loop import run_steps
    from engram.engine.recipe import experiment

    planned = experiment("permuted-digits", "si", hidden=HIDDEN, batch_size=128, optimizer="adam")
    steps = run_steps(planned, watch=False)
    next(steps)
    lap()
    for _ in islice(steps, updates):
        pass
    lap()


if __name__ == "__main__":
    if sys.argv[2] == KEPT:
        from engram.engine.memory import keep_freed_memory

        keep_freed_memory()
    job = partial(updates_of_si, updates=int(sys.argv[1]))
    play(job, rehearsal=partial(updates_of_si, updates=2))
