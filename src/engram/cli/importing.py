"""`engram import`: accuracies that another tool logged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engram.cli.options import Json


def import_(
    log: Annotated[Path, typer.Argument(help="The file or folder that the tool wrote.", metavar="LOG")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The table: .csv or .parquet.")] = Path(
        "accuracies.csv"
    ),
    kind: Annotated[
        str | None,
        typer.Option(
            help="avalanche-csv, avalanche-json, mammoth, pycil, tensorboard, mlflow, wandb or lm-eval "
            "(default: recognised)."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help=r"Names of accuracies, as a regular expression: acc/(?P<task>\d+)."),
    ] = None,
    ends: Annotated[str | None, typer.Option(help="The last step of each task, separated by commas.")] = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="TASK,TASK", help="All tasks, as they were learned, where names do not say it."),
    ] = None,
    json: Json = False,
) -> None:
    """Turn the log of another tool into a table for `engram metrics`.

    Avalanche, Mammoth, PyCIL, TensorBoard, MLflow, Weights & Biases and lm-eval are known. Tools that log
    names and numbers only need `--ends`, and `--order` if tasks have names instead of numbers, where it does
    not follow which task is being learned.
    """
    from engram.cli.output import check_output, print_json, stderr
    from engram.core.errors import InputError
    from engram.core.files import write_parquet, write_whole
    from engram.core.words import counted
    from engram.interop.importers import read_log

    if out.suffix not in (".csv", ".parquet"):
        raise InputError(f"--out must end in .csv or .parquet, got {out}")
    # In the folder of a tool, this is the only table that can be read.
    check_output(out, log, log / "eval_results.csv")
    steps = None if ends is None else [_whole(cell) for cell in ends.split(",")]
    tasks = None if order is None else [name.strip() for name in order.split(",")]
    table = read_log(log, kind, pattern=pattern, ends=steps, order=tasks)
    if out.suffix == ".parquet":
        write_parquet(out, table)
    else:
        write_whole(out, lambda beside: beside.write_bytes(table.write_csv().encode()))
    summary = {"rows": len(table), "tasks": table["task"].n_unique(), "table": str(out)}
    if json:
        print_json(summary)
    else:
        line = f"wrote {len(table)} accuracies of {counted(table['task'].n_unique(), 'task')} to {out}"
        stderr.print(f"{line}; see `engram metrics {out}`", markup=False, soft_wrap=True)


def _whole(cell: str) -> int:
    from engram.core.errors import InputError

    if not cell.strip().isdecimal():
        raise InputError(f"--ends takes whole numbers like 100,200,300; got {cell!r}")
    return int(cell)
