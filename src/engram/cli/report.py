"""`engram report`: finished runs as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.options import Plugin, RunPlaces, load_own
from engram.cli.output import check_output, name_incomplete, print_written
from engram.core.collection import without_collection


@without_collection()
def report(
    runs: RunPlaces,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    plugin: Plugin = None,
) -> None:
    """Write one self-contained HTML page about finished runs.

    Runs that differ only in the seed are shown as one mean with a band. Prints the path of the page.
    """
    from engram.results.report import write_report
    from engram.results.runs import find_runs

    check_output(out, *runs, plugin)
    load_own(plugin)
    name_incomplete(write_report(find_runs(runs), out))
    print_written(out)
