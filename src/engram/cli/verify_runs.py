"""`engram verify runs`: whether runs are what was written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.output import print_json, stdout
from engram.core.errors import InputError

if TYPE_CHECKING:
    from engram.results.integrity import Checked


def runs(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, folders of runs, or compact stores.", metavar="RUNS")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check every file of runs against its checksum and every metric against the trace.

    Names every run that is damaged, failed, interrupted, killed or still running. Exits with 1 if a run is
    damaged. Runs that were made before checksums were recorded are only checked for contradictions.
    """
    from engram.results.integrity import check_runs

    checked = list(check_runs(runs))
    if not checked:
        raise InputError(f"no run found in {', '.join(map(str, runs))}: pass folders that contain runs")
    counts = Counter(run.status for run in checked)
    if json:
        print_json({"counts": dict(counts), "runs": [_as_json(run) for run in checked]})
    else:
        _print(checked)
        stdout.print(", ".join(f"{count} {status}" for status, count in counts.items()))
    if counts["damaged"]:
        raise typer.Exit(1)


def _print(checked: list[Checked]) -> None:
    for run in checked:
        for problem in run.problems:
            stdout.print(f"{run.status}: {run.folder}: {problem}", soft_wrap=True, markup=False)


def _as_json(run: Checked) -> dict[str, object]:
    return {"folder": str(run.folder), "status": run.status, "problems": list(run.problems)}
