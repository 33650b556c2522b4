"""`engram table`: results for a paper or a web page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.options import Json, Plugin, RunPlaces, load_own, one_of
from engram.core.collection import without_collection

if TYPE_CHECKING:
    from engram.results.table import Spread, Table

FORMATS = {"csv": ".csv", "md": ".md", "latex": ".tex", "parquet": ".parquet"}
SPREADS: dict[str, Spread] = {"interval": "interval", "sd": "sd", "none": "none"}
MOST_DIGITS = 6


@without_collection()
def table(
    runs: RunPlaces,
    format: Annotated[
        str | None,
        typer.Option(help="csv, md, latex or parquet (default: by the ending of the file, or md)."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="The metrics, separated by commas (default: ACC, FORG, min-ACC, WC-ACC and a plugin's)."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="What names the rows: method, optimizer.lr, settings.memory, … separated by commas "
            "(default: the method, with what else tells experiments apart).",
        ),
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="bold",
            help="bold: mark the best mean of a column and all that cannot be told apart from it.",
        ),
    ] = None,
    spread: Annotated[str, typer.Option(help="Beside a mean: interval (95 %), sd or none.")] = "interval",
    digits: Annotated[int, typer.Option(help="Decimal places of percentages.", min=0, max=MOST_DIGITS)] = 2,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The file to write (default: print).")
    ] = None,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Lay out finished runs as a table: experiments by metrics, over seeds, one block per scenario.

    Markdown and LaTeX (with booktabs) have percentages; CSV, Parquet and JSON have fractions, with the SD,
    the 95 % interval and the number of seeds in columns of their own.
    """
    from engram.cli.output import check_output, name_incomplete, print_written
    from engram.results.runs import find_runs
    from engram.results.table import table_of

    kind = _kind(format, out)
    beside = SPREADS[one_of("spread", spread, tuple(SPREADS))]
    if best is not None:
        one_of("way to mark the best", best, ("bold",))
    check_output(out, *runs, plugin)
    load_own(plugin)
    finished = find_runs(runs)
    name_incomplete(finished)
    made = table_of(finished, _words(metrics), by=_words(by), best=best is not None)
    if out is not None:
        _write(made, kind, out, beside, digits)
    if json:
        _print_json(made, out)
    elif out is None:
        typer.echo(_text(made, kind, beside, digits))
    else:
        print_written(out)
    if kind in ("csv", "parquet") and not json:
        _print_notes(made)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _kind(format: str | None, out: Path | None) -> str:
    """The format, from its name or the ending of the file."""
    from engram.core.errors import InputError

    if format is None:
        endings = {ending: name for name, ending in FORMATS.items()}
        if out is not None and out.suffix not in endings:
            raise InputError(f"--out must end in {', '.join(endings)}, got {out}: or say it with --format")
        return "md" if out is None else endings[out.suffix]
    kind = one_of("format", format, tuple(FORMATS))
    if kind == "parquet" and out is None:
        raise InputError("a Parquet file is not text: name it with -o FILE")
    return kind


def _text(made: Table, kind: str, spread: Spread, digits: int) -> str:
    if kind == "csv":
        return made.frame().write_csv().rstrip("\n")
    write = made.markdown if kind == "md" else made.latex
    return write(spread=spread, digits=digits)


def _write(made: Table, kind: str, out: Path, spread: Spread, digits: int) -> None:
    from engram.core.files import write_parquet, write_whole

    if kind == "parquet":
        write_parquet(out, made.frame())
    else:
        text = _text(made, kind, spread, digits)
        write_whole(out, lambda beside: beside.write_text(text + "\n", "utf-8"))


def _print_notes(made: Table) -> None:
    from engram.cli.output import stderr

    for note in made.notes:
        stderr.print(note, markup=False, soft_wrap=True)


def _print_json(made: Table, out: Path | None) -> None:
    from engram.cli.output import print_json

    print_json(
        {
            "metrics": list(made.metrics),
            "by": list(made.by),
            "rows": made.frame().to_dicts(),
            "notes": list(made.notes),
            "file": None if out is None else str(out),
        }
    )
