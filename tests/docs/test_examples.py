"""Every example runs."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
# They take seconds: many runs, pretrained weights, or worker processes.
SLOW = {"compare_methods", "pretrained", "protocol_forward_transfer", "protocol_grid", "sweep"}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
        for path in EXAMPLES
    ],
)
def test_example_runs(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script))["main"](tmp_path)
    assert capsys.readouterr().out
