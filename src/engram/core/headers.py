"""The names of columns, such as the first row of CSV."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence

from engram.core.errors import InputError


def header_of(lines: Iterable[str], *, separator: str = ",") -> list[str]:
    """The names of the columns; empty for what is not CSV.

    Example:
        >>> header_of(["id,correct", "1,1"])
        ['id', 'correct']
    """
    try:
        return next((row for row in csv.reader(lines, delimiter=separator) if row), [])
    except csv.Error:
        return []


def refuse_repeated_columns(names: Sequence[str], source: object) -> None:
    """Refuse two columns of one name, of which readers take the first or the last.

    Args:
        names: The names as they are in the file.
        source: What the message calls it, such as a path.

    Raises:
        InputError: There are.

    Example:
        >>> refuse_repeated_columns(["id", "correct", " correct"], "new.csv")
        Traceback (most recent call last):
        engram.core.errors.InputError: new.csv has 2 columns 'correct': every name must occur once
    """
    counts = Counter(name.strip() for name in names)
    repeated = next((name for name, count in counts.items() if name and count > 1), None)
    if repeated is not None:
        count = counts[repeated]
        raise InputError(f"{source} has {count} columns {repeated!r}: every name must occur once")
