"""Scores: for every evaluation, one number per test sample, such as its loss or its perplexity."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import Damaged
from engram.core.files import write_parquet
from engram.core.trace import read_table

if TYPE_CHECKING:
    import polars


@dataclass(slots=True, repr=False, eq=False)
class Scores:
    """One row per evaluation of each task, beside the bits of the trace.

    Attributes:
        higher_is_better: Whether a higher score is a better one.
        step: Updates done when it was evaluated; 0 is before the first.
        learning: The task being learned.
        task: The task being evaluated.
        values: The score of each sample, in 32 bits.

    Example:
        >>> scores = Scores(higher_is_better=False)
        >>> scores.add(step=1, learning=0, task=0, values=np.array([0.5, 1.5], dtype=np.float32))
        >>> scores.means(), scores
        (array([1.]), <Scores: 1 rows, lower is better>)
    """

    higher_is_better: bool = True
    step: list[int] = field(default_factory=list)
    learning: list[int] = field(default_factory=list)
    task: list[int] = field(default_factory=list)
    values: list[NDArray[np.float32]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        """How much there is, on one line."""
        better = "higher" if self.higher_is_better else "lower"
        return f"<Scores: {len(self)} rows, {better} is better>" if self.step else "<Scores: empty>"

    def __eq__(self, other: object) -> bool:
        """Whether all numbers are the same, to the bit."""
        if not isinstance(other, Scores):
            return NotImplemented
        same = [
            getattr(self, name) == getattr(other, name)
            for name in ("higher_is_better", "step", "learning", "task")
        ]
        return all(same) and all(map(np.array_equal, self.values, other.values))

    __hash__ = None  # type: ignore[assignment]

    def add(self, *, step: int, learning: int, task: int, values: NDArray[np.float32]) -> None:
        """Append the scores of one task's samples."""
        self.step.append(step)
        self.learning.append(learning)
        self.task.append(task)
        self.values.append(values)

    def means(self) -> NDArray[np.float64]:
        """The mean score, row by row."""
        return np.array([self.mean(row) for row in range(len(self))], dtype=np.float64)

    def mean(self, row: int) -> float:
        """The mean score in one row."""
        return float(self.values[row].mean(dtype=np.float64))

    def frame(self) -> polars.DataFrame:
        """The scores as a table with the columns of the file."""
        import polars as pl

        kinds = {"step": pl.Int64, "learning": pl.Int32, "task": pl.Int32}
        columns = {name: pl.Series(getattr(self, name), dtype=kind) for name, kind in kinds.items()}
        return pl.DataFrame(
            {
                **columns,
                "mean": pl.Series(self.means(), dtype=pl.Float64),
                "higher_is_better": pl.Series([self.higher_is_better] * len(self), dtype=pl.Boolean),
                "scores": pl.Series([values.tolist() for values in self.values], dtype=pl.List(pl.Float32)),
            }
        )

    def save(self, path: Path) -> str:
        """Write as Parquet, whole or not at all, and return the file's checksum."""
        return write_parquet(path, self.frame())

    @classmethod
    def load(cls, path: Path, *, sha256: str | None = None) -> Scores:
        """Read what `save` wrote.

        Args:
            path: The file.
            sha256: Its checksum, where that is known.

        Raises:
            InputError: It cannot be read.
            Damaged: It is not what was written.
        """
        return cls.of_frame(read_table(path, "scores", sha256=sha256), str(path))

    @classmethod
    def of_frame(cls, frame: polars.DataFrame, where: str) -> Scores:
        """The scores in a table with the columns of the file; `where` is named in messages."""
        columns = ("step", "learning", "task", "higher_is_better", "scores")
        missing = [name for name in columns if name not in frame.columns]
        if missing:
            raise Damaged(f"{where} holds no scores: it lacks the columns {', '.join(missing)}")
        values = [np.asarray(row, dtype=np.float32) for row in frame["scores"].to_list()]
        better = bool(frame["higher_is_better"][0]) if len(frame) else True
        step, learning, task = (frame[name].to_list() for name in columns[:3])
        return cls(better, step, learning, task, values)
