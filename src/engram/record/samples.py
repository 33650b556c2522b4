"""Who the test samples of a run are: their ids, labels and slices, so that bits of two runs can be joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from engram.core.errors import Damaged, InputError
from engram.core.files import write_parquet
from engram.core.trace import read_table

if TYPE_CHECKING:
    import numpy as np
    import polars
    from numpy.typing import NDArray

TASK, POSITION, ID, LABEL, DRAWN = "task", "position", "id", "label", "drawn"
COLUMNS: Final = (TASK, POSITION, ID, LABEL, DRAWN)
RESERVED: Final = (*COLUMNS, "correct", "prediction", "class", "old", "new", "old answer", "new answer")
"""Names that a slice cannot have: they mean something else here or in the gate."""

_LISTED: Final = 10

Cell: TypeAlias = "str | int | float | bool | None"
Column: TypeAlias = "Sequence[object] | NDArray[np.generic]"
"""One value per sample: a list, a tuple or an array."""
T = TypeVar("T")
PerTask: TypeAlias = "Sequence[T] | Mapping[str, T]"
"""One entry per task, or entries by the tasks' names."""


@dataclass(frozen=True, slots=True)
class TaskSamples:
    """The test samples of one task, checked.

    Attributes:
        ids: The name of each sample, different from all others of the task.
        labels: The class of each sample; None where that is unknown.
        slices: Columns with one value per sample, by name.
        positions: The place of each sample in the test set; None for all places in order.
        drawn: For each sample, whether the evaluations of the trace are on it; None where all are.
    """

    ids: Sequence[str]
    labels: Sequence[int] | Sequence[str] | None = None
    slices: Mapping[str, Sequence[Cell]] = field(default_factory=dict)
    positions: Sequence[int] | None = None
    drawn: Sequence[bool] | None = None

    def chosen(self, rows: Sequence[int], drawn: Sequence[bool]) -> TaskSamples:
        """Some of the samples, and which of them the evaluations of the trace are on."""
        labels = None if self.labels is None else [self.labels[row] for row in rows]
        slices = {name: [column[row] for row in rows] for name, column in self.slices.items()}
        return TaskSamples([self.ids[row] for row in rows], labels, slices, rows, drawn)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Samples:
    """The test samples of a run, in the order of the bits of its trace.

    Attributes:
        frame: One row per sample of each task: `task`; `position`, its place in the task's test set; `id`;
            `label`, null where unknown; `drawn`, whether the trace has a bit for it (others have one only in
            evaluations on full test sets); and any number of columns that are slices.

    Example:
        >>> samples = Samples.of({0: TaskSamples(["a", "b"], [0, 1], {"light": ["day", "night"]})})
        >>> samples.slice_columns, samples.of_task(0)["id"].to_list()
        (('light',), ['a', 'b'])
    """

    frame: polars.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        """How many there are, and which slices."""
        slices = f", slices {', '.join(self.slice_columns)}" if self.slice_columns else ""
        return f"<Samples: {len(self):,} of {self.frame[TASK].n_unique()} tasks{slices}>"

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """The columns that divide the samples into slices, and `text` and `image`."""
        return tuple(name for name in self.frame.columns if name not in COLUMNS)

    def of_task(self, task: int, *, whole: bool = False) -> polars.DataFrame:
        """The samples of one task in the order of its bits; empty where none are known.

        Args:
            task: The task's number.
            whole: Whether the bits are those of an evaluation on the full test set.
        """
        import polars as pl

        rows = self.frame.filter(pl.col(TASK) == task)
        return rows if whole else rows.filter(pl.col(DRAWN))

    @classmethod
    def of(cls, tasks: Mapping[int, TaskSamples]) -> Samples:
        """The samples of all tasks, each checked already.

        Raises:
            InputError: Labels are numbers in one task and names in another, or so are values of a slice.
        """
        import polars as pl

        columns: dict[str, list[Cell]] = {name: [] for name in COLUMNS}
        names = list(dict.fromkeys(name for task in tasks.values() for name in task.slices))
        columns |= {name: [] for name in names}
        for number, task in tasks.items():
            size = len(task.ids)
            columns[TASK] += [number] * size
            columns[POSITION] += list(range(size) if task.positions is None else task.positions)
            columns[ID] += task.ids
            columns[LABEL] += [None] * size if task.labels is None else task.labels
            columns[DRAWN] += [True] * size if task.drawn is None else task.drawn
            for name in names:
                columns[name] += task.slices.get(name, [None] * size)
        kinds = {TASK: pl.Int32, POSITION: pl.Int32, ID: pl.String, DRAWN: pl.Boolean}
        series = []
        for name, values in columns.items():
            try:
                series.append(pl.Series(name, values, dtype=kinds.get(name)))
            except (TypeError, pl.exceptions.PolarsError):
                what = "labels" if name == LABEL else f"the values of slice {name!r}"
                raise InputError(
                    f"{what} must be of one kind in all tasks: all numbers, or all text"
                ) from None
        return cls(pl.DataFrame(series))

    def save(self, path: Path) -> str:
        """Write as Parquet, whole or not at all, and return the file's checksum."""
        return write_parquet(path, self.frame)

    @classmethod
    def load(cls, path: Path, *, sha256: str | None = None) -> Samples:
        """Read what `save` wrote.

        Raises:
            InputError: It cannot be read.
            Damaged: It is not what was written.
        """
        return cls.of_frame(read_table(path, "samples", sha256=sha256), str(path))

    @classmethod
    def of_frame(cls, frame: polars.DataFrame, where: str) -> Samples:
        """The samples in a table with the columns of the file; `where` is named in messages."""
        lacking = [name for name in COLUMNS if name not in frame.columns]
        if lacking:
            raise Damaged(f"{where} is not a table of samples: it lacks the columns {', '.join(lacking)}")
        return cls(frame)


