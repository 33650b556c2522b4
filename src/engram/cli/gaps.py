"""`engram gaps`: the stability gaps of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.options import Json


def gaps(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")],
    tolerance: Annotated[
        float, typer.Option(help="A task is back once it is at most this far below its accuracy before.")
    ] = 0.01,
    json: Json = False,
) -> None:
    """List every stability gap of a run: one row per task switch and earlier task.

    The area is the accuracy that the task lacked, summed over updates, in percentage points times updates.
    Updates are counted from the switch to the lowest accuracy, and until the task was back.
    """
    from engram.cli.output import print_json, stdout
    from engram.cli.tables import Column, print_table
    from engram.metrics.gaps import mean_recovery, stability_gaps
    from engram.results.gate.writing import percent
    from engram.results.runs import load_run

    loaded = load_run(run)
    table = stability_gaps(loaded.curve, tolerance=tolerance)
    if json:
        print_json({"tolerance": tolerance, "gaps": [gap.as_json() for gap in table]})
        return
    if not table:
        stdout.print("no earlier task was evaluated while a later one was learned: there are no gaps")
        return
    rows = [
        [
            loaded.phase_name(gap.phase),
            loaded.task_name(gap.task),
            *(percent(value) for value in (gap.before, gap.lowest, gap.after, gap.depth)),
            f"{100 * gap.area:,.0f}",
            f"{gap.updates_to_lowest:,}",
            "–" if gap.updates_to_recovery is None else f"{gap.updates_to_recovery:,}",
        ]
        for gap in table
    ]
    titles = ("before", "lowest", "after", "depth", "area", "to lowest", "to recovery")
    columns = [Column("learning"), Column("task"), *(Column(title, right=True) for title in titles)]
    print_table(columns, rows)
    fell = [gap for gap in table if gap.depth > tolerance]
    back = [gap for gap in fell if gap.updates_to_recovery is not None]
    updates = mean_recovery(fell)
    average = "" if updates != updates else f", after {updates:,.0f} updates on average"
    stdout.print(f"{len(back)} of {len(fell)} that fell came back{average}", markup=False)
