"""The job, done by engram and by others: who takes how long."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks import avalanche_env
from benchmarks.report import Options, Report, Skipped, figure, ratios
from benchmarks.turns import Contestant, Time, race
from benchmarks.work import PARTS, TASKS, updates_of_a_task, write_arrays

QUICK_UPDATES = 10
DOCUMENTED = ("avalanche-documented", "engram")
DOCUMENTED_UPDATES = 5
"""Avalanche as documented is so slow that these first updates of each task have to do."""


def measure(options: Options) -> list[Report]:
    """Time the job, lap by lap in turns."""
    settings = {
        "OMP_NUM_THREADS": str(options.threads),
        "MKL_NUM_THREADS": str(options.threads),
        "OMP_WAIT_POLICY": "passive",
        "KMP_BLOCKTIME": "0",
    }
    limit = QUICK_UPDATES if options.quick else None
    avalanche = avalanche_env.python()
    with tempfile.TemporaryDirectory() as place:
        data = Path(place)
        prepare(data)

        def run(names: list[str], updates: int | None) -> tuple[dict[str, list[Time]], int]:
            """The times of some contestants, and the most memory that engram held."""
            given = [str(data), *([] if updates is None else [str(updates)])]
            with ExitStack() as stack:
                playing = {}
                for name in names:
                    theirs = name.startswith("avalanche")
                    module = "avalanche_job" if theirs else "contestants"
                    contestant = Contestant(
                        module,
                        [name, *given],
                        settings=settings,
                        **({"python": avalanche} if theirs and avalanche else {}),
                    )
                    playing[name] = stack.enter_context(contestant)
                found = race(playing, laps=TASKS, rounds=options.rounds)
                return found, playing["engram"].peak

        names = ["engram", "by-hand", "products", *(["avalanche-tensors"] if avalanche else [])]
        times, peak = run(names, limit)
        documented, _ = run(list(DOCUMENTED), DOCUMENTED_UPDATES) if avalanche else ({}, 0)
    return [summary(times, documented, peak=peak, limit=limit, options=options)]


def prepare(place: Path) -> None:
    """Write the data where contestants read them."""
    from engram.core.errors import InputError
    from engram.datasets import InMemory, load

    try:
        found = load("fashion-mnist", download=False)
    except InputError as error:
        how = "name the folder it is in with ENGRAM_DATA, or fetch it with `engram data fashion-mnist`"
        raise Skipped(f"fashion-mnist is not at hand: {how}") from error
    assert isinstance(found.train, InMemory) and isinstance(found.test, InMemory)
    tensors = (found.train.pixels[:, 0], found.train.labels, found.test.pixels[:, 0], found.test.labels)
    write_arrays(
        {part: tensor.numpy().astype(np.uint8) for part, tensor in zip(PARTS, tensors, strict=True)}, place
    )


def summary(
    times: dict[str, list[Time]],
    documented: dict[str, list[Time]],
    *,
    peak: int,
    limit: int | None,
    options: Options,
) -> Report:
    """What the times say of engram."""
    wall = {name: [spent.wall for spent in laps] for name, laps in times.items()}
    cpu = {name: [spent.cpu for spent in laps] for name, laps in times.items()}
    shown = Report(f"The job, {options.threads} threads, {updates_of_a_task(limit)} updates a task")
    shown.figures = [
        figure("engram / loop by hand", ratios(wall["engram"], wall["by-hand"]), target=1.05),
        figure(
            "engram / loop by hand, processor time",
            ratios(cpu["engram"], cpu["by-hand"]),
            note="hardly disturbed by other processes",
        ),
        figure("engram / its matrix products", ratios(wall["engram"], wall["products"]), target=1.6),
        figure("loop by hand / its matrix products", ratios(wall["by-hand"], wall["products"])),
    ]
    if "avalanche-tensors" in wall:
        slower = ratios(wall["avalanche-tensors"], wall["engram"])
        shown.figures.append(figure("Avalanche with tensors / engram", slower, target=2.5, bound="at least"))
    if documented:
        theirs, ours = ([spent.wall for spent in documented[name]] for name in DOCUMENTED)
        shown.figures.append(
            figure(
                "Avalanche as documented / engram",
                ratios(theirs, ours),
                target=20,
                bound="at least",
                note=f"both on the first {DOCUMENTED_UPDATES} updates of each task",
            )
        )
    shown.figures.append(figure("peak memory of engram's process", [peak / 1e6], unit="MB", target=700))
    shown.remarks.append("matrix products: the job's FLOPs at the best measured rate of torch.mm")
    if "avalanche-tensors" in wall:
        shown.remarks.append(
            "of Avalanche only updates and their evaluations are counted, not what it does at task ends"
        )
    else:
        shown.remarks.append(f"Avalanche is left out: {avalanche_env.COMMAND} makes its environment")
    return shown
