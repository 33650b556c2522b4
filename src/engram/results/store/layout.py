"""The names in a compact store, and the digests of its tables."""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import polars

INDEX: Final = "runs.parquet"
KINDS: Final = ("trace", "ends", "probes", "scores", "answers")
SAMPLES: Final = "samples"
"""Tables of test samples, which most runs share: one file for each that differs, named by its digest."""

OWN: Final = ("id", "seed")
"""What tells the runs of one experiment apart; null in `experiment`, which is one text for all of them."""

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
    *(f"{kind}_{part}" for kind in KINDS for part in ("offset", "rows", "digest")),
)
"""The columns of the index that a run is read from."""


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
    import polars as pl

    content = sha256()
    for column in frame.iter_columns():
        content.update(f"{column.name}:{column.dtype}:{len(column)};".encode())
        # Each call of Polars takes longer than hashing: most columns have no nulls.
        if column.null_count():
            content.update(column.is_null().to_numpy().tobytes())
            column = column.drop_nulls()
        if isinstance(column.dtype, pl.List):
            content.update(column.list.len().to_numpy().tobytes())
            content.update(column.explode().to_numpy().tobytes())
        elif column.dtype in (pl.Binary, pl.String):
            texts = column.to_list()
            parts = [text.encode() if isinstance(text, str) else text for text in texts]
            content.update(struct.pack(f"<{len(parts)}q", *map(len, parts)))
            content.update(b"".join(parts))
        else:
            content.update(column.to_numpy().tobytes())
    return content.hexdigest()
