"""Learner and evaluators side by side against evaluating in line, and against each of both alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.report import Options, Report, Skipped, figure, ratios
from benchmarks.turns import Contestant, race
from engram.engine.threads import WAITING

UPDATES, QUICK_UPDATES = 150, 50
ALONE = ("learner", "evaluator", "apart")
IN_LINE = ("off", "auto", "off-growing", "auto-growing")


def measure(options: Options) -> list[Report]:
    """Time updates with an evaluation each: alone, apart on two cores, in line, and as `auto` chooses."""
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        raise Skipped("learner and evaluator need two cores of a Linux machine")
    updates = str(QUICK_UPDATES if options.quick else UPDATES)
    with ExitStack() as stack:
        playing = {
            (way, threads): stack.enter_context(
                Contestant("beside_work", [way, updates], settings=_threads(threads))
            )
            for threads, ways in ((1, (*ALONE, *IN_LINE)), (2, IN_LINE[:2]))
            for way in ways
        }
        named = {f"{way} {threads}": contestant for (way, threads), contestant in playing.items()}
        times = race(named, laps=1, rounds=options.rounds)
    wall = {name: [spent.wall for spent in laps] for name, laps in times.items()}
    cpu = {name: [spent.cpu for spent in laps] for name, laps in times.items()}
    slower = [max(pair) for pair in zip(wall["learner 1"], wall["evaluator 1"], strict=True)]
    shown = Report(f"Side by side: {updates} updates with an evaluation each, on two cores")
    shown.figures = [
        figure(
            "apart on a core each / the slower of both alone", ratios(wall["apart 1"], slower), target=1.1
        ),
        figure("auto / in line, one thread", ratios(wall["auto 1"], wall["off 1"]), target=1.0),
        figure(
            "auto / in line, one thread, five tasks",
            ratios(wall["auto-growing 1"], wall["off-growing 1"]),
            target=1.0,
        ),
        figure("auto / in line, two threads, CPU time", ratios(cpu["auto 2"], cpu["off 2"]), target=1.02),
        figure("evaluator / learner, each alone", _ratio(wall, "evaluator 1", "learner 1")),
        figure("in line on two threads / auto on one", _ratio(wall, "off 2", "auto 1")),
    ]
    shown.remarks.append("with two threads on two cores, auto evaluates in line, so CPU time can be compared")
    return [shown]


def _ratio(wall: dict[str, list[float]], one: str, other: str) -> Sequence[float]:
    return ratios(wall[one], wall[other])


def _threads(threads: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), **WAITING}
