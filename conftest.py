"""The examples of modules that need another library run where it is installed."""

from importlib.util import find_spec
from pathlib import Path

import pytest

INTEROP = Path(__file__).parent / "src" / "engram" / "interop"
# Runs in the environment that has Avalanche.
SCRIPT = Path(__file__).parent / "tests" / "interop" / "avalanche_checks.py"
# Modules of engram.interop that import another library, whose name they have.
NAMESAKES = ("avalanche", "lightning", "torchmetrics", "transformers")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the examples of modules whose library is not installed."""
    if collection_path == SCRIPT:
        return True
    needs_library = collection_path.parent == INTEROP and collection_path.stem in NAMESAKES
    return True if needs_library and find_spec(collection_path.stem) is None else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The examples of modules that need another library are tests of integrations."""
    for item in items:
        if item.path.parent == INTEROP and item.path.stem in NAMESAKES:
            item.add_marker(pytest.mark.integrations)
