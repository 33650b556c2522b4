"""What was answered: the predicted class of each sample in each evaluation, for churn and confusion."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from engram.core.errors import Damaged, InputError
from engram.core.files import write_parquet
from engram.core.trace import read_table
from engram.metrics.predictions import Classes, prediction_churn

if TYPE_CHECKING:
    import polars

COLUMNS: Final = ("step", "learning", "task", "total", "codes", "classes")
_WIDTHS: Final = {1: "<u1", 2: "<u2", 4: "<u4"}


@dataclass(slots=True, repr=False)
class Answers:
    """One row per evaluation of each task, beside the rows of the trace.

    Attributes:
        step: Updates done when it was evaluated.
        learning: The task being learned.
        task: The task being evaluated.
        total: How many samples were evaluated.
        codes: The class of each sample, in 1, 2 or 4 bytes, little-endian: its number, or its place among the
            classes named so far.
        classes: The names of classes that occur for the first time in this row; None where classes are
            numbers.

    Example:
        >>> answers = Answers()
        >>> answers.add(step=1, learning=0, task=0, answers=np.array(["cat", "dog", "cat"]))
        >>> answers.add(step=2, learning=0, task=0, answers=np.array(["cat", "cow", "cat"]))
        >>> answers.at(2, 0).tolist(), answers.churn(1, 2)
        (['cat', 'cow', 'cat'], 0.3333333333333333)
    """

    step: list[int] = field(default_factory=list)
    learning: list[int] = field(default_factory=list)
    task: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    codes: list[bytes] = field(default_factory=list)
    classes: list[list[str] | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        """How much there is, on one line."""
        return (
            f"<Answers: {len(self)} rows, {len(set(self.step))} evaluations of {len(set(self.task))} tasks>"
        )

    def add(self, *, step: int, learning: int, task: int, answers: Classes) -> None:
        """Append the answers to one task's samples: class numbers from 0 on, or names.

        Raises:
            InputError: They are neither, or were of the other kind before.
        """
        array = np.asarray(answers)
        kind = array.dtype.kind
        if array.ndim != 1 or kind not in "iuU" or (kind == "i" and array.size and array.min() < 0):
            raise InputError("answers must be one class per sample: a number from 0 on, or a name")
        if self.step and (self.classes[0] is None) != (kind != "U"):
            raise InputError("answers must be class numbers throughout, or names throughout")
        new: list[str] | None = None
        if kind == "U":
            known = {name: place for place, name in enumerate(self.names)}
            new = [str(name) for name in dict.fromkeys(array.tolist()) if name not in known]
            known |= {name: len(known) + place for place, name in enumerate(new)}
            array = np.array([known[name] for name in array.tolist()], dtype=np.int64)
        highest = int(array.max()) if array.size else 0
        if highest >= 2**32:
            raise InputError(f"answers must be classes below {2**32}, got {highest}")
        width = 1 if highest < 2**8 else 2 if highest < 2**16 else 4
        self.step.append(step)
        self.learning.append(learning)
        self.task.append(task)
        self.total.append(len(array))
        self.codes.append(array.astype(_WIDTHS[width]).tobytes())
        self.classes.append(new)

    @property
    def names(self) -> list[str]:
        """The names of all classes that were answered, in the order in which they occurred."""
        return [name for new in self.classes for name in new or ()]

    def answered(self, row: int) -> Classes:
        """The answers of one row."""
        size = self.total[row]
        width = len(self.codes[row]) // size if size else 1
        codes = np.frombuffer(self.codes[row], dtype=_WIDTHS[width]).astype(np.int64)
        return codes if self.classes[row] is None else np.array(self.names, dtype=np.str_)[codes]

    def has(self, step: int, task: int) -> bool:
        """Whether answers to a task's samples were recorded after `step` updates."""
        return (step, task) in zip(self.step, self.task, strict=True)

    def at(self, step: int, task: int) -> Classes:
        """The answers to a task's samples after `step` updates, in the order of the trace's bits.

        Raises:
            InputError: None were recorded there.
        """
        for row in reversed(range(len(self))):
            if self.step[row] == step and self.task[row] == task:
                return self.answered(row)
        raise InputError(f"no answers were recorded for task {task} at step {step}: {self._hint()}")

    def churn(self, before: int, after: int, *, task: int | None = None) -> float:
        """The share of samples answered differently after `before` and after `after` updates.

        See `engram.metrics.predictions.prediction_churn`.

        Args:
            before: The earlier step.
            after: The later step.
            task: The task; None for the samples of all tasks that were evaluated at both.

        Raises:
            InputError: No answers to the same samples were recorded there.
        """
        tasks = [task] if task is not None else sorted(self._tasks_at(before) & self._tasks_at(after))
        if not tasks:
            raise InputError(f"no task has answers at both step {before} and step {after}: {self._hint()}")
        pairs = [(self.at(before, number), self.at(after, number)) for number in tasks]
        return prediction_churn(
            np.concatenate([first for first, _ in pairs]), np.concatenate([second for _, second in pairs])
        )

    def _tasks_at(self, step: int) -> set[int]:
        return {task for task, at in zip(self.task, self.step, strict=True) if at == step}

    def _hint(self) -> str:
        if not self.step:
            return "record answers with answers=True, or `engram run --answers`"
        return f"there are answers at {len(set(self.step))} steps from {min(self.step)} to {max(self.step)}"

    def frame(self) -> polars.DataFrame:
        """The table with the columns of the file."""
        import polars as pl

        kinds = (pl.Int64, pl.Int32, pl.Int32, pl.Int32, pl.Binary, pl.List(pl.String))
        return pl.DataFrame(
            {name: getattr(self, name) for name in COLUMNS}, schema=dict(zip(COLUMNS, kinds, strict=True))
        )

    def save(self, path: Path) -> str:
        """Write as Parquet, whole or not at all, and return the file's checksum."""
        return write_parquet(path, self.frame())

    @classmethod
    def load(cls, path: Path, *, sha256: str | None = None) -> Answers:
        """Read what `save` wrote.

        Raises:
            InputError: It cannot be read.
            Damaged: It is not what was written, or contradicts itself.
        """
        return cls.of_frame(read_table(path, "answers", sha256=sha256), str(path))

    @classmethod
    def of_frame(cls, frame: polars.DataFrame, where: str) -> Answers:
        """The answers in a table with the columns of the file; `where` is named in messages."""
        lacking = [name for name in COLUMNS if name not in frame.columns]
        if lacking:
            raise Damaged(f"{where} is not a table of answers: it lacks the columns {', '.join(lacking)}")
        answers = cls(*(frame[name].to_list() for name in COLUMNS))
        for row, (codes, total) in enumerate(zip(answers.codes, answers.total, strict=True)):
            if len(codes) not in [width * total for width in _WIDTHS]:
                raise Damaged(f"the answers {where} are damaged: row {row} does not have {total} answers")
        return answers
