"""Reading runs from a compact store."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from engram.core.collection import without_collection
from engram.core.errors import Damaged, InputError
from engram.core.folder import Reading
from engram.core.jsons import JsonObject
from engram.core.scores import Scores
from engram.core.trace import COLUMNS, Counts, Trace
from engram.metrics.extremes import Extremes
from engram.record.answers import Answers
from engram.record.later import Later
from engram.record.result import Seconds, with_result
from engram.record.run import Run
from engram.record.samples import Samples
from engram.record.seal import check_id, check_seal
from engram.record.tables import Tables
from engram.record.test_data import TestData
from engram.results.store.layout import (
    COUNTS,
    DIGEST,
    INDEX,
    KINDS,
    LATER,
    LIGHT,
    OWN,
    SAMPLES,
    counts_in,
    digest_of_counts,
    digest_of_index,
    digest_of_table,
)

if TYPE_CHECKING:
    import polars

T = TypeVar("T")

_SHARED = 4096
"""How many different texts are kept parsed: most runs of a store have the same phases and test data."""


def is_remote(address: str | Path) -> bool:
    """Whether an address has a scheme, such as `s3://`.

    Example:
        >>> is_remote("s3://bucket/runs"), is_remote("runs")
        (True, False)
    """
    return re.match(r"[a-zA-Z][\w+.-]+://", str(address)) is not None


def is_store(address: str | Path) -> bool:
    """Whether an address is that of a compact store; one with a scheme is taken for one.

    Example:
        >>> is_store("s3://bucket/runs"), is_store("nowhere")
        (True, False)
    """
    return is_remote(address) or (Path(address) / INDEX).is_file()


def store_of(address: str | Path) -> tuple[str, str] | None:
    """The compact store and the id of the run that an address like `STORE/ID` names; None if it names none.

    Example:
        >>> store_of("s3://bucket/runs/er-s0")
        ('s3://bucket/runs', 'er-s0')
        >>> store_of("nowhere/er-s0") is None
        True
    """
    store, _, name = str(address).rstrip("/").rpartition("/")
    return (store, name) if store and is_store(store) and not Path(address).exists() else None


def read_store(address: str | Path) -> list[Run]:
    """The runs in a compact store. Tables, cards and accounts are read on first use.

    Args:
        address: A folder, or any address that Polars reads.

    Raises:
        InputError: It cannot be read.
        Damaged: It is not what was written.
    """
    place = str(address).rstrip("/")
    index = _whole(f"{place}/{INDEX}")
    columns = [name for name in LIGHT if name in index.columns or name not in LATER]
    missing = [name for name in columns if name not in index.columns]
    if missing:
        raise Damaged(f"{place}/{INDEX} is not an index of runs: it lacks the columns {', '.join(missing)}")
    if DIGEST in index.columns and index[DIGEST].unique().to_list() != [digest_of_index(index)]:
        raise Damaged(f"{place}/{INDEX} is damaged: its digest is not that of its content")
    files = _Files(place)
    with without_collection():
        return [_run(_Row(row), place, files) for row in index.select(columns).to_dicts()]


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the index, whose values have the types that were written."""

    values: Mapping[str, object]

    def text(self, name: str) -> str:
        return str(self.values[name])

    def number(self, name: str) -> int:
        value = self.values.get(name)
        return value if isinstance(value, int) else 0

    def fraction(self, name: str) -> float:
        value = self.values[name]
        return float(value) if isinstance(value, int | float) else 0.0

    def numbers(self, name: str) -> tuple[int, ...] | None:
        value = self.values[name]
        return tuple(value) if isinstance(value, list) else None

    def metrics(self) -> dict[str, float]:
        value = self.values["metrics"]
        known = value.items() if isinstance(value, dict) else ()
        return {name: number for name, number in known if number is not None}


