"""`engram demo`: the stability gap with one's own eyes, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.output import stdout

METHODS = ("finetune", "er", "ewc")
SEEDS = 3


def demo(
    out: Annotated[Path, typer.Option(help="Where runs and report are kept.")] = Path("demo"),
) -> None:
    """Fine-tuning, ER and EWC on Split-Digits, three seeds, and a report to look at."""
    from engram.cli.options import start_computing
    from engram.cli.run import print_summary, run_all

    start_computing(None, "cpu")
    from engram.engine.recipe import experiment
    from engram.engine.where import Where
    from engram.results.runs import Runs

    runs = []
    for method in METHODS:
        planned = [experiment("split-digits", method, seed=seed) for seed in range(SEEDS)]
        runs += (over_seeds := run_all(planned, Where(out=out)))
        stdout.print(f"\n{planned[0].label}, {SEEDS} seeds", style="bold")
        print_summary(over_seeds)
    page = Runs(runs).report(out / "report.html")
    stdout.print(f"\nOpen {page} in a browser: between the ends of tasks, accuracy falls and recovers.")
