"""Files appear whole or not at all, also where the disk is full."""

import subprocess
import sys
from pathlib import Path

import pytest

from engram.core.errors import InputError
from engram.core.files import read_json, write_whole

FULL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np
from engram.core.errors import InputError
from engram.core.trace import Trace
trace, draw = Trace(), np.random.default_rng(0)
for step in range(200):
    trace.add(step=step, learning=0, task=0, right=draw.random(1000) < .5)
trace.frame()
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    trace.save(Path(sys.argv[1]) / "trace.parquet")
except InputError as error:
    assert "cannot write" in str(error) and "\\n" not in str(error)
    sys.exit(7)
"""


def test_a_trace_that_does_not_fit_on_the_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 7, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "note.txt"
    place.write_text("old")

    def fail(beside: Path) -> None:
        beside.write_text("ne")
        raise OSError("disk full")

    with pytest.raises(InputError, match="cannot write"):
        write_whole(place, fail)
    assert place.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["note.txt"]


def test_broken_json_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    for name in ("broken.json", "absent.json"):
        with pytest.raises(InputError, match=name):
            read_json(tmp_path / name)
