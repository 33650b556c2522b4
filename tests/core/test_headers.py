"""Names of columns."""

import time

import pytest

from engram.core.errors import InputError
from engram.core.headers import refuse_repeated_columns


def test_wide_tables_take_no_time() -> None:
    """Measurements of genes have tens of thousands of columns."""
    names = [f"gene {number}" for number in range(30_000)]
    began = time.process_time()
    refuse_repeated_columns(names, "genes.csv")
    assert time.process_time() - began < 1
    with pytest.raises(InputError, match=r"genes\.csv has 2 columns 'gene 7'"):
        refuse_repeated_columns([*names, " gene 7"], "genes.csv")
