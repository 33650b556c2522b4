"""The tables of a run: held in memory, or read from its folder on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engram.core.errors import Damaged
from engram.core.files import checksum, write_parquet
from engram.core.folder import ENDS, PROBES, TRACE, Reading
from engram.core.trace import Counts, Trace, read_table

if TYPE_CHECKING:
    import polars


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

    def save(self, folder: Path) -> dict[str, str]:
        """Write the trace, and the other tables where they have rows; returns the checksums of the files."""
        checksums = {TRACE: self.trace.save(folder / TRACE)}
        if len(self.ends):
            checksums[ENDS] = self.ends.save(folder / ENDS)
        if self.readings:
            checksums[PROBES] = write_parquet(folder / PROBES, self.readings_frame())
        return checksums

    def counts(self) -> Counts:
        """The trace without its bits, which takes less time to read where many runs are stored together."""
        return self.trace.counts()

    def readings_frame(self) -> polars.DataFrame:
        """What probes measured, as a table with the columns of the file."""
        import polars as pl

        kinds = {
            "step": pl.Int64,
            "learning": pl.Int32,
            "task": pl.Int32,
            "name": pl.String,
            "value": pl.Float64,
        }
        return pl.DataFrame(list(self.readings), schema=kinds, orient="row")


class StoredTables(Tables):
    """The tables in a run's folder.

    Args:
        folder: The folder.
        checksums: The checksums of the files, by their names; a table without one is empty. None where they
            are not known: then a missing file is an empty table.
    """

    def __init__(self, folder: Path, checksums: Mapping[str, str] | None = None) -> None:
        self.folder, self.checksums = folder, checksums

    def save(self, folder: Path) -> dict[str, str]:
        """Copy the tables to another folder; in their own they are written already."""
        if folder != self.folder:
            return super().save(folder)
        if self.checksums is not None:
            return dict(self.checksums)
        files = (folder / name for name in (TRACE, ENDS, PROBES))
        return {file.name: checksum(file.read_bytes()) for file in files if file.is_file()}

    @cached_property
    def trace(self) -> Trace:  # type: ignore[override]
        """Every evaluation."""
        return self._trace(TRACE)

    @cached_property
    def ends(self) -> Trace:  # type: ignore[override]
        """The evaluations at task ends on full test sets."""
        return self._trace(ENDS)

    @cached_property
    def readings(self) -> tuple[Reading, ...]:  # type: ignore[override]
        """What probes measured."""
        return _readings(self.folder / PROBES, self._known(PROBES)) if self._has(PROBES) else ()

    def _trace(self, name: str) -> Trace:
        return Trace.load(self.folder / name, sha256=self._known(name)) if self._has(name) else Trace()

    def _has(self, name: str) -> bool:
        if self.checksums is None:
            return (self.folder / name).is_file()
        # A file that is not recorded was left by an earlier attempt.
        return name in self.checksums

    def _known(self, name: str) -> str | None:
        return None if self.checksums is None else self.checksums[name]


def _readings(path: Path, sha256: str | None) -> tuple[Reading, ...]:
    import polars as pl

    frame = read_table(path, "probes", sha256=sha256)
    try:
        if "task" not in frame.columns:
            frame = frame.with_columns(task=pl.lit(None, dtype=pl.Int32))
        if "learning" not in frame.columns:
            frame = frame.with_columns(learning=pl.lit(0, dtype=pl.Int32))
        return tuple(frame.select("step", "learning", "task", "name", "value").iter_rows())
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Damaged(f"cannot read the probes {path}: {reason}") from error
