"""The time of the job, done by engram and by others."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks import avalanche_env
from benchmarks.report import Figure, Options, Report, Skipped, figure, ratios
from benchmarks.turns import Contestant, Time, race
from benchmarks.work import PARTS, TASKS, WHOLE_TASK, write_arrays
from engram.engine.threads import WAITING

QUICK_UPDATES = 10
TWO_LEVEL = {"engram-two-level": "200", "engram-two-level-100": "100"}
"""Half precision with two-level samples: how many of the 1,000 of each task are asked every time."""
LOWER_BOUNDS = {
    "by-hand-rounded": "all samples in half precision",
    "by-hand-rounded-part": "as many samples as two levels ask, in half precision",
    "by-hand-two-level": "as many in two levels, and again in full precision",
}
"""The loop by hand, with evaluations in which nothing is decided or recorded."""
DOCUMENTED_UPDATES = 5
"""Avalanche as documented is so slow that only these first updates of each task are timed."""


def measure(options: Options) -> list[Report]:
    """Time the job, task by task in turns."""
    updates = QUICK_UPDATES if options.quick else WHOLE_TASK
    nothing: list[str] = []
    ours = ("contestants", nothing, Path(sys.executable))
    jobs = dict.fromkeys(("engram", "engram-half", *TWO_LEVEL, "by-hand", *LOWER_BOUNDS, "products"), ours)
    avalanche = avalanche_env.python()
    if avalanche is not None:
        for name, made in (("avalanche-tensors", updates), ("avalanche-documented", DOCUMENTED_UPDATES)):
            jobs[name] = ("avalanche_job", [str(made)], avalanche)
    settings = {
        "OMP_NUM_THREADS": str(options.threads),
        "MKL_NUM_THREADS": str(options.threads),
        **WAITING,
    }
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        prepare(Path(place))
        playing = {}
        for name, (module, rest, python) in jobs.items():
            arguments = [name, place, str(updates), *rest]
            contestant = Contestant(module, arguments, settings=settings, python=python)
            playing[name] = stack.enter_context(contestant)
        times = race(playing, laps=TASKS, rounds=options.rounds)
        peak = playing["engram"].peak
    shown = Report(f"The job on {options.threads} threads, {updates} updates per task")
    shown.figures = [
        *against_loops(times),
        *(against_avalanche(times) if avalanche is not None else []),
        figure("peak memory of engram's process", [peak / 1e6], unit="MB", target=700),
    ]
    shown.remarks.append("matrix products: the job's FLOPs at the best measured rate of torch.mm")
    if options.quick:
        shown.remarks.append("quick: work that is done once per task weighs more than in the whole job")
    if avalanche is None:
        shown.remarks.append(f"Avalanche is left out: {avalanche_env.COMMAND} creates its environment")
    return [shown]


def prepare(place: Path) -> None:
    """Write the data to the folder that contestants read."""
    from engram.core.errors import InputError
    from engram.datasets import InMemory, load

    try:
        dataset = load("fashion-mnist", download=False)
    except InputError as error:
        how = "name the folder it is in with ENGRAM_DATA, or fetch it with `engram data fashion-mnist`"
        raise Skipped(f"fashion-mnist is missing: {how}") from error
    assert isinstance(dataset.train, InMemory) and isinstance(dataset.test, InMemory)
    tensors = (
        dataset.train.pixels[:, 0],
        dataset.train.labels,
        dataset.test.pixels[:, 0],
        dataset.test.labels,
    )
    arrays = {part: tensor.numpy().astype(np.uint8) for part, tensor in zip(PARTS, tensors, strict=True)}
    write_arrays(arrays, place)


def against_loops(times: dict[str, list[Time]]) -> list[Figure]:
    """engram against a loop by hand, and both against their matrix products."""
    wall = {name: [spent.wall for spent in laps] for name, laps in times.items()}
    cpu = {name: [spent.cpu for spent in laps] for name, laps in times.items()}
    return [
        figure("engram / loop by hand", ratios(wall["engram"], wall["by-hand"]), target=1.05),
        figure(
            "engram / loop by hand, CPU time",
            ratios(cpu["engram"], cpu["by-hand"]),
            note="hardly affected by other processes",
        ),
        figure(
            "engram in half precision, checked / loop by hand",
            ratios(wall["engram-half"], wall["by-hand"]),
            target=0.75,
        ),
        figure(
            "engram in half precision, checked / loop by hand, CPU time",
            ratios(cpu["engram-half"], cpu["by-hand"]),
        ),
        *(
            figure(
                f"engram in half precision, {small} of 1,000 samples every time / loop by hand{words}",
                ratios(spent[name], spent["by-hand"]),
                target=target,
            )
            for name, small in TWO_LEVEL.items()
            for words, spent, target in (("", wall, 0.45), (", CPU time", cpu, None))
        ),
        *(
            figure(
                f"loop by hand, {what} / loop by hand{words}",
                ratios(spent[name], spent["by-hand"]),
                note="a lower bound",
            )
            for name, what in LOWER_BOUNDS.items()
            for words, spent in (("", wall), (", CPU time", cpu))
        ),
        figure("engram / its matrix products", ratios(wall["engram"], wall["products"]), target=1.6),
        figure("loop by hand / its matrix products", ratios(wall["by-hand"], wall["products"])),
    ]


def against_avalanche(times: dict[str, list[Time]]) -> list[Figure]:
    """Avalanche against engram."""
    wall = {name: [spent.wall for spent in laps] for name, laps in times.items()}
    return [
        figure(
            "Avalanche with tensors / engram",
            ratios(wall["avalanche-tensors"], wall["engram"]),
            target=2.5,
            bound="at least",
        ),
        figure(
            "Avalanche as documented / engram",
            ratios(wall["avalanche-documented"], wall["engram"]),
            target=20,
            bound="at least",
            note=f"its updates scaled from the first {DOCUMENTED_UPDATES} of each task",
        ),
    ]
