"""What checkpoints cost: how long one takes, and which part of a run's time all of them take by default.

The second figure comes from runs that do nothing but updates and checkpoints as often as the default allows:
its least interval is shortened, so that the limit of 3 % of the time is what counts, as in long runs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.report import Options, Report, figure
from engram.core.folder import CHECKPOINT
from engram.engine import checkpoint
from engram.engine.checkpoint import LEAST_SECONDS, SHARE, Checkpoints
from engram.engine.loop import run_steps
from engram.engine.recipe import experiment
from engram.record.experiment import Experiment

NETWORKS = {"MLP 400, 400": (400, 400), "MLP 2000, 2000": (2000, 2000)}
SECONDS, QUICK_SECONDS = 30.0, 8.0


def measure(options: Options) -> list[Report]:
    """Time single checkpoints, and their share of runs of half a minute."""
    report = Report("Checkpoints, with their checksum, written to a file and synchronised")
    for name, hidden in NETWORKS.items():
        planned = experiment(
            "split-digits", "ewc", hidden=hidden, epochs=10**4, evaluation={"every": 10**9, "before": False}
        )
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / CHECKPOINT
            costs, size = single(planned, path, options.rounds)
            report.figures.append(
                figure(f"{name}: one checkpoint", costs, unit="ms", note=f"{size / 1e6:.1f} MB")
            )
            # The first one is written before its cost is known, which the rest must make up for.
            seconds = max(QUICK_SECONDS if options.quick else SECONDS, 2 * max(costs) / 1e3 / SHARE)
            part = share_of_run(planned, path, seconds)
            report.figures.append(
                figure(f"{name}: of a run's time", [100 * part], unit="%", target=100 * SHARE)
            )
    report.remarks.append(
        f"By default there is one after {LEAST_SECONDS:g} s of work, or later: a checkpoint of 0.9 s or less "
        "costs at most 3 % at that interval, and one that takes longer is written less often."
    )
    return [report]


def single(planned: Experiment, path: Path, rounds: int) -> tuple[list[float], int]:
    """The milliseconds that a checkpoint takes, and its size in bytes."""
    costs = []
    for step, _ in zip(run_steps(planned), range(rounds + 1), strict=False):
        started = time.perf_counter()
        checkpoint.save_checkpoint(path, step)
        costs.append(1e3 * (time.perf_counter() - started))
    return costs[1:], path.stat().st_size


def share_of_run(planned: Experiment, path: Path, seconds: float) -> float:
    """The share of checkpoints in the time of a run, with a least interval of a tenth of a second."""
    before, checkpoint.LEAST_SECONDS = checkpoint.LEAST_SECONDS, 0.1
    try:
        checkpoints = Checkpoints(path)
        started = time.monotonic()
        for step in run_steps(planned):
            checkpoints.updated(step)
            if time.monotonic() - started > seconds:
                break
        return checkpoints.spent / (time.monotonic() - started)
    finally:
        checkpoint.LEAST_SECONDS = before