def _run(row: _Row, place: str, files: _Files) -> Run:
    where = f"the run {row.text('id')} in {place}"
    description = _description(row, where)
    pieces = {kind: files.piece(row, kind) for kind in KINDS}
    counts = str(row.values.get(COUNTS, ""))
    tables = _StoreTables(where, pieces, counts, f"{place}/{SAMPLES}", row.text(SAMPLES))
    whole = _Whole(row, where)
    return Run(
        description=description,
        finished=True,
        stored=row.metrics(),
        by_task=Later(lambda: whole.run.by_task),
        why=Later(lambda: _parsed(_texts, row.text("why"), where)),
        estimates=Later(lambda: _parsed(_extremes, row.text("extremes"), where)),
        sizes=row.numbers("sizes"),
        classes=row.numbers("classes"),
        phases=_parsed(_phases, row.text("phases"), where),
        test_data=_parsed(_test_data, row.text("test_data"), where),
        updates=row.number("updates"),
        evaluations=row.number("evaluations"),
        seconds=Seconds(row.fraction("train_seconds"), row.fraction("evaluate_seconds")),
        account=Later(lambda: whole.run.account),
        card=Later(lambda: whole.run.card),
        versions=_parsed(_texts, row.text("versions"), where),
        tables=tables,
    )


def _description(row: _Row, where: str) -> JsonObject:
    """What the run is; runs that differ in their id and seed only share the rest."""
    shared = _parsed(_shared_object, row.text("experiment"), where)
    own: JsonObject = {name: row.values[name] for name in OWN if name in shared}
    return {**shared, **own}


class _Whole:
    """What the sealed result of a run says, read and checked on first use."""

    def __init__(self, row: _Row, where: str) -> None:
        self.row, self.where = row, where

    @cached_property
    def run(self) -> Run:
        result = _parsed(_object, self.row.text("result"), self.where)
        check_seal(result, Path(self.where))
        check_id(result, self.row.text("id"), Path(self.where))
        return with_result(Run(), result, self.where, Tables())


def _parsed(parse: Callable[[str], T], text: str, where: str) -> T:
    """What a text in the index says."""
    try:
        return parse(text)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Damaged(f"{where} is damaged: {error}") from error


def _object(text: str) -> JsonObject:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("it is not a JSON object")
    return value


_shared_object = lru_cache(_SHARED)(_object)


def _extremes(text: str) -> Extremes | None:
    value = json.loads(text)
    return None if value is None else Extremes.of_json(value)


@lru_cache(_SHARED)
def _texts(text: str) -> Mapping[str, str]:
    return {str(name): str(value) for name, value in json.loads(text).items()}


@lru_cache(_SHARED)
def _test_data(text: str) -> tuple[TestData, ...]:
    return tuple(TestData.of_json(task) for task in json.loads(text))


@lru_cache(_SHARED)
def _phases(text: str) -> Mapping[int, tuple[int, ...]]:
    return {int(learning): tuple(tasks) for learning, tasks in json.loads(text)}


class _File:
    """A file of tables of many runs."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def _table(self) -> polars.LazyFrame:
        """The file; what Polars learns about it is kept with this value."""
        import polars as pl

        return pl.scan_parquet(self.path, glob=False)

    def rows(self, offset: int, count: int) -> polars.DataFrame:
        """Some of its rows, without the ids of runs."""
        return _answered(self.path, lambda: self._table.drop("id").slice(offset, count))

    @cached_property
    def counts(self) -> Sequence[NDArray[np.int64]]:
        """The columns of traces but for the bits, which are most of a file."""
        return counts_in(_answered(self.path, lambda: self._table.select(COLUMNS[:-1])))


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of a file that are one table of one run."""

    file: _File
    offset: int
    rows: int
    digest: str


