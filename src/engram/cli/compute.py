"""`engram compute`: methods at equal compute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.options import Json, RunPlaces
from engram.core.errors import InputError


def compute(
    runs: RunPlaces,
    at: Annotated[
        float | None,
        typer.Option(
            help="Compare at this many floating-point operations.",
            show_default="those of the cheapest method",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write a page with the curves.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare methods at equal compute: accuracy over counted operations instead of updates.

    The accuracy is the mean over all tasks of the stream, at the last evaluation that a method could afford;
    a task that it had not begun by then counts 0.
    """
    from engram.cli.output import check_output, name_incomplete, print_json, stderr, stdout
    from engram.cli.tables import Column, print_table
    from engram.results.compute import ASSUMED, at_compute, write_compute
    from engram.results.gate.writing import percent
    from engram.results.runs import find_runs, without_damaged

    if at is not None and not at > 0:
        raise InputError(f"--at must be above 0 operations, got {at:g}")
    check_output(out, *runs)
    finished = without_damaged(find_runs(runs))
    name_incomplete(finished)
    if len(finished.by_scenario()) > 1:
        raise InputError("the runs are of several scenarios, which cannot be compared: name those of one")
    groups = finished.groups()
    if not groups:
        raise InputError("nothing to compare: at least one finished run is required, got none")
    allowed, rows = at_compute(groups, at)
    if out is not None:
        write_compute(groups, at, out)
    if json:
        print_json({"flops": allowed, "methods": [row.as_json() for row in rows], "assumed": ASSUMED})
        return
    stdout.print(f"at {allowed:.3g} floating-point operations", markup=False)
    titles = ("whole run", "accuracy", "SD", "seen", "tasks", "at the end")
    cells = [
        [
            row.label,
            f"{row.total:.3g}",
            percent(row.accuracy.mean),
            percent(row.accuracy.sd) if row.accuracy.n > 1 else "–",
            percent(row.seen.mean),
            f"{row.tasks:g}",
            percent(row.final.mean),
        ]
        for row in rows
    ]
    print_table([Column("experiment"), *(Column(title, right=True) for title in titles)], cells)
    stderr.print(f"assumed: {ASSUMED}", markup=False)
    if out is not None:
        stderr.print(f"wrote {out}", markup=False, soft_wrap=True)
