"""What all executors share: finished runs are read, where they are what is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.core.errors import InputError
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.serial import Serial


@pytest.mark.parametrize(
    ("wanted", "lacking"),
    [
        ({"save_weights": "final"}, "did not keep weights.safetensors"),
        ({"save_weights": "tasks"}, "did not keep weights-task-1.safetensors"),
        ({"keep_checkpoints": "tasks"}, "kept no checkpoints"),
    ],
)
def test_a_finished_run_without_what_is_to_be_kept_is_refused(
    tmp_path: Path, wanted: dict[str, str], lacking: str
) -> None:
    """Before any of the others begins; one that kept it is read."""
    runs = [
        experiment("split-digits", "finetune", updates=1, evaluation={"every": 9}, seed=n) for n in (0, 1)
    ]
    Serial(Where(out=tmp_path))(runs[:1])
    with pytest.raises(InputError, match=f"{lacking}.*: run it again with --again, or delete its folder"):
        Serial(Where(out=tmp_path, **wanted))(runs)  # type: ignore[arg-type]
    assert not (tmp_path / runs[1].id).exists()
    kept = Serial(Where(out=tmp_path / "kept", **wanted))  # type: ignore[arg-type]
    assert all(kept(runs[:1])[0].finished for _ in range(2))
