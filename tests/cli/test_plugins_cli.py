"""What a plugin registers, as every command knows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command import Engram
from tests.core.test_plugins import MODEL, SCENARIO

from engram.core.registry import OPEN


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """A place for a plugin; what it registers is forgotten."""
    yield tmp_path / "mine.py"
    for registry in OPEN:
        for name in [name for name in registry if name.startswith("test-")]:
            registry.remove(name)


def test_every_command_knows_them(tmp_path: Path, script: Path, engram: Engram) -> None:
    script.write_text(SCENARIO + MODEL)
    short = ("--updates", 2, "--plugin", script, "--out", tmp_path / "runs")
    done = engram("run", "test-odd", "finetune", "--model", "test-narrow", "--set", "model.width=9", *short)
    assert done.returncode == 0, done.stderr
    assert "test-narrow width=9" in done.stderr
    listed = engram("list", "scenarios", "--plugin", script, "--json").json["scenarios"]
    assert "test-odd" in [entry["name"] for entry in listed]
    (tmp_path / "sweep.toml").write_text(
        'scenario = "test-odd"\nmethod = "finetune"\nmodel = "test-narrow"\nwidth = [2, 3]\nupdates = 2\n'
    )
    done = engram("sweep", tmp_path / "sweep.toml", "--plugin", script, "--dry-run", "--json")
    assert done.returncode == 0 and len(done.json["runs"]) == 2


def test_boundaries_are_hidden(tmp_path: Path, engram: Engram) -> None:
    done = engram(
        "run", "permuted-digits", "finetune", "--updates", 2, "--hide-boundaries", "--out", tmp_path
    )
    assert done.returncode == 0 and "boundaries hidden" in done.stderr
