"""Bugs planted in real runs of cheap cells: none of them is called a reproduction."""

from pathlib import Path

import pytest

from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.papers.paper002 import as_published
from engram.papers.published import cells
from engram.papers.reproduce import reproduce
from engram.papers.values import measured, percent
from engram.record.experiment import Experiment
from engram.scenarios import SettingName


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "setting", "bug", "runs"),
    [
        ("EWC", "domain", {"strength": 0.0}, 4),
        ("MAS", "domain", {"strength": 0.1}, 4),
        ("Naive rehearsal", "class", {"memory": 100}, 2),
    ],
)
def test_a_planted_bug_is_not_reproduced(
    method: str, setting: SettingName, bug: dict[str, float], runs: int, real_data: Path, tmp_path: Path
) -> None:
    """With fewer than half as many runs as the paper has."""
    [cell] = [cell for cell in cells("002", "2") if (cell.method, cell.scenario) == (method, setting)]

    def broken(seed: int) -> Experiment:
        return as_published(method, "Split MNIST", setting, seed, settings=bug)

    piece = measured(cell.name, broken, {cell: percent("AvgAcc")}, seeds=runs)
    [outcome] = reproduce([piece], Serial(Where(out=tmp_path, data=real_data)), data=real_data)
    [compared] = outcome.compared
    assert len(compared.values) == runs
    assert compared.verdict == "differs", compared
