"""A module whose library is missing says in one line what to install."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

INSTALL = {
    "avalanche": "pip install 'avalanche-lib'",
    "lightning": "pip install 'engram-eval[lightning]'",
    "torchmetrics": "pip install 'engram-eval[torchmetrics]'",
    "transformers": "pip install 'engram-eval[transformers]'",
}
CODE = """
import sys

for name in ("avalanche", "lightning", "pytorch_lightning", "torchmetrics", "transformers"):
    sys.modules[name] = None  # as if it were not installed
import engram

for module in sys.argv[1:]:
    try:
        __import__(f"engram.interop.{module}")
    except ImportError as error:
        assert isinstance(error, engram.InputError)
        print(error)
"""


@pytest.fixture(scope="module")
def lines() -> dict[str, str]:
    """What an interpreter without these libraries says to importing each module."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *INSTALL],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(INSTALL, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("module", INSTALL)
def test_a_missing_library_is_one_line(lines: dict[str, str], module: str) -> None:
    assert lines[module].startswith(f"engram.interop.{module} needs {module}")
    assert lines[module].endswith(f": {INSTALL[module]}")
