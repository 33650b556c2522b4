"""`engram compact`: many run folders as few Parquet files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from engram.cli.options import Json


def compact(
    runs: Annotated[Path, typer.Argument(help="A folder that contains runs.", metavar="FOLDER")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The store, a folder that does not exist yet (default: FOLDER-compact)."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write finished runs to few Parquet files, which other commands read like the folder.

    The run folders stay as they are, with the weights and checkpoints that runs kept. DuckDB and Polars read
    the files: `runs.parquet` has one row per run, `trace/*.parquet` one row per evaluation of a task. Prints
    the store.
    """
    from rich.progress import track

    from engram.cli.output import name_incomplete, print_json, stderr
    from engram.core.words import counted
    from engram.record.checkpoints import KeptSize
    from engram.results.runs import Runs, find_runs
    from engram.results.store import compact as write_store

    place = _beside(runs) if out is None else out
    finished = find_runs(runs)
    name_incomplete(finished)
    shown = track(finished, "compacting", console=stderr, transient=True, disable=not stderr.is_terminal)
    written = write_store(shown, place)
    name_incomplete(Runs((), incomplete=written.damaged))
    if json:
        print_json({"store": str(place), "runs": written.runs, "files": written.files, "bytes": written.size})
    else:
        runs_and_files = f"{counted(written.runs, 'run')} in {counted(written.files, 'file')}"
        stderr.print(f"{runs_and_files}, {written.size / 1e6:,.1f} MB", markup=False, soft_wrap=True)
        if (kept := KeptSize.of(run.folder for run in finished)).files:
            stderr.print(f"not in the store, left where they are: {kept}", markup=False, soft_wrap=True)
        typer.echo(place)


def _beside(runs: Path) -> Path:
    """The default store: beside the folder, also beside the current one.

    Example:
        >>> str(_beside(Path("runs")))
        'runs-compact'
        >>> _beside(Path(".")) == Path.cwd().with_name(f"{Path.cwd().name}-compact")
        True
    """
    whole = Path(os.path.realpath(runs))
    place = whole if runs.name in ("", "..") else runs
    return place.parent / f"{whole.name}-compact"
