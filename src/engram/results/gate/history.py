"""Many versions of a model over time: its slices, and which samples were lost when and came back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.folder import finite, looks_like_run
from engram.core.jsons import JsonObject
from engram.metrics.arrays import Matrix
from engram.results.gate.comparing import read_all
from engram.results.gate.judging import Change, judge
from engram.results.gate.pairs import (
    CLASS,
    EVERYTHING,
    NEW,
    NEW_ANSWER,
    OLD,
    OLD_ANSWER,
    Pairs,
    choose_slices,
    join,
)
from engram.results.gate.predictions import ID, Predictions
from engram.results.store import is_store, read_store

if TYPE_CHECKING:
    import polars

_ENDINGS: Final = (".csv", ".parquet", ".jsonl", ".npz")


@dataclass(frozen=True, slots=True)
class History:
    """What many versions of a model answered to the same samples.

    Attributes:
        versions: The names of the versions, oldest first.
        changes: For every version but the first, all samples and every slice compared with the version
            before it, by name.
        slices: The names of the slices; the first one is all samples.
        totals: The samples of each slice.
        accuracy: `accuracy[version, slice]`.
        right: `right[sample, version]`.
        samples: One row per sample: `id`, `label` and so on where known, and the slices.
    """

    versions: tuple[str, ...]
    changes: tuple[dict[str, Change], ...]
    slices: tuple[str, ...]
    totals: tuple[int, ...]
    accuracy: Matrix
    right: NDArray[np.bool_]
    samples: polars.DataFrame

    def __repr__(self) -> str:
        """The number of versions and samples, and the accuracy of the first and the last version."""
        first, last = self.accuracy[0, 0], self.accuracy[-1, 0]
        return (
            f"<History of {len(self.versions)} versions, {len(self.right):,} samples: "
            f"{first:.2%} to {last:.2%}>"
        )

    def fates(self) -> polars.DataFrame:
        """What became of every sample that was right once and wrong later, latest loss first.

        Columns: those of `samples`; `lost in`, the version that lost it last; `back in`, the version in which
        it came back for good, null if it is wrong now; `losses`, how often it was lost.

        Example:
            >>> answers = np.array([[1, 0, 1], [1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=bool)
            >>> import polars as pl
            >>> names, samples = ("a", "b", "c"), pl.DataFrame({"id": list("pqrs")})
            >>> history = History(names, (), (), (), np.ones((3, 1)), answers, samples)
            >>> history.fates().rows()
            [('q', 'c', None, 1), ('p', 'b', 'c', 1)]
        """
        import polars as pl

        lost = self.right[:, :-1] & ~self.right[:, 1:]
        rows = np.flatnonzero(lost.any(axis=1))
        versions = np.array(self.versions, dtype=object)
        last_loss = lost.shape[1] - 1 - np.argmax(lost[rows, ::-1], axis=1)
        # After its last loss a sample is wrong for some versions, and then right until now, if at all.
        later = np.arange(self.right.shape[1]) > last_loss[:, None] + 1
        regained = later & self.right[rows]
        back = np.where(regained.any(axis=1), np.argmax(regained, axis=1), -1)
        # The class is the label, which is there as well.
        known: pl.DataFrame = self.samples.drop(CLASS, strict=False)[rows.tolist()]
        frame = known.with_columns(
            pl.Series("lost in", versions[last_loss + 1].tolist(), dtype=pl.String),
            pl.Series(
                "back in", [None if place < 0 else self.versions[place] for place in back], dtype=pl.String
            ),
            pl.Series("losses", lost[rows].sum(axis=1), dtype=pl.Int64),
        )
        order = np.lexsort((rows, back >= 0, -last_loss))
        sorted_frame: pl.DataFrame = frame[order.tolist()]
        return sorted_frame

    def as_json(self) -> JsonObject:
        """Accuracies and changes of all versions, without the samples."""
        counts = self.right.sum(axis=1)
        whole: JsonObject = finite(
            {
                "versions": list(self.versions),
                "samples": len(self.right),
                "always_right": int((counts == len(self.versions)).sum()),
                "never_right": int((counts == 0).sum()),
                "slices": {
                    name: {"total": self.totals[column], "accuracy": self.accuracy[:, column].tolist()}
                    for column, name in enumerate(self.slices)
                },
                "lost": [changes[EVERYTHING].lost for changes in self.changes],
                "gained": [changes[EVERYTHING].gained for changes in self.changes],
                "p": [changes[EVERYTHING].p for changes in self.changes],
            }
        )
        return whole


def versions_in(folder: Path) -> list[Path]:
    """The prediction files and runs in a folder, or the runs in a compact store.

    They are in the order of their names, numbers by their value.

    Raises:
        InputError: There are fewer than two.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("v10.csv", "v9.csv", "notes.txt"):
        ...     _ = (folder / name).write_text("id,correct")
        >>> [path.name for path in versions_in(folder)]
        ['v9.csv', 'v10.csv']
    """
    if not folder.is_dir():
        raise InputError(f"no such folder: {folder}; name one that holds a prediction file per version")
    stored = [folder / run.id for run in read_store(folder)] if is_store(folder) else None
    paths = stored or [
        path
        for path in folder.iterdir()
        if not path.name.startswith(".")
        and (looks_like_run(path) if path.is_dir() else path.suffix.lower() in _ENDINGS)
    ]
    if len(paths) < 2:
        found = "one version" if paths else "no versions"
        raise InputError(f"{folder} has {found}: a history needs at least two prediction files or runs")
    return sorted(paths, key=_natural)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A key that sorts numbers in names by their value: v9 before v10."""
    parts = re.split(r"(\d+)", path.name)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def read_history(
    paths: Sequence[Path],
    *,
    slices: Sequence[str] | None = None,
    min_samples: int | None = None,
    common: bool = False,
    score: str | None = None,
) -> History:
    """The history of a model from the predictions of its versions.

    Args:
        paths: Prediction files or runs, oldest first.
        slices: The columns that are slices (default: all that have no other meaning).
        min_samples: Slices with fewer samples are left out.
        common: Whether samples that not all versions have are left out, instead of being an error.
        score: For lm-eval, the metric that says what is right.
    """
    import polars as pl

    answers = read_all([(path, path.name) for path in paths], score)
    if common:
        answers = _in_all(answers)
    aligned = [join(answers[0], other) for other in answers[1:]]
    columns = [aligned[0].frame[OLD], *(pairs.frame[NEW] for pairs in aligned)]
    # A column that only some versions have is taken from the first of them.
    known = {name: pairs.frame[name] for pairs in reversed(aligned) for name in pairs.frame.columns}
    samples = pl.DataFrame([known[name] for name in known if name not in (OLD, NEW, OLD_ANSWER, NEW_ANSWER)])
    names = dict.fromkeys(name for pairs in aligned for name in pairs.slice_columns)
    everything = Pairs(samples, tuple(names))
    chosen = everything if slices is None else choose_slices(everything, slices)
    changes = [_step(chosen, before, after, min_samples) for before, after in pairwise(columns)]
    rows = tuple(changes[0])
    first = [changes[0][name].before for name in rows]
    return History(
        tuple(path.stem if path.is_file() else path.name for path in paths),
        tuple(changes),
        rows,
        tuple(changes[0][name].total for name in rows),
        np.array([first, *([step[name].after for name in rows] for step in changes)]),
        np.stack([column.to_numpy() for column in columns], axis=1),
        samples,
    )


def _step(
    samples: Pairs, before: polars.Series, after: polars.Series, min_samples: int | None
) -> dict[str, Change]:
    """All samples and every slice from one version to the next, by name."""
    frame = samples.frame.with_columns(before.alias(OLD), after.alias(NEW))
    step = judge(Pairs(frame, samples.slice_columns), (), min_samples=min_samples)
    return {change.name: change for change in (step.overall, *step.slices)}


def _in_all(answers: Sequence[Predictions]) -> list[Predictions]:
    """The same predictions without the samples that some of them lack."""
    shared = answers[0].frame.select(ID)
    for other in answers[1:]:
        shared = shared.join(other.frame.select(ID), on=ID, how="semi")
    if not len(shared):
        raise InputError("no sample is in all versions: ids must be the same in all of them")
    return [
        Predictions(one.frame.join(shared, on=ID, how="semi", maintain_order="left"), one.source)
        for one in answers
    ]
