"""`engram metrics`: every metric, for anybody's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.options import Plugin, load_own
from engram.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engram.metrics.summary import Measurement

_BY_TASK = ("ACC", "FORG", "AF", "RAA", "RAF", "AvgLAcc", "min-ACC", "WF10", "WP10")


def metrics(
    file: Annotated[
        Path,
        typer.Argument(
            help="A long table (CSV or Parquet: step, learning, task, and accuracy or correct and total), "
            "or an accuracy matrix (CSV without header: a row after each task)."
        ),
    ],
    classes: Annotated[
        str | None, typer.Option(help="Classes of each task, for RAA and RAF, for example 2,2,2,2,2.")
    ] = None,
    plugin: Plugin = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON; null where a metric is undefined.")
    ] = False,
) -> None:
    """Compute all metrics of an evaluation table or an accuracy matrix."""
    from itertools import accumulate

    from engram.cli.output import print_json
    from engram.metrics.curve import Curve
    from engram.metrics.summary import summarise
    from engram.metrics.tables import read_accuracies, read_bits

    load_own(plugin)
    source = read_accuracies(file)
    tasks = source.tasks if isinstance(source, Curve) else tuple(range(len(source)))
    counts = None if classes is None else class_counts(classes, len(tasks))
    measured = summarise(
        read_bits(file) or source, classes_seen=None if counts is None else list(accumulate(counts))
    )
    if json:
        print_json(measured.as_json())
    else:
        _print_tables(measured, tasks)


def class_counts(text: str, n_tasks: int) -> list[int]:
    """The numbers of classes in a list like `2,2,2`, one per task.

    Raises:
        InputError: There is something else than positive whole numbers, or not one per task.

    Example:
        >>> class_counts("2, 2,4", 3)
        [2, 2, 4]
    """
    cells = [cell.strip() for cell in text.split(",")]
    wrong = [cell for cell in cells if not (cell.isdecimal() and int(cell) > 0)]
    if wrong:
        raise InputError(f"--classes takes positive whole numbers like 2,2,2; got {wrong[0]!r}")
    if len(cells) != n_tasks:
        raise InputError(f"--classes needs one number for each of the {n_tasks} tasks; got {len(cells)}")
    return [int(cell) for cell in cells]


def _print_tables(measured: Measurement, tasks: Sequence[int | str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from engram.cli.output import stdout
    from engram.metrics.registry import find, users_metrics

    final = Table("metric", title="At the end, in percent", title_justify="left")
    final.add_column("value", justify="right")
    final.add_column("meaning")
    for name, value in measured.final.items():
        metric = find(name)[0]
        meaning = metric.definition.meaning or metric.title
        final.add_row(name, _percent(value), Text(measured.why.get(name) or meaning))
    stdout.print(final)

    shown = [name for name in (*_BY_TASK, *users_metrics()) if name in measured.by_task]
    by_task = Table("task", title="By task, in percent", title_justify="left")
    for name in shown:
        by_task.add_column(name, justify="right")
    for index, task in enumerate(tasks):
        by_task.add_row(str(task), *(_percent(measured.by_task[name][index]) for name in shown))
    stdout.print(by_task)

    left_out: dict[str, list[str]] = {}
    for name, reason in measured.why.items():
        if name not in measured.final:
            left_out.setdefault(reason, []).append(name)
    for reason, names in left_out.items():
        stdout.print(f"left out: {', '.join(names)}: {reason}", markup=False)


def _percent(value: float) -> str:
    return "–" if value != value else f"{100 * value:.2f}"
