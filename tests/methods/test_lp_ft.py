"""Linear probing, then fine-tuning: who moves when."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.core.values import Batch, OptimizerSpec, TaskInfo
from engram.methods.lp_ft import LPFT
from engram.models import ModelSpec, build
from engram.models.network import Network


def learner(network: Any = None, **settings: Any) -> LPFT:
    if network is None:
        features = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5))
        network = Network(features, nn.Linear(5, 2))
    spec = OptimizerSpec("sgd", lr=0.1, momentum=0.9, weight_decay=0.1)
    return LPFT(network=network, optimizer_spec=spec, **settings)


def info(*, epochs: int, index: int = 0) -> TaskInfo:
    return TaskInfo(
        index=index,
        identity=None,
        classes=(0, 1),
        samples=5,
        steps=2 * epochs,
        epochs=epochs,
        batch_size=3,
    )


def batch(seed: int) -> Batch:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
    return Batch(x, torch.tensor([0, 1, 1]), heads=((0, 1),))


def state(module: nn.Module) -> list[Tensor]:
    return [tensor.clone() for tensor in module.state_dict().values()]


def moves(method: LPFT, steps: int) -> list[tuple[bool, bool]]:
    """Update by update, whether features (statistics included) and head changed."""
    changes = []
    for seed in range(steps):
        before = state(method.network.features), state(method.network.head)
        method.observe(batch(seed))
        after = state(method.network.features), state(method.network.head)
        same = [
            all(torch.equal(a, b) for a, b in zip(*pair, strict=True))
            for pair in zip(before, after, strict=True)
        ]
        changes.append((not same[0], not same[1]))
    return changes


def test_the_head_alone_learns_for_the_first_passes_of_every_task_then_everything() -> None:
    method = learner(probe_epochs=2)
    for index in range(2):
        method.begin_task(info(epochs=5, index=index))
        assert moves(method, 10) == [(False, True)] * 4 + [(True, True)] * 6


def test_fine_tuning_gets_at_least_half_of_the_updates() -> None:
    method = learner(probe_epochs=10)
    method.begin_task(info(epochs=2))
    assert moves(method, 4) == [(False, True)] * 2 + [(True, True)] * 2


def test_no_probing_is_fine_tuning() -> None:
    method = learner(probe_epochs=0)
    method.begin_task(info(epochs=1))
    assert moves(method, 2) == [(True, True)] * 2


def test_probing_is_the_gradient_of_the_head_on_features_in_evaluation_mode() -> None:
    method = learner(probe_epochs=1)
    method.begin_task(info(epochs=4))
    new = batch(0)
    method.network.eval()
    scores = method.network(new.x)
    wanted = torch.autograd.grad(nn.functional.cross_entropy(scores, new.y), [method.network.head.weight])
    method.optimizer_spec = OptimizerSpec("sgd", lr=0.1)
    before = method.network.head.weight.detach().clone()
    method.observe(new)
    moved = before - method.network.head.weight.detach()
    assert torch.allclose(moved, 0.1 * (wanted[0] + 0.1 * before), atol=1e-6)


@pytest.mark.parametrize(
    "network",
    [nn.Linear(4, 2), build(ModelSpec(hidden=()), shape=(4,), n_units=2, seed=0)],
    ids=["bare", "linear"],
)
def test_a_model_without_separable_features_is_refused(network: nn.Module) -> None:
    with pytest.raises(
        InputError, match="method lp-ft needs a network with trainable features and a separate head"
    ) as caught:
        learner(network)
    assert "\n" not in str(caught.value)
