"""The tables of a run: held in memory, or read from its folder on first use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import Damaged
from engram.core.files import checksum, write_parquet
from engram.core.folder import ANCHORS, ANSWERS, ENDS, PROBES, SAMPLES, SCORES, TRACE, Reading
from engram.core.scores import Scores
from engram.core.trace import Counts, Trace, read_table
from engram.metrics.history import Curve, Phases
from engram.record.answers import Answers
from engram.record.samples import Samples

if TYPE_CHECKING:
    import polars

ProbeKey = tuple[str, int | None]
"""What a probe measured: its name, and the task it speaks of; None where it speaks of all."""


@dataclass(frozen=True)
class ProbeSeries:
    """What one probe measured over a run: its values, and after how many updates each was taken."""

    step: NDArray[np.int64]
    value: NDArray[np.float64]


def probe_series(readings: Iterable[Reading]) -> dict[ProbeKey, ProbeSeries]:
    """What each probe measured, of each task or of all.

    Example:
        >>> probe_series([(1, 0, None, "loss", 0.5)])[("loss", None)].value
        array([0.5])
    """
    series: dict[ProbeKey, list[tuple[int, float]]] = {}
    for step, _, task, name, value in readings:
        series.setdefault((name, task), []).append((step, value))
    return {
        key: ProbeSeries(
            np.array([step for step, _ in points], dtype=np.int64),
            np.array([value for _, value in points], dtype=np.float64),
        )
        for key, points in series.items()
    }


class Tables:
    """The trace of a run, evaluations on full test sets at task ends, scores, probes, samples, answers.

    Example:
        >>> tables = Tables()
        >>> len(tables.trace), len(tables.ends), tables.readings
        (0, 0, ())
    """

    def __init__(
        self,
        trace: Trace | None = None,
        *,
        ends: Trace | None = None,
        scores: Scores | None = None,
        readings: Sequence[Reading] = (),
        samples: Samples | None = None,
        answers: Answers | None = None,
    ) -> None:
        self.trace = Trace() if trace is None else trace
        self.ends = Trace() if ends is None else ends
        self.scores = Scores() if scores is None else scores
        self.readings = tuple(readings)
        self.samples = samples
        self.answers = Answers() if answers is None else answers

    @property
    def has_answers(self) -> bool:
        """Whether answers were recorded."""
        return len(self.answers) > 0

    @property
    def has_anchors(self) -> bool:
        """Whether samples have two levels."""
        return self.trace.anchors is not None

    def save(self, folder: Path) -> dict[str, str]:
        """Write the trace, and the other tables where they have rows; returns the checksums of the files."""
        checksums = {TRACE: self.trace.save(folder / TRACE)}
        if self.trace.anchors is not None:
            checksums[ANCHORS] = self.trace.anchors.save(folder / ANCHORS)
        if len(self.ends):
            checksums[ENDS] = self.ends.save(folder / ENDS)
        if len(self.scores):
            checksums[SCORES] = self.scores.save(folder / SCORES)
        if self.readings:
            checksums[PROBES] = write_parquet(folder / PROBES, self.readings_frame())
        if self.samples is not None:
            checksums[SAMPLES] = self.samples.save(folder / SAMPLES)
        if len(self.answers):
            checksums[ANSWERS] = self.answers.save(folder / ANSWERS)
        return checksums

    def counts(self) -> Counts:
        """The trace without its bits, which takes less time to read where many runs are stored together."""
        return self.trace.counts()

    def curve(self, phases: Phases | None = None) -> Curve:
        """The accuracies; with two levels of samples those of all, as estimated between anchors."""
        if self.has_anchors:
            return Curve.of_trace(self.trace, phases=phases)
        return Curve.of_counts(**self.counts()._asdict(), phases=phases)

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
        files = (folder / name for name in (TRACE, ANCHORS, ENDS, SCORES, PROBES, SAMPLES, ANSWERS))
        return {file.name: checksum(file.read_bytes()) for file in files if file.is_file()}

    @cached_property
    def trace(self) -> Trace:  # type: ignore[override]
        """Every evaluation, with its anchors where samples have two levels."""
        trace = self._trace(TRACE)
        trace.anchors = self._trace(ANCHORS) if self._has(ANCHORS) else None
        return trace

    @cached_property
    def ends(self) -> Trace:  # type: ignore[override]
        """The evaluations at task ends on full test sets."""
        return self._trace(ENDS)

    @cached_property
    def scores(self) -> Scores:  # type: ignore[override]
        """The scores of every evaluation."""
        return (
            Scores.load(self.folder / SCORES, sha256=self._known(SCORES)) if self._has(SCORES) else Scores()
        )

    @cached_property
    def readings(self) -> tuple[Reading, ...]:  # type: ignore[override]
        """What probes measured."""
        return _readings(self.folder / PROBES, self._known(PROBES)) if self._has(PROBES) else ()

    @cached_property
    def samples(self) -> Samples | None:  # type: ignore[override]
        """Who the test samples are; None where that was not recorded."""
        if not self._has(SAMPLES):
            return None
        return Samples.load(self.folder / SAMPLES, sha256=self._known(SAMPLES))

    @cached_property
    def answers(self) -> Answers:  # type: ignore[override]
        """What was answered; empty where that was not recorded."""
        if not self._has(ANSWERS):
            return Answers()
        return Answers.load(self.folder / ANSWERS, sha256=self._known(ANSWERS))

    @property
    def has_answers(self) -> bool:
        """Whether answers were recorded, without reading them."""
        return self._has(ANSWERS)

    @property
    def has_anchors(self) -> bool:
        """Whether samples have two levels, without reading the trace."""
        return self._has(ANCHORS)

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
