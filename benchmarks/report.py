"""Reports of benchmarks: figures with their spread and their targets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from rich.console import Console
from rich.table import Table

from engram.core.jsons import JsonObject


class Skipped(Exception):
    """A benchmark that cannot run here: why, and how to enable it."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a benchmark.

    Attributes:
        rounds: Measurements per figure.
        quick: Whether rough figures from less work are enough.
        threads: Threads that compute the job.
        tasks: Tasks that the methods have learned before they are measured.
        keep: A file for what was measured so far, from which a benchmark continues; None for none.
    """

    rounds: int
    quick: bool
    threads: int
    tasks: int
    keep: Path | None = None


class FigureOptions(TypedDict, total=False):
    """The optional fields of a `Figure`."""

    unit: str
    target: float | None
    bound: Literal["at most", "at least"]
    note: str


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of several measurements, with the lowest and the highest.

    Attributes:
        what: What was measured.
        median: Their median.
        low: The lowest.
        high: The highest.
        n: The number of measurements.
        unit: `×` for a ratio.
        target: The value that the median should not exceed or fall below; None without a target.
        bound: Whether the target is an upper or a lower bound.
        note: A remark for the table.
    """

    what: str
    median: float
    low: float
    high: float
    n: int
    unit: str = "×"
    target: float | None = None
    bound: Literal["at most", "at least"] = "at most"
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.median <= self.target if self.bound == "at most" else self.median >= self.target

    def as_json(self) -> JsonObject:
        """What `--json` prints."""
        return {**asdict(self), "met": self.met}


@dataclass(slots=True)
class Report:
    """The figures of a benchmark, what was measured, and what was left out."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def as_json(self) -> JsonObject:
        """What `--json` prints."""
        return {
            "title": self.title,
            "figures": [figure.as_json() for figure in self.figures],
            "remarks": self.remarks,
        }

    def show(self, console: Console) -> None:
        """Print a table."""
        table = Table(title=self.title, title_justify="left", box=None, header_style="bold")
        table.add_column("")
        for column in ("median", "lowest", "highest", "n", "target"):
            table.add_column(column, justify="right")
        table.add_column("")
        for figure in self.figures:
            spread = [shown(value, figure.unit) for value in (figure.median, figure.low, figure.high)]
            target = ""
            if figure.target is not None:
                verdict = "met" if figure.met else "missed"
                target = f"{figure.bound} {shown(figure.target, figure.unit)}: {verdict}"
            table.add_row(figure.what, *spread, str(figure.n), target, figure.note)
        console.print(table)
        for remark in self.remarks:
            console.print(f"  {remark}", soft_wrap=True, markup=False, highlight=False)
        console.print()


def shown(value: float, unit: str) -> str:
    """A number with its unit, for the table.

    Example:
        >>> shown(1.04321, "×"), shown(12345.6, "MB")
        ('1.04 ×', '12,346 MB')
    """
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.3g} {unit}"


def figure(what: str, values: Sequence[float], **rest: Unpack[FigureOptions]) -> Figure:
    """The median of some values with their spread.

    Example:
        >>> time = figure("time", [3.0, 1.0, 2.0], target=1.5)
        >>> time.median, time.low, time.high, time.met
        (2.0, 1.0, 3.0, False)
    """
    return Figure(what, statistics.median(values), min(values), max(values), len(values), **rest)


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratios of two measurements, round by round."""
    return [one / other for one, other in zip(above, below, strict=True)]
