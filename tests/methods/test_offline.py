"""Offline training: all tasks at once."""

import math
from dataclasses import replace

import pytest
from tests.drained import drained

from engram.datasets.stream import Stream
from engram.engine.loop import run
from engram.engine.recipe import experiment
from engram.scenarios import SettingName


@pytest.mark.parametrize("setting", ["class", "task", "domain"])
def test_it_learns_all_tasks_at_once_and_well(setting: SettingName) -> None:
    planned = experiment(
        "split-digits", "offline", setting=setting, epochs=4, evaluation={"every": 100_000, "subset": None}
    )
    assert planned.scenario.phases == ((0, 1, 2, 3, 4),)
    whole, last = drained(planned)
    accuracies = last.accuracies
    assert sorted(accuracies) == [0, 1, 2, 3, 4]
    assert sum(accuracies.values()) / 5 > 0.8
    samples = len(Stream(planned.scenario).phase(0))
    assert whole.updates == 4 * math.ceil(samples / 32)


def test_counted_updates_are_those_of_all_tasks() -> None:
    """An upper bound may learn as long as the methods that it bounds."""
    planned = experiment("split-digits", "offline", updates=3, evaluation={"every": 1000, "subset": 10})
    other = experiment("split-digits", "finetune", updates=3, evaluation={"every": 1000, "subset": 10})
    assert run(planned).updates == run(other).updates == 15
    # A stream that is shown once counts passes.
    once = replace(planned, scenario=replace(planned.scenario, passes=1))
    assert once.steps(64, phase=0) == 2
