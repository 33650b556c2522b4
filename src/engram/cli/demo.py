"""`engram demo`: see the stability gap, in less than a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.output import stdout

METHODS = ("finetune", "er", "ewc")
SEEDS = 3


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and report.")] = Path("demo"),
) -> None:
    """Run fine-tuning, ER and EWC on Split-Digits with three seeds, and write a report.

    Needs no download and takes less than a minute.
    """
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
    stdout.print(
        f"\nOpen {page} in a browser: when a task begins, the accuracy on earlier tasks drops and recovers.",
        soft_wrap=True,
    )
