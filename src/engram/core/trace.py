"""The trace: for every evaluation, which test samples were answered correctly. Everything else is a query."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engram.core.errors import Damaged
from engram.core.files import as_input_error, checksum, write_parquet

if TYPE_CHECKING:
    import polars

COLUMNS = ("step", "learning", "task", "correct", "total", "bits")


class Counts(NamedTuple):
    """A trace without its bits: one entry per evaluation of each task."""

    step: ArrayLike
    learning: ArrayLike
    task: ArrayLike
    correct: ArrayLike
    total: ArrayLike


@dataclass(slots=True, repr=False)
class Trace:
    """One row per evaluation of each task.

    Attributes:
        step: Updates done when it was evaluated; 0 is before the first.
        learning: The task being learned.
        task: The task being evaluated.
        correct: How many samples were right.
        total: How many samples were evaluated.
        bits: Which ones, one bit per sample, packed as by `numpy.packbits`; empty where unknown.
        anchors: Where samples have two levels: the evaluations of all of them, made at some of the steps. The
            rows of the trace itself are then about a fixed part of these samples. None with one level.

    Example:
        >>> trace = Trace()
        >>> trace.add(step=1, learning=0, task=0, right=np.array([True, False, True]))
        >>> trace.accuracy(), trace.right(0)
        (array([0.66666667]), array([ True, False,  True]))
    """

    step: list[int] = field(default_factory=list)
    learning: list[int] = field(default_factory=list)
    task: list[int] = field(default_factory=list)
    correct: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    bits: list[bytes] = field(default_factory=list)
    anchors: Trace | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        """How much there is, on one line."""
        if not self.step:
            return "<Trace: empty>"
        tasks, evaluations = len(set(self.task)), len(set(self.step))
        anchors = "" if self.anchors is None else f", {len(set(self.anchors.step))} of them anchors"
        return (
            f"<Trace: {len(self)} rows, {evaluations} evaluations of {tasks} tasks{anchors}, "
            f"steps {min(self.step)} to {max(self.step)}>"
        )

    def add(self, *, step: int, learning: int, task: int, right: NDArray[np.bool_]) -> None:
        """Append the answers to one task's samples."""
        self.step.append(step)
        self.learning.append(learning)
        self.task.append(task)
        self.correct.append(int(np.count_nonzero(right)))
        self.total.append(len(right))
        self.bits.append(np.packbits(right).tobytes())

    def accuracy(self) -> NDArray[np.float64]:
        """The fraction that was right, row by row: of the small level, where samples have two levels."""
        return np.asarray(self.correct, dtype=np.float64) / np.asarray(self.total, dtype=np.float64)

    def right(self, row: int) -> NDArray[np.bool_]:
        """Which samples were right in one row."""
        packed = np.frombuffer(self.bits[row], dtype=np.uint8)
        return np.unpackbits(packed, count=self.total[row]).astype(np.bool_)

    def at(self, steps: Collection[int]) -> Trace:
        """The rows after some numbers of updates.

        Example:
            >>> trace = Trace()
            >>> for step in (1, 2, 3):
            ...     trace.add(step=step, learning=0, task=0, right=np.array([True]))
            >>> trace.at({1, 3}).step
            [1, 3]
        """
        rows = [row for row, step in enumerate(self.step) if step in steps]
        anchors = None if self.anchors is None else self.anchors.at(steps)
        return Trace(*([getattr(self, name)[row] for row in rows] for name in COLUMNS), anchors=anchors)

    def followed_by(self, other: Trace) -> Trace:
        """These rows, and then those of another trace."""
        anchors = None
        if self.anchors is not None or other.anchors is not None:
            anchors = (self.anchors or Trace()).followed_by(other.anchors or Trace())
        columns = ([*getattr(self, name), *getattr(other, name)] for name in COLUMNS)
        return Trace(*columns, anchors=anchors)

    def counts(self) -> Counts:
        """The trace without its bits."""
        return Counts(self.step, self.learning, self.task, self.correct, self.total)

    def at_ends(self) -> Trace:
        """The anchors at the last evaluation of every task that was learned; empty if one has none there.

        Example:
            >>> trace, right = Trace(anchors=Trace()), np.array([True, False, True, True])
            >>> for step in (1, 2):
            ...     trace.add(step=step, learning=0, task=0, right=right[:2])
            >>> trace.anchors.add(step=2, learning=0, task=0, right=right)
            >>> trace.at_ends().correct
            [3]
        """
        if self.anchors is None:
            return Trace()
        last = dict(zip(self.learning, self.step, strict=True))
        every = self.anchors
        kept = [row for row, learning in enumerate(every.learning) if every.step[row] == last.get(learning)]
        if {every.learning[row] for row in kept} != set(last):
            return Trace()
        return Trace(*([getattr(every, name)[row] for row in kept] for name in COLUMNS))

    def frame(self) -> polars.DataFrame:
        """The trace as a table with the columns of the file."""
        import polars as pl

        kinds = (pl.Int64, pl.Int32, pl.Int32, pl.Int32, pl.Int32, pl.Binary)
        return pl.DataFrame(
            {name: getattr(self, name) for name in COLUMNS}, schema=dict(zip(COLUMNS, kinds, strict=True))
        )

    def save(self, path: Path) -> str:
        """Write as Parquet, whole or not at all, and return the file's checksum."""
        return write_parquet(path, self.frame())

    @classmethod
    def load(cls, path: Path, *, sha256: str | None = None) -> Trace:
        """Read what `save` wrote, or any Parquet file with these columns.

        Args:
            path: The file.
            sha256: Its checksum, where that is known.

        Raises:
            InputError: It cannot be read.
            Damaged: It is not what was written, or contradicts itself.
        """
        return cls.of_frame(read_table(path, "trace", sha256=sha256), str(path))

    @classmethod
    def of_frame(cls, frame: polars.DataFrame, where: str) -> Trace:
        """The trace in a table with the columns of the file; `where` is named in messages."""
        missing = [name for name in COLUMNS if name not in frame.columns]
        if missing:
            raise Damaged(f"{where} is not a trace: it lacks the columns {', '.join(missing)}")
        trace = cls(*(frame[name].to_list() for name in COLUMNS))
        row = _contradiction(trace.correct, trace.total, trace.bits)
        if row is not None:
            raise Damaged(
                f"the trace {where} is damaged: in row {row}, the number of correct samples is not that of "
                "its bits"
            )
        return trace


