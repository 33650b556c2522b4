"""Runs on other machines, as a cluster makes them; here both machines are this process."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.cargo import Packer
from engram.executors.elsewhere import carry_out, order_for, receive
from engram.executors.worker import Told
from engram.record.aside import restore, set_aside
from engram.record.run import Run


def test_a_run_is_made_again_where_the_folder_is_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine does not keep what it has returned."""
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    planned = experiment("split-digits", "finetune", updates=2, evaluation={"every": 100})
    where, packer = Where(out=tmp_path / "runs"), Packer()
    order = order_for(
        planned, where, packer.pack([planned], tmp_path / "data", data=None, plugin=None), "mark"
    )
    made: list[Told] = []

    def run() -> Run:
        def tell(_shared: bool, told: Sequence[Told]) -> None:
            made.extend(told)

        outcome = carry_out(order, lambda file: packer.places[file].read_bytes(), tell, shared=False)
        assert outcome.files is not None
        return receive(planned, outcome.files, where.folder)

    first = run()
    assert first.finished and made
    made.clear()
    assert set_aside(where.folder / planned.id, again=True)
    again = run()
    restore(where.folder / planned.id)
    assert made and again.finished and again.trace == first.trace
    assert not list((tmp_path / "cache" / "runs").glob("*/*"))
