"""Every registered method holds to the contract; a new one is found automatically."""

import pytest

from engram.methods import METHODS
from engram.testing import CHECKS

REGISTERED = [name for name in METHODS if not name.startswith("test-")]


SLOW = ("same-seed", "resume-batch-norm", "single-sample")
"""A method that draws anew would also fail to be watched and to resume."""


@pytest.mark.parametrize("method", REGISTERED)
@pytest.mark.parametrize(
    "check", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CHECKS]
)
def test_contract(method: str, check: str) -> None:
    CHECKS[check](method)
