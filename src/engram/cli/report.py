"""`engram report`: finished runs as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.output import stderr


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders that contain runs.", metavar="RUNS")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one self-contained HTML page about finished runs.

    Runs that differ only in the seed are shown as one mean with a band. Prints the path of the page.
    """
    from engram.results.report import write_report
    from engram.results.store import find_runs, unfinished_runs

    finished = find_runs(runs)
    for folder in unfinished_runs(runs):
        stderr.print(f"left out because it is not finished: {folder}", markup=False, soft_wrap=True)
    write_report(finished, out)
    typer.echo(out)
