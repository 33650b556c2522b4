"""The plugin for Avalanche, in the environment that has it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from benchmarks import avalanche_env

pytestmark = pytest.mark.integrations
SCRIPT = Path(__file__).with_name("avalanche_checks.py")
ROOT = Path(__file__).parents[2]
[_LIST] = re.findall(r"^CHECKS = \((.*?)^\)", SCRIPT.read_text("utf-8"), re.MULTILINE | re.DOTALL)
CHECKS = re.findall(r"\w+", _LIST)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong in each check: importing Avalanche takes seconds, so one process runs them all."""
    python = avalanche_env.python()
    if python is None:
        pytest.skip(f"needs Avalanche: `make test-integrations` or `{avalanche_env.COMMAND}` installs it")
    written = tmp_path_factory.mktemp("avalanche") / "outcomes.json"
    done = subprocess.run(
        [python, SCRIPT, written],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, str] = json.loads(written.read_text("utf-8"))
    return outcomes


@pytest.mark.parametrize("check", CHECKS)
def test_avalanche(outcomes: dict[str, str], check: str) -> None:
    assert outcomes[check] == ""


def test_there_are_checks() -> None:
    assert len(CHECKS) == 6
