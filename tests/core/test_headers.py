"""Names of columns."""

import pytest

from engram.core.errors import InputError
from engram.core.headers import refuse_repeated_columns


def test_repeated_columns_of_wide_tables() -> None:
    """Measurements of genes have tens of thousands of columns."""
    names = [f"gene {number}" for number in range(30_000)]
    refuse_repeated_columns(names, "genes.csv")
    with pytest.raises(InputError, match=r"genes\.csv has 2 columns 'gene 7'"):
        refuse_repeated_columns([*names, " gene 7"], "genes.csv")
