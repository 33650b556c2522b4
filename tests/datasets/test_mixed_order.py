"""What a method reads at the end of a task has its classes mixed, however the files are ordered."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.drained import learned

from engram.core.values import OptimizerSpec
from engram.datasets import arrays
from engram.datasets.stream import PhaseData, Stream, class_by_class
from engram.methods.mas import MAS
from engram.models.spec import ModelSpec
from engram.record.experiment import Experiment
from engram.scenarios import joint, split
from engram.scenarios.values import Scenario


def pictures(order: Callable[[np.ndarray], np.ndarray], *, classes: int = 2) -> Scenario:
    """Two tasks of some classes, 60 noisy images of each, in some order of their labels."""
    draw = np.random.default_rng(0)
    y = np.repeat(np.arange(2 * classes), 60)
    x = (draw.normal(size=(2 * classes, 6, 6))[y] + 0.3 * draw.normal(size=(len(y), 6, 6))).astype(np.float32)
    places = order(y)
    return split(arrays("pictures", x[places], y[places], x, y), classes, setting="class", transforms=())


def as_in_folders(y: np.ndarray) -> np.ndarray:
    return np.arange(len(y))


def as_drawn(y: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).permutation(len(y))


def labels(data: PhaseData, *, seed: int = 0) -> list[int]:
    return torch.cat([batch.y for batch in data.mixed(10, seed=seed)]).tolist()


def test_importance_over_batches_does_not_depend_on_the_order_of_files() -> None:
    """The gradients of a batch of one class do not cancel: 1.4 times the importance, class by class."""
    totals = []
    for order in (as_in_folders, as_drawn):
        plan = Experiment(
            pictures(order, classes=8),
            "mas",
            model=ModelSpec(hidden=(16,)),
            optimizer=OptimizerSpec("sgd", lr=0.05),
            batch_size=30,
            epochs=4,
        )
        method = learned(plan)
        assert isinstance(method, MAS)
        totals.append(sum(float(part.sum()) for part in method.anchors.importance))
    assert totals[0] == pytest.approx(totals[1], rel=0.1)


def test_samples_that_come_class_by_class_are_shuffled_with_the_seed() -> None:
    data = Stream(pictures(as_in_folders)).phase(0)
    own = torch.cat([batch.y for batch in data.in_order(10)]).tolist()
    assert own == sorted(own)
    assert sorted(labels(data)) == own and not class_by_class(torch.tensor(labels(data)))
    assert labels(data) == labels(data) and labels(data) != labels(data, seed=1)
    inputs, in_order = (
        {(float(b.x.sum()), int(b.y[0])) for b in way} for way in (data.mixed(1, seed=0), data.in_order(1))
    )
    assert inputs == in_order


@pytest.mark.parametrize("order", [as_drawn, lambda y: np.argsort(np.arange(len(y)) % 60, kind="stable")])
def test_samples_that_are_mixed_keep_their_order(order: Callable[[np.ndarray], np.ndarray]) -> None:
    """Drawn at random, or one class after the other in turn."""
    data = Stream(pictures(order)).phase(0)
    for mixed, own in zip(data.mixed(10, seed=0), data.in_order(10), strict=True):
        assert torch.equal(mixed.x, own.x) and torch.equal(mixed.y, own.y)


def test_tasks_that_are_learned_together_are_mixed() -> None:
    data = Stream(joint(pictures(as_drawn))).phase(0)
    halves = torch.tensor(labels(data)).split(120)
    assert all(40 < int((half < 2).sum()) < 80 for half in halves)


def test_digits_are_mixed() -> None:
    stream = Stream(split("digits", setting="class"))
    assert not any(class_by_class(stream.phase(number).y) for number in range(5))


def test_a_single_class_is_not_grouped() -> None:
    scenario = pictures(as_in_folders)
    one = replace(scenario.tasks[0], source=replace(scenario.tasks[0].source, classes=(0,)), units=(0,))
    data = Stream(replace(scenario, tasks=(one,), phases=())).phase(0)
    assert labels(data) == [0] * 60
