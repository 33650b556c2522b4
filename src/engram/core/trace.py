"""The trace: for every evaluation, which test samples were answered correctly. Everything else is a query."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.files import write_parquet

if TYPE_CHECKING:
    import polars

COLUMNS = ("step", "learning", "task", "correct", "total", "bits")


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

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        """How much there is, on one line."""
        if not self.step:
            return "<Trace: empty>"
        tasks, evaluations = len(set(self.task)), len(set(self.step))
        return (
            f"<Trace: {len(self)} rows, {evaluations} evaluations of {tasks} tasks, "
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
        """The fraction that was right, row by row."""
        return np.asarray(self.correct, dtype=np.float64) / np.asarray(self.total, dtype=np.float64)

    def right(self, row: int) -> NDArray[np.bool_]:
        """Which samples were right in one row."""
        packed = np.frombuffer(self.bits[row], dtype=np.uint8)
        return np.unpackbits(packed, count=self.total[row]).astype(np.bool_)

    def frame(self) -> polars.DataFrame:
        """The trace as a table with the columns of the file."""
        import polars as pl

        kinds = (pl.Int64, pl.Int32, pl.Int32, pl.Int32, pl.Int32, pl.Binary)
        return pl.DataFrame(
            {name: getattr(self, name) for name in COLUMNS}, schema=dict(zip(COLUMNS, kinds, strict=True))
        )

    def save(self, path: Path) -> None:
        """Write as Parquet, whole or not at all."""
        write_parquet(path, self.frame())

    @classmethod
    def load(cls, path: Path) -> Trace:
        """Read what `save` wrote, or any Parquet file with these columns."""
        import polars as pl

        try:
            frame = pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"cannot read the trace {path}: {reason}") from error
        missing = [name for name in COLUMNS if name not in frame.columns]
        if missing:
            raise InputError(f"{path} is not a trace: it lacks the columns {', '.join(missing)}")
        return cls(*(frame[name].to_list() for name in COLUMNS))
