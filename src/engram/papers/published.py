"""The published numbers, as data."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeVar

K = TypeVar("K")

PAPERS = {
    "000": "De Lange et al. (2023)",
    "001": "Michel et al. (2023)",
    "002": "Hsu et al. (2018)",
    "003": "Chen et al. (2023)",
    "004": "Pfülb & Gepperth (2019)",
}
"""Citations of the papers, by the number with which the names of their tables begin."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of a table.

    Attributes:
        paper: The paper's number, such as `002`.
        table: The table's number.
        benchmark: The data set or stream.
        scenario: The setting, or the kind of stream.
        method: The method.
        setting: Whatever else distinguishes the number from others of its table.
        metric: The metric.
        mean: The number as printed: a fraction in Pfülb & Gepperth (2019), percent in the others.
        spread: The number after ±; None if there is none.
        spread_kind: The kind of spread: SD, SEM or 95 % interval.
        n_runs: The number of runs that it summarises, as far as the paper says.
        decimals: The number of decimals with which it is printed.
    """

    paper: str
    table: str
    benchmark: str
    scenario: str
    method: str
    setting: str
    metric: str
    mean: float
    spread: float | None
    spread_kind: str
    n_runs: str
    decimals: int = 2

    @property
    def rounding(self) -> float:
        """How far the number may be from the one that was rounded: half a unit of the last printed digit.

        Example:
            >>> cells("002", "2")[0].rounding, cells("000", "3")[0].rounding
            (0.005, 0.05)
        """
        return 0.5 * 10.0**-self.decimals

    @property
    def name(self) -> str:
        """The name that `--cells` is matched against.

        Example:
            >>> cells("002", "2")[0].name
            'Split MNIST/task/Adam/AvgAcc'
        """
        parts = (self.benchmark, self.scenario, self.method, self.setting, self.metric)
        plain = self.setting.startswith("final average accuracy")
        return "/".join(part for part in parts if part and not (plain and part is self.setting))


@cache
def cells(paper: str, table: str) -> tuple[Cell, ...]:
    """The numbers of a table, in the order in which it prints them.

    Example:
        >>> first = cells("002", "2")[0]
        >>> first.method, first.mean, first.spread
        ('Adam', 93.46, 2.01)
    """
    text = (files("engram.papers") / "published" / f"paper{paper}.csv").read_text("utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["table"] == table]
    # Final zeros are missing in some rows, so the longest number of a column says how it is printed.
    decimals: dict[str, int] = {}
    for row in rows:
        printed = len(row["mean"].partition(".")[2])
        decimals[row["metric"]] = max(printed, decimals.get(row["metric"], 0))
    return tuple(
        Cell(
            paper=row["paper"],
            table=row["table"],
            benchmark=row["benchmark"],
            scenario=row["scenario"],
            method=row["method"],
            setting=row["setting"],
            metric=row["metric"],
            mean=float(row["mean"]),
            spread=float(row["spread"]) if row["spread"] else None,
            spread_kind=row["spread_kind"],
            n_runs=row["n_runs"],
            decimals=decimals[row["metric"]],
        )
        for row in rows
    )


def grouped(numbers: Iterable[Cell], key: Callable[[Cell], K]) -> dict[K, tuple[Cell, ...]]:
    """Published numbers grouped by a key, in the order in which the table prints them.

    Example:
        >>> groups = grouped(cells("002", "2"), lambda cell: cell.scenario)
        >>> {name: len(group) for name, group in groups.items()}
        {'task': 14, 'domain': 14, 'class': 14}
    """
    groups: dict[K, list[Cell]] = {}
    for cell in numbers:
        groups.setdefault(key(cell), []).append(cell)
    return {name: tuple(group) for name, group in groups.items()}
