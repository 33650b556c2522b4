"""Simulated runs, and a browser to look at their report."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.results.browser import Browser, find_chromium
from tests.results.simulated import MANNERS, write_run


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods, three seeds each, five tasks, 500 evaluations."""
    folder = tmp_path_factory.mktemp("runs")
    for method in MANNERS:
        for seed in range(3):
            write_run(folder, method, seed=seed)
    return folder


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real Chromium, or a skip that says how to get one."""
    program = find_chromium()
    if program is None:
        pytest.skip("needs a browser: install Chromium (apt-get install chromium)")
    with Browser(program, tmp_path_factory.mktemp("profile")) as running:
        yield running
