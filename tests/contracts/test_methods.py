"""Every registered method holds to the contract; a new one is found automatically."""

import pytest

from engram.methods import METHODS
from engram.testing import CHECKS

REGISTERED = [name for name in METHODS if not name.startswith("test-")]


@pytest.mark.parametrize("method", REGISTERED)
@pytest.mark.parametrize("check", CHECKS)
def test_contract(method: str, check: str) -> None:
    CHECKS[check](method)
