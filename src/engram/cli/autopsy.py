"""`engram autopsy`: the deepest dip of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.options import Json


def autopsy(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or STORE/ID.", metavar="RUN")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("autopsy.html"),
    task: Annotated[
        int | None,
        typer.Option(help="Look at this task only: its number in the order of learning, from 1."),
    ] = None,
    step: Annotated[
        int | None, typer.Option(help="Look at the dip that was under way after this many updates.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a page about the deepest dip of a run: what fell, why, and how it came back.

    Runs with `--answers` show what samples were taken for, runs with `--losses --gradients` the losses and
    gradient norms around the dip.
    """
    from engram.cli.output import check_output, print_json, stderr, stdout
    from engram.results.autopsy import examine
    from engram.results.autopsy_page import write_autopsy
    from engram.results.runs import one_run

    check_output(out, run)
    examined = examine(one_run(run), task=task, step=step)
    write_autopsy(examined, out)
    if json:
        print_json({**examined.as_json(), "page": str(out)})
        return
    for line in examined.summary():
        stdout.print(line, markup=False, soft_wrap=True)
    for line in examined.lacking:
        stderr.print(f"not shown: {line}", markup=False, soft_wrap=True)
    if examined.again is not None:
        stderr.print(f"look closer: {examined.again}", markup=False, soft_wrap=True)
    stderr.print(f"wrote {out}", markup=False, soft_wrap=True)
