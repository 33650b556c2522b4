"""Extremes on subsets, as a table: the value as measured, the corrected one, and its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engram.cli.output import stdout

if TYPE_CHECKING:
    from engram.metrics.extremes import Extremes


def print_extremes(extremes: Extremes, measured: Mapping[str, float | None]) -> None:
    """Print corrected extremes beside those measured, or why there are none; nothing if all are exact.

    Args:
        extremes: The estimates.
        measured: The metrics to show, with their values as measured.
    """
    from rich.table import Table

    if extremes.why:
        stdout.print(f"extremes are not corrected: {extremes.why}", soft_wrap=True, markup=False)
        return
    shown = {name: value for name, value in measured.items() if value is not None and name in extremes.values}
    if extremes.exact or not shown:
        return
    stdout.print("On the whole test sets, as estimated from the subsets, in percent", style="italic")
    table = Table("metric", box=None, header_style="bold")
    for column in ("as measured", "corrected", "95 % interval"):
        table.add_column(column, justify="right")
    for name, value in shown.items():
        estimate = extremes.values[name]
        interval = f"{100 * estimate.low:.2f} … {100 * estimate.high:.2f}"
        table.add_row(name, f"{100 * value:.2f}", f"{100 * estimate.corrected:.2f}", interval)
    stdout.print(table)
