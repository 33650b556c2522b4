"""The names in a compact store, and the digests of its tables."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from engram.core.trace import COLUMNS

if TYPE_CHECKING:
    import polars

INDEX: Final = "runs.parquet"
KINDS: Final = ("trace", "ends", "probes", "scores", "answers", "anchors")
LATER_KINDS: Final = ("anchors",)
"""Those that stores of earlier versions do not have."""
SAMPLES: Final = "samples"
"""Tables of test samples, which most runs share: one file for each that differs, named by its digest."""

OWN: Final = ("id", "seed")
"""What tells the runs of one experiment apart; null in `experiment`, which is one text for all of them."""

_PARTS: Final = ("offset", "rows", "digest")
COUNTS: Final = "trace_counts"
"""The digest of a trace without its bits, which are not read where only accuracies are used."""

DIGEST: Final = "digest"
"""The digest of the index, in every row."""
SEALED: Final = "result"
"""What has a digest of its own, which is checked when it is read."""

LIGHT: Final = (
    *OWN,
    "metrics",
    "experiment",
    "result",
    "extremes",
    "why",
    "test_data",
    "phases",
    "classes",
    "sizes",
    "versions",
    "updates",
    "evaluations",
    "train_seconds",
    "evaluate_seconds",
    "file",
    SAMPLES,
    *(f"{kind}_{part}" for kind in KINDS for part in _PARTS),
    COUNTS,
)
"""The columns of the index that a run is read from."""

LATER: Final = (*(f"{kind}_{part}" for kind in LATER_KINDS for part in _PARTS), COUNTS)
"""Those that indexes of earlier versions do not have."""


def digest_of_table(frame: polars.DataFrame) -> str:
    """A digest of a table's content: not of the file that it is in.

    Example:
        >>> import polars as pl
        >>> frame = pl.DataFrame({"step": [1, 2], "bits": [b"a", b"bc"]})
        >>> digest_of_table(frame) == digest_of_table(frame.slice(0))
        True
        >>> digest_of_table(frame) == digest_of_table(frame.head(1))
        False
    """
    content = sha256()
    for column in frame.iter_columns():
        content.update(f"{column.name}:{column.dtype}:{len(column)};".encode())
        for part in _content(column):
            content.update(part)
    return content.hexdigest()


def counts_in(trace: polars.DataFrame) -> list[NDArray[np.int64]]:
    """The columns of a trace but for the bits."""
    return [trace[name].to_numpy() for name in COLUMNS[:-1]]


def digest_of_counts(counts: Sequence[NDArray[np.int64]]) -> str:
    """A digest of a trace without its bits.

    Example:
        >>> one, other = np.array([1, 2]), np.array([1, 3])
        >>> digest_of_counts([one]) == digest_of_counts([one.copy()]) != digest_of_counts([other])
        True
    """
    content = sha256()
    for column in counts:
        content.update(f"{column.dtype}:{len(column)};".encode())
        content.update(column.tobytes())
    return content.hexdigest()


def digest_of_index(index: polars.DataFrame) -> str:
    """A digest of what an index says, but for the sealed results, which are most of it.

    Types are left out: a column without any value has none in memory, and another one in a file.

    Example:
        >>> import polars as pl
        >>> index = pl.DataFrame({"id": ["a"], "metrics": [{"ACC": 0.5}], "seed": [None], "result": ["{}"]})
        >>> digest_of_index(index) == digest_of_index(index.with_columns(seed=pl.lit(None, pl.Int64)))
        True
        >>> digest_of_index(index) == digest_of_index(index.with_columns(metrics=pl.struct(ACC=0.25)))
        False
    """
    import polars as pl

    content = sha256()
    columns = [column for column in index.iter_columns() if column.name not in (SEALED, DIGEST)]
    for column in columns:
        inner = column.struct.unnest().get_columns() if column.dtype == pl.Struct else []
        for values in inner or [column]:
            content.update(f"{column.name}:{values.name}:{len(values)};".encode())
            for part in _content(values):
                content.update(part)
    return content.hexdigest()


def _content(column: polars.Series) -> Iterator[bytes]:
    """The values of a column as bytes that depend on nothing else."""
    import polars as pl

    # Each call of Polars takes longer than hashing: most columns have no nulls.
    if column.null_count():
        yield column.is_null().to_numpy().tobytes()
        column = column.drop_nulls()
    if isinstance(column.dtype, pl.List):
        sizes = column.list.len()
        yield sizes.to_numpy().tobytes()
        # Texts in lists are hashed as texts: as objects they would be addresses.
        yield from _content(column.filter(sizes > 0).explode())
    elif column.dtype in (pl.Binary, pl.String):
        parts = [text.encode() if isinstance(text, str) else text for text in column.to_list()]
        yield struct.pack(f"<{len(parts)}q", *map(len, parts))
        yield b"".join(parts)
    else:
        yield column.to_numpy().tobytes()
