"""Writing finished runs to a compact store."""

from __future__ import annotations

import copy
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engram.core.errors import Damaged, InputError
from engram.core.files import as_input_error, make_folder, remove_left_over, temporary_path, write_parquet
from engram.core.folder import EXPERIMENT, finite
from engram.core.jsons import Json, JsonObject
from engram.core.trace import Trace
from engram.record.failure import Failure, FailureKind
from engram.record.incomplete import place_of, why_incomplete
from engram.record.run import Run
from engram.record.seal import CHECKSUMS, digest_of, sealed
from engram.results.store.layout import (
    COUNTS,
    DIGEST,
    INDEX,
    KINDS,
    OWN,
    SAMPLES,
    counts_in,
    digest_of_counts,
    digest_of_index,
    digest_of_table,
)

if TYPE_CHECKING:
    import polars

FILE_BYTES: Final = 2**28
"""A file of tables is full when its rows, uncompressed, take so many bytes: what writing needs in memory."""

ROW_GROUP: Final = 2**14
"""So many rows are read where a single run is asked for."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was written.

    Attributes:
        folder: The store.
        runs: How many runs are in it.
        files: How many files it has.
        size: How many bytes these take.
        damaged: The runs that were left out because a table is not what was written.
    """

    folder: Path
    runs: int
    files: int
    size: int
    damaged: tuple[Run, ...] = ()