def checked_ids(values: Column, size: int, of: str) -> list[str]:
    """Ids as text: one per sample, each different.

    Args:
        values: Numbers or text, such as a list or an array.
        size: How many samples there are.
        of: What has them, for messages.

    Raises:
        InputError: There are more or fewer, one is missing or neither, or they repeat (up to ten are listed).

    Example:
        >>> checked_ids([7, 8], 2, "task 0")
        ['7', '8']
        >>> checked_ids(["a", "b", "a"], 3, "task 0")
        Traceback (most recent call last):
        engram.core.errors.InputError: ids must differ, 1 of task 0 occurs more than once: 'a'
    """
    plain = _plain(values, "ids", size, of)
    for value in plain:
        if isinstance(value, bool | float) or value is None:
            raise InputError(f"ids must be whole numbers or text, {of} has {value!r}")
    ids = [str(value) for value in plain]
    if len(set(ids)) < len(ids):
        repeated = [name for name, times in Counter(ids).items() if times > 1]
        verb = "occurs" if len(repeated) == 1 else "occur"
        raise InputError(
            f"ids must differ, {len(repeated)} of {of} {verb} more than once: {listed(repeated)}"
        )
    return ids


def checked_labels(values: Column, size: int, of: str) -> list[int] | list[str]:
    """Labels as class numbers or as text: one per sample, all of one kind.

    Raises:
        InputError: There are more or fewer, one is missing, or kinds are mixed.

    Example:
        >>> checked_labels(["cat", "dog"], 2, "task 0")
        ['cat', 'dog']
    """
    plain = _plain(values, "labels", size, of)
    numbers = [value for value in plain if isinstance(value, int) and not isinstance(value, bool)]
    if len(numbers) == size:
        return numbers
    words = [value for value in plain if isinstance(value, str)]
    if len(words) == size:
        return words
    raise InputError(f"labels must be all whole numbers or all text, {of} has {plain[0]!r} and others")


def checked_slices(columns: Mapping[str, Column], size: int, of: str) -> dict[str, Sequence[Cell]]:
    """Slices: columns with one value per sample.

    Raises:
        InputError: A column has another length, a reserved name, or values that are no numbers or text.

    Example:
        >>> checked_slices({"light": ["day"]}, 2, "task 0")
        Traceback (most recent call last):
        engram.core.errors.InputError: slice 'light' must have one value per sample: task 0 has 2, got 1
    """
    if not isinstance(columns, Mapping):
        raise InputError(
            f"slices must be columns by name, as in {{'light': ['day', …]}}, {of} has {columns!r}"
        )
    checked: dict[str, Sequence[Cell]] = {}
    for name, values in columns.items():
        if name in RESERVED:
            raise InputError(f"a slice cannot be called {name!r}: choose another name")
        checked[str(name)] = _plain(values, f"slice {name!r}", size, of)
    return checked


def by_task(values: PerTask[T], names: Sequence[str], what: str) -> list[T]:
    """What belongs to each task, given as one entry per task or by the tasks' names.

    Raises:
        InputError: There are more or fewer entries than tasks, or a name is not that of a task.

    Example:
        >>> by_task({"b": 2, "a": 1}, ["a", "b"], "ids")
        [1, 2]
    """
    if isinstance(values, Mapping):
        if set(values) != set(names):
            raise InputError(
                f"{what} must be given for every test set by its name: {listed(list(names))}, "
                f"got {listed([str(name) for name in values])}"
            )
        return [values[name] for name in names]
    if len(values) != len(names):
        raise InputError(f"{what} must have one entry per test set, got {len(values)} for {len(names)}")
    return list(values)


def same_samples(known: Collection[str], ids: Collection[str], of: str) -> None:
    """Check that a task was evaluated on the same samples as before.

    Raises:
        InputError: Some are missing or new (up to ten are listed).
    """
    lacking = [name for name in known if name not in set(ids)]
    new = [name for name in ids if name not in set(known)]
    if lacking or new:
        parts = [
            f"{len(names)} {word}: {listed(names)}"
            for word, names in (("missing", lacking), ("new", new))
            if names
        ]
        raise InputError(f"the ids of {of} are not those of its first evaluation: {'; '.join(parts)}")


def listed(values: Sequence[str]) -> str:
    """Up to ten values, and how many more there are.

    Example:
        >>> listed(["a", "b"])
        "'a', 'b'"
    """
    rest = len(values) - _LISTED
    return ", ".join(map(repr, values[:_LISTED])) + (f" and {rest} more" if rest > 0 else "")


def _plain(values: object, what: str, size: int, of: str) -> list[Cell]:
    """The values as Python's own: of a list, a tuple, or an array or series that has `tolist`."""
    convert = getattr(values, "tolist", None) or getattr(values, "to_list", None)
    plain = convert() if convert is not None else values
    if isinstance(plain, str | bytes) or not isinstance(plain, Sequence | range):
        raise InputError(f"{what} must be a sequence, {of} has {type(values).__name__}")
    if len(plain) != size:
        one = "entry" if what in ("ids", "labels") else "value"
        raise InputError(f"{what} must have one {one} per sample: {of} has {size}, got {len(plain)}")
    entries = [getattr(value, "item", lambda value=value: value)() for value in plain]
    for value in entries:
        if value is not None and not isinstance(value, str | int | float):
            raise InputError(f"{what} must be numbers or text, {of} has a {type(value).__name__}")
    return entries
