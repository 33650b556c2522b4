"""Run folders as `engram run` leaves them, with a simulated stability gap."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from engram.core.files import write_json, write_whole
from engram.core.jsons import JsonObject
from engram.core.trace import Trace
from engram.metrics.summary import missing, summarise

SAMPLES = 200


@dataclass(frozen=True)
class Manner:
    """How a simulated method forgets.

    Attributes:
        keep: What remains of a task's accuracy after a later one was learned, as a share.
        dip: What remains of it just after the switch.
    """

    keep: float
    dip: float


MANNERS = {"finetune": Manner(0.02, 0.01), "er": Manner(0.9, 0.35), "ewc": Manner(0.55, 0.3)}


def simulate(manner: Manner, *, seed: int, tasks: int = 5, updates: int = 100) -> Trace:
    """The trace of a stream in which each task falls at a switch and then recovers to some degree."""
    random = np.random.default_rng(seed)
    difficulty = random.uniform(size=(tasks, SAMPLES))
    trace = Trace()
    for learning in range(tasks):
        for update in range(1, updates + 1):
            for task in range(learning + 1):
                age = learning - task
                if age == 0:
                    level = 0.97 - 0.5 * np.exp(-update / 8)
                else:
                    start, end = 0.97 * manner.keep ** (age - 1), 0.97 * manner.keep**age
                    fall = np.exp(-update / 1.5)
                    recovery = 1 - np.exp(-update / 20)
                    floor = min(end, 0.97 * manner.dip)
                    level = start * fall + (1 - fall) * (floor + (end - floor) * recovery)
                noise = random.normal(0, 0.02, SAMPLES)
                right = difficulty[task] + noise < level
                trace.add(step=learning * updates + update, learning=learning, task=task, right=right)
    return trace


def write_run(
    folder: Path,
    method: str,
    *,
    seed: int,
    tasks: int = 5,
    updates: int = 100,
    label: str | None = None,
    settings: JsonObject | None = None,
    probes: bool = True,
) -> Path:
    """One complete run folder; returns it."""
    trace = simulate(MANNERS[method], seed=seed, tasks=tasks, updates=updates)
    classes = [2 * (i + 1) for i in range(tasks)]
    identity = f"{label or method}-{seed}".replace("/", "_")
    run = folder / identity
    write_json(
        run / "experiment.json",
        {
            "id": identity,
            "label": label or method,
            "scenario": {
                "name": "split-digits",
                "tasks": [
                    {"name": f"{2 * i}, {2 * i + 1}", "units": [2 * i, 2 * i + 1]} for i in range(tasks)
                ],
                "setting": {"kind": "class", "classes_known": False},
                "phases": [[i] for i in range(tasks)],
            },
            "method": method,
            "settings": settings or {},
            "model": {"name": "mlp", "hidden": [400, 400]},
            "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
            "batch_size": 32,
            "epochs": 5,
            "evaluation": {"every": 1, "subset": SAMPLES},
            "seed": seed,
        },
    )
    trace.save(run / "trace.parquet")
    if probes:
        steps = range(1, tasks * updates + 1)
        norms = [float(np.exp(-(step % updates) / 10)) for step in steps]
        rows = {
            "step": [*steps, *steps],
            "learning": [(step - 1) // updates for step in steps] * 2,
            "name": ["stability-gradient"] * len(steps) + ["plasticity-gradient"] * len(steps),
            "value": norms + [3 * norm + 0.1 * seed for norm in norms],
        }
        write_whole(run / "probes.parquet", lambda beside: pl.DataFrame(rows).write_parquet(beside))
    write_json(
        run / "result.json",
        {
            "id": identity,
            "seed": seed,
            "metrics": summarise(trace, classes_seen=classes).as_json()["final"],
            "classes": classes,
            "updates": tasks * updates,
            "evaluations": tasks * updates,
            "seconds": {"train": 1.5, "evaluate": 0.5, "total": 2.0},
            "versions": {"engram": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6", "python": "3.11.2"},
        },
    )
    return run


def write_own_loop(folder: Path, *, tasks: int = 2) -> Path:
    """A run folder as somebody's own loop saves it: hardly anything is known of the experiment."""
    trace = simulate(MANNERS["er"], seed=0, tasks=tasks, updates=20)
    run = folder / "mine"
    write_json(
        run / "experiment.json",
        {"id": "mine", "label": "mine", "seed": 0, "tasks": [str(i) for i in range(tasks)]},
    )
    trace.save(run / "trace.parquet")
    metrics = {"ACC": 0.5, "min-ACC": None}
    why = dict.fromkeys(missing(metrics), "left out of made-up runs")
    write_json(run / "result.json", {"id": "mine", "seed": 0, "metrics": metrics, "why": why})
    return run
