"""How pages of documentation are run as tests."""

import contextlib
import tempfile
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run the examples of a page in an empty folder, because they write runs and reports."""
    if item.path.suffix != ".md":
        return (yield)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return (yield)
