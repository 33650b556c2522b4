"""Tables for a terminal: as wide as it is, and no word is ever broken."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.text import Text

from engram.cli.output import stdout

GAP = 2
WIDE = 110
"""A terminal with this many columns also shows the columns that are `wide`."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its heading.
        right: Whether its cells are aligned to the right, as numbers are.
        wide: Whether it is left out of a narrow terminal.
        below: Whether its cells go below their rows where they do not fit, as long paths do not.
    """

    title: str
    right: bool = False
    wide: bool = False
    below: bool = False


def print_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, dim: Collection[int] = ()
) -> None:
    """Print a table on stdout, as wide as the terminal.

    Args:
        columns: What the table shows.
        rows: Lists with one cell per column; a cell may have several lines.
        dim: The numbers of rows that are printed faintly.
    """
    width = stdout.width
    shown = [number for number, column in enumerate(columns) if width >= WIDE or not column.wide]
    columns = [columns[number] for number in shown]
    for number, text in table_lines(columns, [[row[n] for n in shown] for row in rows], width=width):
        style = "bold" if number is None else "dim" if number in dim else ""
        # A line that is too long has a word that is: breaking it would help nobody.
        stdout.print(Text(text, style), soft_wrap=True)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print facts on stdout, each with its label on the left.

    Example:
        >>> print_facts({"needs": "boundaries", "paper": "none"})
        needs  boundaries
        paper  none
    """
    room = max(map(len, facts), default=0) + GAP
    for label, fact in facts.items():
        lines = wrapped(fact, max(stdout.width - room, 20)) or [""]
        stdout.print(Text.assemble((label.ljust(room), "dim"), lines[0]), soft_wrap=True)
        for line in lines[1:]:
            stdout.print(Text(f"{' ' * room}{line}"), soft_wrap=True)


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int
) -> list[tuple[int | None, str]]:
    """The lines of a table, each with the number of its row; the heading has none.

    Words are not broken: a table with words that are too long for `width` is wider.

    Example:
        >>> columns = [Column("name"), Column("tasks", right=True), Column("description")]
        >>> for _, line in table_lines(columns, [["split-digits", "5", "two digits at a time"]], width=32):
        ...     print(line)
        name          tasks  description
        split-digits      5  two digits
                             at a time
    """
    below = [number for number, column in enumerate(columns) if column.below]
    if below and sum(_least(columns, rows)) + GAP * (len(columns) - 1) > width:
        return _with_cells_below(columns, rows, below, width=width)
    room = width - GAP * (len(columns) - 1)
    cells = [[row[n] for row in rows] for n in range(len(columns))]
    usual = [sum(map(len, column)) / max(len(column), 1) for column in cells]
    natural = [
        max((len(line) for cell in column for line in cell.splitlines()), default=0) for column in cells
    ]
    widths = share_out(_least(columns, rows), natural, usual, room)
    # Headings come last: they may take several lines sooner than cells.
    widths = share_out(widths, [len(column.title) for column in columns], usual, room)
    lines: list[tuple[int | None, str]] = []
    for number, row in [(None, [column.title for column in columns]), *enumerate(rows)]:
        blocks = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*blocks, fillvalue=""):
            aligned = [
                part.rjust(width) if column.right else part.ljust(width)
                for part, width, column in zip(parts, widths, columns, strict=True)
            ]
            lines.append((number, (" " * GAP).join(aligned).rstrip()))
    return lines


def share_out(least: Sequence[int], natural: Sequence[int], usual: Sequence[float], room: int) -> list[int]:
    """Widths that fill the room, at least `least` and at most `natural`.

    What is left is shared in proportion to the usual length of a cell, so that columns need about as many
    lines as each other.

    Example:
        >>> share_out([4, 5], [4, 60], [4, 40], 30), share_out([4, 5], [4, 60], [4, 40], 3)
        ([4, 26], [4, 5])
    """
    widths = list(least)
    while sum(widths) < room:
        narrow = [n for n, (width, most) in enumerate(zip(widths, natural, strict=True)) if width < most]
        if not narrow:
            break
        widths[max(narrow, key=lambda n: usual[n] / widths[n])] += 1
    return widths


def _with_cells_below(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], below: Sequence[int], *, width: int
) -> list[tuple[int | None, str]]:
    beside = [number for number in range(len(columns)) if number not in below]
    lines: list[tuple[int | None, str]] = []
    table = table_lines([columns[n] for n in beside], [[row[n] for n in beside] for row in rows], width=width)
    for place, (number, line) in enumerate(table):
        lines.append((number, line))
        last_of_row = place + 1 == len(table) or table[place + 1][0] != number
        if number is not None and last_of_row:
            for n in below:
                lines += [(number, f"    {part}") for part in wrapped(rows[number][n], width - 4)]
    return lines


def _least(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """The longest word of each column; a cell of numbers is one word."""
    least = []
    for n, column in enumerate(columns):
        words = [part for row in rows for part in (row[n].splitlines() if column.right else row[n].split())]
        least.append(max(map(len, [*column.title.split(), *words]), default=0))
    return least


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text that is at most so wide; words are not broken.

    Example:
        >>> wrapped("min-ACC and WC-ACC\\nare worst cases", 10)
        ['min-ACC', 'and WC-ACC', 'are worst', 'cases']
    """
    lines = []
    for line in text.splitlines():
        lines += textwrap.wrap(line, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]
    return lines
