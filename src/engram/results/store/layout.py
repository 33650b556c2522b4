"""The names in a compact store, and the digests of its tables."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Final

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
)
"""The columns of the index that a run is read from."""

LATER: Final = tuple(f"{kind}_{part}" for kind in LATER_KINDS for part in _PARTS)
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
