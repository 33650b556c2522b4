"""`engram metrics`: every metric, for anybody's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.options import Plugin, load_own
from engram.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engram.metrics.extremes import Extremes
    from engram.metrics.summary import Measurement

    Measured = tuple[Measurement, Extremes, Sequence[int | str], str]

_BY_TASK = ("ACC", "FORG", "AF", "RAA", "RAF", "AvgLAcc", "min-ACC", "WF10", "WP10")


def metrics(
    file: Annotated[
        Path,
        typer.Argument(
            help="A long table (CSV or Parquet: step, learning, task, and accuracy or correct and total), "
            "an accuracy matrix (CSV without header: a row after each task), "
            "the folder of a run, or STORE/ID."
        ),
    ],
    classes: Annotated[
        str | None, typer.Option(help="Classes of each task, for RAA and RAF, for example 2,2,2,2,2.")
    ] = None,
    test_sizes: Annotated[
        str | None,
        typer.Option(
            help="Samples in the whole test set of each task, for the intervals of extremes, for example "
            "2000,2000 (default: those of the run, or many)."
        ),
    ] = None,
    plugin: Plugin = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON; null where a metric is undefined.")
    ] = False,
) -> None:
    """Compute all metrics of an evaluation table, an accuracy matrix or a run."""
    from engram.cli.extremes import print_extremes
    from engram.cli.output import print_json, stderr
    from engram.results.store import store_of

    load_own(plugin)
    read = _of_run if file.is_dir() or store_of(file) is not None else _of_file
    measured, extremes, tasks, note = read(file, classes, test_sizes)
    if note:
        stderr.print(f"note: {note}", soft_wrap=True, markup=False)
    if json:
        print_json({**measured.as_json(), "extremes": extremes.as_json()})
    else:
        _print_tables(measured, tasks)
        print_extremes(extremes, measured.final)


def _of_file(file: Path, classes: str | None, test_sizes: str | None) -> Measured:
    """The metrics of a table or a matrix, its extremes, its tasks, and what is to be said about them."""
    from itertools import accumulate

    from engram.metrics.curve import Curve
    from engram.metrics.extremes import estimate_extremes
    from engram.metrics.summary import summarise
    from engram.metrics.tables import read_accuracies, read_bits
    from engram.record.two_level import missed_by_thinning

    source = read_accuracies(file)
    tasks = source.tasks if isinstance(source, Curve) else tuple(range(len(source)))
    counts = class_counts(classes, len(tasks)) if classes is not None else None
    classes_seen = None if counts is None else list(accumulate(counts))
    trace = read_bits(file)
    if test_sizes is not None and trace is None:
        raise InputError(f"--test-sizes needs a trace with bits, which {file} does not have: leave it out")
    sizes = None if test_sizes is None else _sizes(test_sizes, tasks)
    asked = () if trace is None else trace.total
    missed = missed_by_thinning(source.step.tolist(), asked) if isinstance(source, Curve) else ""
    return (
        summarise(trace or source, classes_seen=classes_seen),
        estimate_extremes(trace or source, sizes=sizes, classes_seen=classes_seen),
        tasks,
        missed,
    )


def _of_run(folder: Path, classes: str | None, test_sizes: str | None) -> Measured:
    """The metrics of a run, its extremes, its tasks, and what is to be said about them."""
    from dataclasses import replace
    from itertools import accumulate

    from engram.metrics.extremes import Extremes
    from engram.results.runs import one_run
    from engram.results.sampling import sampling_note

    run = one_run(folder)
    tasks = run.tasks
    if classes is not None:
        counts = class_counts(classes, len(tasks))
        run = replace(run, classes=tuple(accumulate(counts)), estimates=None)
    if test_sizes is not None:
        sizes = _sizes(test_sizes, tasks)
        # Tasks that were not evaluated have no size, and need none.
        of_all = tuple(sizes.get(task, 0) for task in range(1 + max(sizes)))
        run = replace(run, sizes=of_all, estimates=None)
    extremes = Extremes() if run.only_scores else run.extremes
    names = [run.task_name(column) for column in range(len(tasks))]
    return run.measure(), extremes, names, sampling_note([run])


def _sizes(text: str, tasks: Sequence[int | str]) -> dict[int, int]:
    """The sizes of test sets by the numbers of tasks, from a list in the order of `tasks`."""
    counts = class_counts(text, len(tasks), option="--test-sizes")
    return {int(task): count for task, count in zip(tasks, counts, strict=True)}


def class_counts(text: str, n_tasks: int, *, option: str = "--classes") -> list[int]:
    """The numbers in a list like `2,2,2`, one per task: of classes, or whatever the option asks for.

    Raises:
        InputError: There is something else than positive whole numbers, or not one per task.

    Example:
        >>> class_counts("2, 2,4", 3)
        [2, 2, 4]
    """
    cells = [cell.strip() for cell in text.split(",")]
    wrong = [cell for cell in cells if not (cell.isdecimal() and int(cell) > 0)]
    if wrong:
        raise InputError(f"{option} takes positive whole numbers like 2,2,2; got {wrong[0]!r}")
    if len(cells) != n_tasks:
        raise InputError(f"{option} needs one number for each of the {n_tasks} tasks; got {len(cells)}")
    return [int(cell) for cell in cells]


def _print_tables(measured: Measurement, tasks: Sequence[int | str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from engram.cli.output import stdout
    from engram.metrics.registry import users_metrics
    from engram.metrics.scores import MEANINGS

    unit = ", in percent" if set(measured.final) - set(MEANINGS) else ""
    if unit and set(measured.final) & set(MEANINGS):
        unit += "; scores as they are"
    final = Table("metric", title=f"At the end{unit}", title_justify="left")
    final.add_column("value", justify="right")
    final.add_column("meaning")
    for name, value in measured.final.items():
        final.add_row(name, _shown(name, value), Text(measured.why.get(name) or _meaning(name)))
    stdout.print(final)

    shown = [name for name in (*_BY_TASK, *users_metrics(), *MEANINGS) if name in measured.by_task]
    by_task = Table("task", title=f"By task{unit}", title_justify="left")
    for name in shown:
        by_task.add_column(name, justify="right")
    for index, task in enumerate(tasks):
        by_task.add_row(str(task), *(_shown(name, measured.by_task[name][index]) for name in shown))
    stdout.print(by_task)

    left_out: dict[str, list[str]] = {}
    for name, reason in measured.why.items():
        if name not in measured.final:
            left_out.setdefault(reason, []).append(name)
    for reason, names in left_out.items():
        stdout.print(f"left out: {', '.join(names)}: {reason}", markup=False)


def _meaning(name: str) -> str:
    from engram.metrics.registry import find
    from engram.metrics.scores import MEANINGS

    if name in MEANINGS:
        return MEANINGS[name]
    metric = find(name)[0]
    return metric.definition.meaning or metric.title


def _shown(name: str, value: float) -> str:
    """A percentage, or a score as it is."""
    from engram.metrics.scores import MEANINGS

    if value != value:
        return "–"
    return f"{value:.4g}" if name in MEANINGS else f"{100 * value:.2f}"
