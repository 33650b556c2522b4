"""`engram samples`: what became of every test sample of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.options import Json
from engram.core.errors import InputError

_NUMBERS = ("position", "id", "label", "events")


def samples(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or STORE/ID.", metavar="RUN")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write all samples to this .csv or .parquet file.")
    ] = None,
    most: Annotated[int, typer.Option(help="Print this many of the most forgotten samples.", min=0)] = 10,
    json: Json = False,
) -> None:
    """Count how often each test sample was forgotten; list those never and always known.

    A forgetting event is a change from right to wrong between two evaluations of a sample.
    """
    from engram.cli.output import check_output, print_json, stderr, stdout
    from engram.cli.tables import Column, print_table
    from engram.core.files import write_parquet, write_whole
    from engram.results.runs import one_run
    from engram.results.sample_table import KINDS, sample_table

    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise InputError(f"the file must end in .csv or .parquet, got {out}")
    check_output(out, run)
    table = sample_table(one_run(run))
    if out is not None and out.suffix == ".parquet":
        write_parquet(out, table)
    elif out is not None:
        write_whole(out, lambda beside: beside.write_bytes(table.write_csv().encode()))
    if json:
        print_json({"samples": table.to_dicts()})
        return
    rows = []
    for own in table.partition_by("task", maintain_order=True):
        counts = [str(int((own["kind"] == kind).sum())) for kind in KINDS]
        rows.append([own["name"][0], str(len(own)), *counts, f"{own['events'].sum() / len(own):.2f}"])
    titles = ("samples", *KINDS, "events per sample")
    print_table([Column("task"), *(Column(title, right=True) for title in titles)], rows)
    worst = table.filter(table["events"] > 0).sort(
        "events", "task", "position", descending=[True, False, False]
    )
    if most and len(worst):
        stdout.print("forgotten most often:", markup=False)
        lines = (
            worst.head(min(most, len(worst)))
            .select("name", "position", "id", "label", "events", "kind")
            .rows()
        )
        cells = [["–" if value is None else str(value) for value in row] for row in lines]
        print_table(
            [Column("task"), *(Column(title, right=True) for title in _NUMBERS), Column("kind")],
            cells,
        )
    if out is not None:
        stderr.print(f"wrote {out}", markup=False, soft_wrap=True)
