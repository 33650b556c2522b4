"""The fixture `engram_gate`, in a pytest of its own."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

OLD = {"id": range(400), "correct": [1] * 400}


def test_the_same_model_passes(engram_gate):
    assert engram_gate(OLD, OLD, max_drop=0.01).overall.lost == 0


def test_a_model_that_forgot_fails(engram_gate):
    engram_gate(OLD, {**OLD, "correct": [1] * 360 + [0] * 40}, max_drop=0.01)


def test_files_in_another_order_pass(engram_gate, tmp_path):
    (tmp_path / "old.csv").write_text("id,correct\\n" + "".join(f"{i},1\\n" for i in range(400)))
    (tmp_path / "new.csv").write_text("id,correct\\n" + "".join(f"{i},1\\n" for i in reversed(range(400))))
    engram_gate(tmp_path / "old.csv", tmp_path / "new.csv", max_drop="1pp", max_flips="1%")


def test_assertions_of_engram_are_not_rewritten():
    import engram.results.gate

    assert type(engram.results.gate.__loader__).__name__ == "SourceFileLoader"
"""


def test_fixture_fails_the_test_of_a_model_that_forgot(tmp_path: Path) -> None:
    (tmp_path / "test_model.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "test_model.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 3 passed" in done.stdout
    assert "400 samples: accuracy 100.00 % before, 90.00 % after; 40 lost, 0 gained" in done.stdout
    assert "max-drop 1pp (safe): the drop may be as large as" in done.stdout
    assert "Traceback" not in done.stdout
