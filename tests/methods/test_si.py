"""Synaptic intelligence: the path that the loss fell along."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.drained import learned
from torch import Tensor, nn

from engram.core.values import Batch, OptimizerSpec, TaskInfo
from engram.engine.isolation import weights_digest
from engram.engine.recipe import experiment
from engram.methods.si import SI, path_importance
from engram.models import ModelSpec, build
from engram.scenarios import prefix

VECTORS = json.loads((Path(__file__).parents[1] / "papers" / "vectors.json").read_text())["V9_SI"]
TASK = TaskInfo(0, None, (0, 1), samples=16, steps=2, epochs=1, batch_size=8)


def make(*, optimizer: str = "adam", strength: float = 1.0, clip: bool = False) -> SI:
    network = build(ModelSpec(hidden=(6,)), shape=(5,), n_units=2, seed=0)
    spec = OptimizerSpec(optimizer, lr=0.01, reset=False)
    return SI(network=network, optimizer_spec=spec, strength=strength, clip=clip)


def batch(seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (8,), generator=generator)
    return Batch(torch.randn(8, 5, generator=generator) + y[:, None], y, heads=((0, 1),))


def weights(method: SI) -> list[Tensor]:
    return [p.detach().clone() for p in method.network.parameters()]


def test_the_published_rule() -> None:
    importance = path_importance(
        torch.tensor(VECTORS["w"]), torch.tensor(VECTORS["dtheta"]), damping=VECTORS["xi"]
    )
    assert importance.tolist() == pytest.approx(VECTORS["omega"], abs=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "adagrad"])
def test_the_path_is_the_unregularised_gradient_times_the_real_step(optimizer: str) -> None:
    method = make(optimizer=optimizer, strength=5.0)
    method.begin_task(TASK)
    method.observe(batch(0))
    method.end_task([batch(0)])
    path = [torch.zeros_like(w) for w in weights(method)]
    for seed in (1, 2, 3):
        new = batch(seed)
        before = weights(method)
        loss = nn.functional.cross_entropy(method.network(new.x), new.y)
        gradients = torch.autograd.grad(loss, list(method.network.parameters()))
        method.observe(new)
        for sum_, gradient, old, now in zip(path, gradients, before, weights(method), strict=True):
            sum_ -= gradient * (now - old)
    assert method.anchors.penalty(method.network.parameters()).item() != 0
    for held, expected in zip(method.path, path, strict=True):
        torch.testing.assert_close(held, expected, rtol=1e-5, atol=1e-9)


def test_a_task_adds_its_path_over_its_squared_length() -> None:
    method = make()
    total = [torch.zeros_like(w) for w in weights(method)]
    for task in range(2):
        start = weights(method)
        method.begin_task(TASK)
        for seed in range(4):
            method.observe(batch(10 * task + seed))
        path = [p.clone() for p in method.path]
        method.end_task([])
        total = [
            held + w / ((end - begin).square() + 0.1)
            for held, w, end, begin in zip(total, path, weights(method), start, strict=True)
        ]
        assert not any(bool(p.any()) for p in method.path)
    for held, expected in zip(method.anchors.importance, total, strict=True):
        torch.testing.assert_close(held, expected)


def test_clipping_leaves_no_negative_importance() -> None:
    free, clipped = make(), make(clip=True)
    for method in (free, clipped):
        method.begin_task(TASK)
        generator = torch.Generator().manual_seed(0)
        method.path = [torch.randn(path.shape, generator=generator) for path in method.path]
        method.end_task([])
    assert any(bool((omega < 0).any()) for omega in free.anchors.importance)
    for one, other in zip(free.anchors.importance, clipped.anchors.importance, strict=True):
        assert torch.equal(one.clamp(min=0), other)


def test_clipping_changes_what_is_learned() -> None:
    """Weight decay moves some weights up the loss: their importance is below 0 unless it is clipped."""
    free, clipped = (
        experiment(
            "split-digits",
            "si",
            optimizer="sgd",
            lr=0.05,
            weight_decay=0.5,
            updates=12,
            evaluation={"every": 100},
            settings={"strength": 5.0, "clip": clip},
        )
        for clip in (False, True)
    )
    ends = [learned(replace(planned, scenario=prefix(planned.scenario, 2))) for planned in (free, clipped)]
    assert isinstance(ends[0], SI) and isinstance(ends[1], SI)
    assert any(bool((omega < 0).any()) for omega in ends[0].anchors.importance)
    assert not any(bool((omega < 0).any()) for omega in ends[1].anchors.importance)
    assert weights_digest(ends[0]) != weights_digest(ends[1])


def test_importance_is_clipped_after_it_was_added_up() -> None:
    """A task may take away importance that an earlier one gave, down to 0."""
    method = make(clip=True)
    for path in (0.5, -0.2, -0.9):
        method.begin_task(TASK)
        method.path = [torch.full_like(held, path) for held in method.path]
        method.end_task([])
        omega = {round(float(value), 4) for part in method.anchors.importance for value in part.unique()}
        assert omega == {{0.5: 5.0, -0.2: 3.0, -0.9: 0.0}[path]}
