"""`engram flips`: two moments of one run, sample by sample."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.options import Json

_MOMENT = "start, end, task2 (the end of the second task), or a number of updates."


def flips(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")],
    first: Annotated[str, typer.Argument(help=f"The earlier moment: {_MOMENT}", metavar="A")],
    second: Annotated[str, typer.Argument(help="The later moment, likewise.", metavar="B")] = "end",
    json: Json = False,
) -> None:
    """Count the samples that were lost and gained between two moments of a run.

    A lost sample (a negative flip) was right at A and is wrong at B. Churn is the share of samples that are
    lost or gained. p is the exact McNemar test that losses and gains are equally likely. For runs with
    `--answers`, `answers` is the churn of the answers themselves.
    """
    from engram.cli.output import print_json, stdout
    from engram.cli.tables import Column, print_table
    from engram.results.gate.writing import p_value, percent
    from engram.results.moments import flips_between
    from engram.results.runs import load_run

    table, steps = flips_between(load_run(run), first, second)
    if json:
        print_json({"from": steps[0], "to": steps[1], "tasks": [row.as_json() for row in table]})
        return
    stdout.print(f"from update {steps[0]:,} to update {steps[1]:,}", markup=False)
    titles: tuple[str, ...] = ("samples", "before", "after", "lost", "gained", "NFR", "churn", "p", "answers")
    rows = [
        [
            row.name,
            f"{row.samples:,}",
            percent(row.before / row.samples),
            percent((row.before - row.lost + row.gained) / row.samples),
            f"{row.lost:,}",
            f"{row.gained:,}",
            percent(row.negative_flip_rate),
            percent(row.churn),
            p_value(row.p),
            "–" if row.answer_churn is None else percent(row.answer_churn),
        ]
        for row in table
    ]
    if all(row.answer_churn is None for row in table):
        titles, rows = titles[:-1], [row[:-1] for row in rows]
    print_table([Column("task"), *(Column(title, right=True) for title in titles)], rows)