def compact(
    runs: Iterable[Run], folder: str | Path, *, told: Callable[[int], None] = lambda done: None
) -> Compacted:
    """Write finished runs to a compact store, which `engram.load` and all commands read like run folders.

    Every table is checked against its checksum as it is read; runs whose tables are damaged are left out, and
    returned. The store is written beside its place and then moved there. The index comes last, so its
    presence means that the store is complete.

    Args:
        runs: The runs.
        folder: The store: a folder that does not exist or is empty.
        told: Called with the number of runs that are done, after each.

    Raises:
        InputError: A run is not finished, two runs have the same id, the folder is not empty or cannot be
            written, or all runs are damaged.
    """
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{place} is not empty: name a folder that does not exist yet")
    target = Path(os.path.realpath(place))
    remove_left_over(target.parent, of=target.name)
    beside = temporary_path(target)
    try:
        written = _written(runs, beside, told)
        _move(beside, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return replace(written, folder=place)


def _move(beside: Path, place: Path) -> None:
    """Move a store to its place; the index comes last."""
    make_folder(place)
    with as_input_error(f"cannot write {place}", "; choose another folder"):
        for entry in sorted(beside.iterdir(), key=lambda entry: entry.name == INDEX):
            entry.rename(place / entry.name)


def _written(runs: Iterable[Run], place: Path, told: Callable[[int], None]) -> Compacted:
    """Write a store to a folder that does not exist yet."""
    parts: dict[str, list[Run]] = {}
    ids: set[str] = set()
    for run in runs:
        if not run.finished:
            raise InputError(f"only finished runs can be compacted: {run.id} is {run.status}")
        if run.id in ids:
            raise InputError(f"two runs have the id {run.id}: leave one of them out")
        ids.add(run.id)
        parts.setdefault(_part(run), []).append(run)
    if not parts:
        raise InputError("there is no finished run to compact")
    rows: list[JsonObject] = []
    damaged: list[Run] = []
    for part, members in sorted(parts.items()):
        writer = _Writer(place, part)
        for member in sorted(members, key=lambda run: run.id):
            # What is read of it is not kept: all runs together may not fit into memory.
            run = replace(member, tables=copy.copy(member.tables))
            try:
                rows.append(_row(run) | writer.add(run))
            except Damaged as error:
                failure = Failure(FailureKind.DAMAGED, str(error))
                damaged.append(replace(member, finished=False, failure=failure))
            told(len(rows) + len(damaged))
        writer.flush()
    if not rows:
        first = damaged[0]
        raise InputError(f"there is no run to compact: {place_of(first)}: {why_incomplete(first)}")
    import polars as pl

    index = pl.DataFrame(rows, infer_schema_length=None)
    write_parquet(place / INDEX, index.with_columns(pl.lit(digest_of_index(index)).alias(DIGEST)))
    files = list(place.rglob("*.parquet"))
    return Compacted(place, len(rows), len(files), sum(path.stat().st_size for path in files), tuple(damaged))


def _part(run: Run) -> str:
    """The name of the files that a run's tables are in: its scenario, setting and method."""
    words = [word for word in (run.scenario, run.setting, run.method) if word] or ["loop"]
    return re.sub(r"[^\w.+-]+", "_", "-".join(words))[:100]


def _row(run: Run) -> JsonObject:
    """What the index says about a run, but for its tables."""
    description = finite(dict(run.description))
    assert isinstance(description, dict)
    # Weights stay in the folder of the run.
    result = {
        **replace(run, weights={}).result(),
        "versions": dict(run.versions),
        CHECKSUMS: {EXPERIMENT: digest_of(description)},
    }
    whole = sealed(finite(result))
    return {
        "id": run.id,
        "label": run.label,
        "scenario": run.scenario,
        "setting": run.setting,
        "method": run.method,
        "seed": run.seed,
        "updates": run.updates,
        "evaluations": run.evaluations,
        "train_seconds": run.seconds.train,
        "evaluate_seconds": run.seconds.evaluate,
        # Parquet has no structures without fields.
        "metrics": dict(run.stored) or None,
        "classes": None if run.classes is None else list(run.classes),
        "sizes": None if run.sizes is None else list(run.sizes),
        "phases": _text(whole["phases"]),
        "test_data": _text(whole["test_data"]),
        "why": _text(whole["why"]),
        "versions": _text(whole["versions"]),
        "extremes": _text(whole.get("extremes")),
        "experiment": _text({name: None if name in OWN else value for name, value in description.items()}),
        "result": _text(whole),
    }


def _text(value: Json) -> str:
    return dumps(value, separators=(",", ":"), allow_nan=False)


@dataclass
class _Writer:
    """Collects the tables of runs, and writes a file whenever they fill one."""

    place: Path
    part: str
    number: int = 0
    size: int = 0
    tables: dict[str, list[polars.DataFrame]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def add(self, run: Run) -> JsonObject:
        """Add the tables of a run; returns what the index says about them."""
        if self.size > FILE_BYTES:
            self.flush()
        entry: JsonObject = {"file": f"{self.part}-{self.number}", SAMPLES: self._keep_samples(run)}
        frames = dict(zip(KINDS, _frames(run), strict=True))
        entry[COUNTS] = digest_of_counts(counts_in(frames["trace"]))
        for kind, frame in frames.items():
            entry[f"{kind}_offset"], entry[f"{kind}_rows"] = self.rows[kind], len(frame)
            entry[f"{kind}_digest"] = digest_of_table(frame) if len(frame) else ""
            if len(frame):
                self.tables[kind].append(_with_id(frame, run.id))
                self.rows[kind] += len(frame)
                self.size += int(frame.estimated_size())
        return entry

    def _keep_samples(self, run: Run) -> str:
        """Write the table of test samples unless it is there; returns its digest, or "" if there is none."""
        if run.samples is None:
            return ""
        digest = digest_of_table(run.samples.frame)
        path = self.place / SAMPLES / f"{digest}.parquet"
        if not path.is_file():
            write_parquet(path, run.samples.frame)
        return digest

    def flush(self) -> None:
        """Write what was collected."""
        import polars as pl

        for kind, frames in self.tables.items():
            if frames:
                path = self.place / kind / f"{self.part}-{self.number}.parquet"
                write_parquet(path, pl.concat(frames), row_group=ROW_GROUP)
        self.tables = {kind: [] for kind in KINDS}
        self.rows = dict.fromkeys(KINDS, 0)
        self.number, self.size = self.number + 1, 0


def _frames(run: Run) -> Sequence[polars.DataFrame]:
    """The tables of a run, in the order of `KINDS`."""
    tables = run.tables
    return (
        tables.trace.frame(),
        tables.ends.frame(),
        tables.readings_frame(),
        tables.scores.frame(),
        tables.answers.frame(),
        (tables.trace.anchors or Trace()).frame(),
    )


def _with_id(frame: polars.DataFrame, name: str) -> polars.DataFrame:
    import polars as pl

    return frame.select(pl.lit(name).alias("id"), pl.all())
