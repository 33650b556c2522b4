"""What limits very many runs: sizes, numbers of files, and core time and memory of commands at two sizes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.large_results import EVALUATIONS, SAMPLES, TASKS, made_up
from benchmarks.report import Figure, Options, Report, figure
from benchmarks.turns import ROOT

COUNTS, QUICK_COUNTS = (1_000, 10_000), (100, 1_000)
BOTH = (
    ("status",),
    ("table",),
    ("compare", "--metric", "ACC"),
    ("audit",),
    ("report", "-o", "{place}/report.html"),
)
"""Commands that read folders and stores."""


def measure(options: Options) -> list[Report]:
    """Write made-up runs as folders, compact them, and measure whole commands on both."""
    return [_at(count) for count in (QUICK_COUNTS if options.quick else COUNTS)]


def _at(count: int) -> Report:
    with tempfile.TemporaryDirectory() as place:
        folders, store = Path(place, "runs"), Path(place, "store")
        started = time.process_time()
        for run in made_up(count):
            run.save(folders / run.id)
        written = time.process_time() - started
        report = Report(
            f"{count:,} runs of {TASKS} tasks, {EVALUATIONS} evaluations of {SAMPLES} samples of each task"
        )
        report.figures.append(figure("written as folders, per run", [1000 * written / count], unit="ms"))
        report.figures += _sizes("folder", folders, count)
        report.figures += _command("compact", ["compact", str(folders), "-o", str(store)])
        report.figures += _sizes("store", store, count)
        for what, target in (("folders", folders), ("store", store)):
            for verb, *rest in BOTH:
                words = [verb, str(target), *(word.format(place=place) for word in rest)]
                report.figures += _command(f"{verb}, {what}", words)
    return report


def _sizes(what: str, place: Path, count: int) -> list[Figure]:
    files = [path for path in place.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    blocks = sum(path.stat().st_blocks * 512 for path in files)
    return [
        figure(f"{what}: bytes per run", [size / count / 1000], unit="kB"),
        figure(f"{what}: bytes on disk per run", [blocks / count / 1000], unit="kB"),
        figure(f"{what}: files", [float(len(files))], unit=""),
    ]


def _command(what: str, words: list[str]) -> list[Figure]:
    """The core time and the memory of a command in a new interpreter."""
    told = subprocess.run(
        [sys.executable, "-c", _MEASURED, sys.executable, "-m", "engram", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return [
        figure(what, [float(told[0])], unit="s", note="core time"),
        figure(f"{what}, memory", [float(told[1]) * _UNIT / 1e6], unit="MB"),
    ]


_MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
assert code in (0, 1), code
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
_UNIT = 1 if sys.platform == "darwin" else 1024
"""In how many bytes `ru_maxrss` counts."""
