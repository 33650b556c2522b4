"""The tables of a run: held in memory, or read from its folder on first use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from engram.core.errors import InputError
from engram.core.files import write_parquet
from engram.core.folder import ENDS, PROBES, TRACE, Reading
from engram.core.trace import Trace


class Tables:
    """Every evaluation of a run, those on full test sets at task ends, and what probes measured.

    Example:
        >>> tables = Tables()
        >>> len(tables.trace), len(tables.ends), tables.readings
        (0, 0, ())
    """

    def __init__(
        self, trace: Trace | None = None, *, ends: Trace | None = None, readings: Sequence[Reading] = ()
    ) -> None:
        self.trace = Trace() if trace is None else trace
        self.ends = Trace() if ends is None else ends
        self.readings = tuple(readings)

    def save(self, folder: Path) -> None:
        """Write the trace, and the other tables where they have rows."""
        self.trace.save(folder / TRACE)
        if len(self.ends):
            self.ends.save(folder / ENDS)
        if self.readings:
            import polars as pl

            kinds = {
                "step": pl.Int64,
                "learning": pl.Int32,
                "task": pl.Int32,
                "name": pl.String,
                "value": pl.Float64,
            }
            write_parquet(folder / PROBES, pl.DataFrame(list(self.readings), schema=kinds, orient="row"))


class StoredTables(Tables):
    """The tables in a run's folder. A missing file is an empty table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, folder: Path) -> None:
        """Copy the tables to another folder; in their own they are written already."""
        if folder != self.folder:
            super().save(folder)

    @cached_property
    def trace(self) -> Trace:  # type: ignore[override]
        """Every evaluation."""
        return _trace(self.folder / TRACE)

    @cached_property
    def ends(self) -> Trace:  # type: ignore[override]
        """The evaluations at task ends on full test sets."""
        return _trace(self.folder / ENDS)

    @cached_property
    def readings(self) -> tuple[Reading, ...]:  # type: ignore[override]
        """What probes measured."""
        return _readings(self.folder / PROBES)


def _trace(path: Path) -> Trace:
    return Trace.load(path) if path.is_file() else Trace()


def _readings(path: Path) -> tuple[Reading, ...]:
    if not path.is_file():
        return ()
    import polars as pl

    try:
        frame = pl.read_parquet(path)
        if "task" not in frame.columns:
            frame = frame.with_columns(task=pl.lit(None, dtype=pl.Int32))
        if "learning" not in frame.columns:
            frame = frame.with_columns(learning=pl.lit(0, dtype=pl.Int32))
        return tuple(frame.select("step", "learning", "task", "name", "value").iter_rows())
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cannot read the probes {path}: {reason}") from error
