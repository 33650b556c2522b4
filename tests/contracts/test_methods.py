"""Every registered method holds to the contract; a new one is found automatically."""

import pytest

from engram.methods import METHODS
from engram.testing import CHECKS

REGISTERED = [name for name in METHODS if not name.startswith("test-")]


SLOW = (
    "same-seed",
    "gradient-split",
    "resume-batch-norm",
    "hidden-boundaries",
    "batch-norm",
    "single-sample",
)
"""A method that draws anew would also fail to be watched and to resume, and one of the runs that are watched
has batch norm."""


# All checks of a method one after the other: they share its run.
@pytest.mark.parametrize(
    "check", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CHECKS]
)
@pytest.mark.parametrize("method", REGISTERED)
def test_contract(method: str, check: str) -> None:
    CHECKS[check](method)
