"""The gate on two prediction files of a million samples in a thousand slices: time and memory."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.large_results import figures_of
from benchmarks.report import Options, Report

SAMPLES, QUICK_SAMPLES = 1_000_000, 50_000
SLICES = {"customer": 700, "region": 200, "hour": 100}
"""Columns, and how many slices each divides the samples into."""
MEGABYTES = 1_000.0


def measure(options: Options) -> list[Report]:
    """Write the files, and time the whole command on them."""
    samples = QUICK_SAMPLES if options.quick else SAMPLES
    report = Report(f"The gate: {samples:,} samples, {sum(SLICES.values()):,} slices")
    with tempfile.TemporaryDirectory() as place:
        for kind in ("parquet", "csv"):
            old, new = write_predictions(Path(place), samples, kind)
            command = [sys.executable, "-m", "engram", "gate", str(old), str(new), "--max-drop", "1pp"]
            report.figures += figures_of(
                f"engram gate, {kind} files", command, options.rounds, megabytes=MEGABYTES
            )
    return [report]


def write_predictions(place: Path, samples: int, kind: str) -> tuple[Path, Path]:
    """The answers of an old and a new model to the same samples, the new ones in another order."""
    draw = np.random.default_rng(0)
    known = {name: draw.integers(count, size=samples) for name, count in SLICES.items()}
    right = draw.random(samples) < 0.9
    # Lost: one right answer in 200. Gained: one wrong answer in ten. So the gate lets the new model pass.
    then = right ^ (draw.random(samples) < np.where(right, 0.005, 0.1))
    order = draw.permutation(samples)
    number = np.arange(samples)
    files = []
    for name, rows, correct in (("old", number, right), ("new", order, then)):
        columns = {"id": rows, "correct": correct[rows], **{key: of[rows] for key, of in known.items()}}
        files.append(place / f"{name}.{kind}")
        table = pl.DataFrame(columns)
        write = table.write_parquet if kind == "parquet" else table.write_csv
        write(files[-1])
    return files[0], files[1]
