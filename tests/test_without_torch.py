"""The recorder, metrics, gate, compare and report work where torch cannot be imported."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "packaging" / "without_torch.py"


def test_everything_that_needs_no_torch_works_without(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "block"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines()[-1] == "all of it works"