class _Files:
    """The files of a store, each opened once."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.opened: dict[str, _File] = {}

    def piece(self, row: _Row, kind: str) -> _Piece | None:
        """Where one table of a run is; None where it has no rows."""
        rows = row.number(f"{kind}_rows")
        if not rows:
            return None
        path = f"{self.place}/{kind}/{row.text('file')}.parquet"
        file = self.opened.setdefault(path, _File(path))
        return _Piece(file, row.number(f"{kind}_offset"), rows, row.text(f"{kind}_digest"))


class _StoreTables(Tables):
    """The tables of a run in a compact store, each read and checked on first use."""

    def __init__(
        self, where: str, pieces: Mapping[str, _Piece | None], counts: str, shared: str, samples: str
    ) -> None:
        self._where, self._pieces, self._counts = where, pieces, counts
        self._shared, self._samples = shared, samples

    @cached_property
    def trace(self) -> Trace:  # type: ignore[override]
        """Every evaluation, with its anchors where samples have two levels."""
        trace = self._trace("trace")
        trace.anchors = None if self._pieces["anchors"] is None else self._trace("anchors")
        return trace

    @cached_property
    def ends(self) -> Trace:  # type: ignore[override]
        """The evaluations at task ends on full test sets."""
        return self._trace("ends")

    @cached_property
    def readings(self) -> tuple[Reading, ...]:  # type: ignore[override]
        """What probes measured."""
        frame = self._frame("probes")
        return () if frame is None else tuple(frame.iter_rows())

    @cached_property
    def scores(self) -> Scores:  # type: ignore[override]
        """The scores of every evaluation."""
        frame = self._frame("scores")
        return Scores() if frame is None else Scores.of_frame(frame, self._where)

    @cached_property
    def answers(self) -> Answers:  # type: ignore[override]
        """What was answered; empty where that was not recorded."""
        frame = self._frame("answers")
        return Answers() if frame is None else Answers.of_frame(frame, self._where)

    @property
    def has_answers(self) -> bool:
        """Whether answers were recorded, without reading them."""
        return self._pieces["answers"] is not None

    @property
    def has_anchors(self) -> bool:
        """Whether samples have two levels, without reading the trace."""
        return self._pieces["anchors"] is not None

    @cached_property
    def samples(self) -> Samples | None:  # type: ignore[override]
        """Who the test samples are; None where that was not recorded."""
        return _samples(f"{self._shared}/{self._samples}.parquet", self._samples) if self._samples else None

    def counts(self) -> Counts:
        """The trace without its bits, read together with those of the other runs in its file."""
        piece = self._pieces["trace"]
        if piece is None or "trace" in vars(self):
            return super().counts()
        part = slice(piece.offset, piece.offset + piece.rows)
        counts = [column[part] for column in piece.file.counts]
        # Stores of earlier versions do not have this digest.
        if self._counts:
            self._check("trace", digest_of_counts(counts), self._counts)
        return Counts(*counts)

    def _trace(self, kind: str) -> Trace:
        frame = self._frame(kind)
        return Trace() if frame is None else Trace.of_frame(frame, self._where)

    def _frame(self, kind: str) -> polars.DataFrame | None:
        piece = self._pieces[kind]
        if piece is None:
            return None
        frame = piece.file.rows(piece.offset, piece.rows)
        self._check(kind, digest_of_table(frame), piece.digest)
        return frame

    def _check(self, kind: str, digest: str, recorded: str) -> None:
        if digest != recorded:
            raise Damaged(f"the {kind} of {self._where} is damaged: its digest is not the recorded one")


@lru_cache(16)
def _samples(path: str, digest: str) -> Samples:
    frame = _whole(path)
    if digest_of_table(frame) != digest:
        raise Damaged(f"the samples {path} are damaged: their digest is not the recorded one")
    return Samples.of_frame(frame, path)


def _whole(path: str) -> polars.DataFrame:
    """All of a Parquet file."""
    import polars as pl

    return _answered(path, lambda: pl.scan_parquet(path, glob=False))


def _answered(path: str, query: Callable[[], polars.LazyFrame]) -> polars.DataFrame:
    """What a query on a Parquet file gives."""
    import polars as pl

    try:
        return query().collect()
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        # Errors of a network or a disk are no damage.
        unread = is_remote(path) or (isinstance(error, OSError) and Path(path).exists())
        raise (InputError if unread else Damaged)(f"cannot read {path}: {reason}") from error