def read_table(path: Path, what: str, *, sha256: str | None = None) -> polars.DataFrame:
    """The table in a Parquet file.

    Args:
        path: The file.
        what: What it holds, for messages.
        sha256: Its checksum, where that is known.

    Raises:
        InputError: It cannot be read.
        Damaged: It is not what was written.
    """
    import polars as pl

    with as_input_error(f"cannot read the {what} {path}"):
        if sha256 is not None and not path.exists():
            raise Damaged(f"the {what} {path} is missing")
        content = path.read_bytes()
    if sha256 is not None and checksum(content) != sha256:
        raise Damaged(f"the {what} {path} is damaged: its checksum is not the recorded one")
    try:
        return pl.read_parquet(io.BytesIO(content))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Damaged(f"cannot read the {what} {path}: {reason}") from error


_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.int64)
"""For each byte, how many of its bits are 1."""


def _contradiction(
    correct: Sequence[int | None], total: Sequence[int | None], bits: Sequence[bytes | None]
) -> int | None:
    """The first row whose numbers contradict its bits; None if there is none. Rows without bits pass."""
    rows = [row for row, packed in enumerate(bits) if packed]
    if not rows:
        return None
    packed = [bits[row] or b"" for row in rows]
    sizes = np.fromiter(map(len, packed), dtype=np.int64, count=len(packed))
    ends = np.cumsum(sizes)
    flat = np.frombuffer(b"".join(packed), dtype=np.uint8)
    ones = np.concatenate([[0], np.cumsum(_ONES[flat])])
    counted = ones[ends] - ones[ends - sizes]
    right, asked = _numbers(correct, rows), _numbers(total, rows)
    unused = 8 * sizes - asked
    # Bits beyond the last sample are 0.
    clean = flat[ends - 1] & ((1 << np.clip(unused, 0, 8)) - 1) == 0
    fits = (counted == right) & (unused >= 0) & (unused < 8) & clean
    return None if fits.all() else rows[int(np.flatnonzero(~fits)[0])]


def _numbers(column: Sequence[int | None], rows: Sequence[int]) -> NDArray[np.int64]:
    """Some rows of a column; −1 where there is no number."""
    values = column if len(rows) == len(column) else [column[row] for row in rows]
    if None in values:
        values = [-1 if value is None else value for value in values]
    return np.array(values, dtype=np.int64)
