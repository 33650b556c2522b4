"""`engram reproduce` beside two thousand finished runs: what the list of tables takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Options, Report, figure
from benchmarks.turns import ROOT

RUNS, QUICK_RUNS = 2_000, 200
TARGET = 10.0


def measure(options: Options) -> list[Report]:
    """Time whole commands: with an empty folder, and with many small made-up runs of the tables."""
    runs = QUICK_RUNS if options.quick else RUNS
    seconds: dict[str, list[float]] = {"empty": [], "full": []}
    with tempfile.TemporaryDirectory() as place:
        full, empty = Path(place, "full"), Path(place, "empty")
        made = make_runs(full, runs)
        for _ in range(options.rounds):
            for name, out in (("empty", empty), ("full", full)):
                seconds[name].append(command(out))
    shown = Report(f"engram reproduce beside {made:,} finished runs")
    shown.figures = [
        figure(f"with {made:,} runs", seconds["full"], unit="s", target=TARGET, note="on an idle machine"),
        figure("without runs", seconds["empty"], unit="s"),
    ]
    return [shown]


def make_runs(out: Path, count: int) -> int:
    """Write finished runs of the first experiments that tables and figures ask for; return their number."""
    from engram.papers.catalogue import artefacts
    from engram.record.experiment import Experiment
    from engram.record.run import Run

    planned: dict[str, Experiment] = {}
    for artefact in artefacts().values():
        for pieces in (artefact.pieces, *artefact.others.values()):
            for piece in pieces:
                # Those with an outline ask for very many.
                first = piece.first_runs() if piece.outline is None and len(planned) < count else []
                planned |= {experiment.id: experiment for experiment in first}
    for name, experiment in list(planned.items())[:count]:
        made_up = Run(planned=experiment, finished=True, stored={"AvgAcc": 0.5, "ACC": 0.5}, updates=1)
        made_up.save(out / name)
    return min(count, len(planned))


def command(out: Path) -> float:
    """The time of the command in a new interpreter."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "engram", "reproduce", "--json", "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - started
