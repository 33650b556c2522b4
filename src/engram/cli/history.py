"""`engram history`: a model that is retrained again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.options import Json, MinSamples, Score, Slices


def history(
    folder: Annotated[
        Path, typer.Argument(help="A folder with one prediction file or run per version.", metavar="FOLDER")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("history.html"),
    slices: Slices = None,
    min_samples: MinSamples = None,
    common: Annotated[
        bool, typer.Option("--common", help="Leave out samples that not all versions have.")
    ] = False,
    score: Score = None,
    json: Json = False,
) -> None:
    """Write a page about many versions of a model: slices over time, samples lost and back.

    Versions are the prediction files (as for `engram gate`) or runs in FOLDER, in the order of their names;
    numbers in names count by their value.
    """
    from engram.cli.output import check_output, print_json, stderr, stdout
    from engram.cli.tables import Column, print_table
    from engram.results.gate.history import read_history, versions_in
    from engram.results.gate.history_page import write_history
    from engram.results.gate.pairs import EVERYTHING
    from engram.results.gate.writing import p_value, percent

    chosen = None if slices is None else [name.strip() for name in slices.split(",") if name.strip()]
    versions = versions_in(folder)
    check_output(out, *versions)
    read = read_history(versions, slices=chosen, min_samples=min_samples, common=common, score=score)
    write_history(read, out)
    if json:
        print_json({**read.as_json(), "page": str(out)})
        return
    rows = [[read.versions[0], percent(read.accuracy[0, 0]), "–", "–", "–"]]
    for version, changes in zip(read.versions[1:], read.changes, strict=True):
        overall = changes[EVERYTHING]
        numbers = (percent(overall.after), f"{overall.lost:,}", f"{overall.gained:,}", p_value(overall.p))
        rows.append([version, *numbers])
    titles = ("accuracy", "lost", "gained", "p")
    print_table([Column("version"), *(Column(title, right=True) for title in titles)], rows)
    fates = read.fates()
    gone = int(fates["back in"].is_null().sum())
    stdout.print(f"{gone:,} samples that were right once are wrong in {read.versions[-1]}", markup=False)
    stderr.print(f"wrote {out}", markup=False, soft_wrap=True)
