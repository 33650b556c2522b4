"""Mode-IMM: networks merged where each is sure."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engram.core.values import Batch, Heads, OptimizerSpec, TaskInfo
from engram.methods.imm_mode import IMMMode
from engram.methods.importance import batch_fisher, diagonal_fisher
from engram.methods.merging import weights_of
from engram.models import ModelSpec, build

HEADS: Heads = ((0, 1), (2, 3))


def samples(*labels: int, head: int, seed: int = 0) -> Batch:
    x = torch.randn(len(labels), 4, generator=torch.Generator().manual_seed(seed))
    return Batch(x, torch.tensor(labels), heads=HEADS, head=head)


def info(index: int) -> TaskInfo:
    return TaskInfo(index=index, identity=None, classes=(0, 1), samples=9, steps=3, epochs=1, batch_size=3)


def data(index: int) -> list[Batch]:
    return [samples(2 * index, 2 * index + 1, 2 * index, head=index, seed=3 * index + n) for n in range(3)]


def learner(**settings: Any) -> IMMMode:
    return IMMMode(
        network=build(ModelSpec(hidden=(6,)), shape=(4,), n_units=4, seed=0),
        optimizer_spec=OptimizerSpec("sgd", lr=0.5),
        generator=torch.Generator().manual_seed(0),
        **settings,
    )


def learned(method: IMMMode, *tasks: int) -> IMMMode:
    for index in tasks:
        method.begin_task(info(index))
        for batch in data(index):
            method.observe(batch)
        method.end_task(data(index))
    return method


@pytest.mark.parametrize(("balance", "which"), [(0.0, 0), (1.0, 1)])
def test_at_the_ends_it_is_the_first_or_the_second_network_to_the_bit(balance: float, which: int) -> None:
    method = learned(learner(balance=balance), 0, 1)
    merged = weights_of(method.predictor())
    assert all(torch.equal(merged[name], wanted) for name, wanted in method.ends[which].items())
    other = method.ends[1 - which]
    assert any(not torch.equal(merged[name], tensor) for name, tensor in other.items())


def test_between_them_each_weight_is_weighed_by_its_fisher_information() -> None:
    method = learned(learner(balance=0.25), 0, 1)
    merged = weights_of(method.predictor())
    for name, merged_weight in merged.items():
        sure = [0.75 * (method.importances[0][name] + 1e-8), 0.25 * (method.importances[1][name] + 1e-8)]
        wanted = (sure[0] * method.ends[0][name] + sure[1] * method.ends[1][name]) / (sure[0] + sure[1])
        assert torch.allclose(merged_weight, wanted, atol=1e-5)


def test_a_head_that_only_one_task_uses_stays_that_task_s_own() -> None:
    method = learned(learner(weight_transfer=False, balance=0.5), 0, 1)
    merged = weights_of(method.predictor())["head.weight"]
    for task, rows in ((0, slice(0, 2)), (1, slice(2, 4))):
        # Features that are silent throughout a task give its head no information.
        sure = method.importances[task]["head.weight"][rows] > 1e-3
        assert int(sure.sum()) > 6
        assert torch.allclose(merged[rows][sure], method.ends[task]["head.weight"][rows][sure], atol=1e-4)


@pytest.mark.parametrize("fisher", ["sample", "batch"])
def test_importance_is_the_fisher_information_of_the_whole_task_with_drawn_labels(fisher: str) -> None:
    method = learner(fisher=fisher)
    method.begin_task(info(0))
    for batch in data(0):
        method.observe(batch)
    draws = torch.Generator()
    draws.set_state(method.generator.get_state())
    method.end_task(data(0))
    measure = diagonal_fisher if fisher == "sample" else batch_fisher
    wanted = measure(method.network, data(0), label="sampled", generator=draws)
    assert all(
        torch.equal(ours, 9 * mean) for ours, mean in zip(method.importances[0].values(), wanted, strict=True)
    )
    assert method.importances[0]["head.weight"][:2].sum() > 0


def test_while_a_task_is_learned_the_latest_samples_say_how_sure_the_network_is() -> None:
    method = learned(learner(recent=4), 0)
    method.begin_task(info(1))
    assert method.predictor() is not method.network
    for batch in data(1):
        method.observe(batch)
    assert method.latest.y.tolist() == [2, 2, 3, 2]
    state = method.generator.get_state()
    first, second = (weights_of(method.predictor()) for _ in range(2))
    assert torch.equal(method.generator.get_state(), state)
    assert all(torch.equal(first[name], second[name]) for name in first)
    # What the task has trained counts, what it has not stays as it was.
    now = method.network.head.weight.detach()
    assert torch.allclose(first["head.weight"][2:], now[2:], atol=1e-3)
    assert torch.allclose(first["head.weight"][:2], method.ends[0]["head.weight"][:2], atol=1e-4)
    method.end_task(data(1))
    assert len(method.latest) == 0


def test_weight_transfer_starts_where_the_last_task_ended_and_otherwise_where_the_first_began() -> None:
    for transfer in (True, False):
        method = learner(weight_transfer=transfer)
        start = weights_of(method.network)
        learned(method, 0)
        method.begin_task(info(1))
        wanted = method.ends[0] if transfer else start
        begun = weights_of(method.network)
        assert all(torch.equal(begun[name], tensor) for name, tensor in wanted.items())
        assert not torch.equal(start["head.weight"], method.ends[0]["head.weight"])


def test_l2_transfer_is_the_squared_distance_to_the_last_network() -> None:
    method = learned(learner(l2_transfer=0.5), 0)
    method.begin_task(info(1))
    with torch.no_grad():
        method.network.head.bias.add_(2.0)
    terms = method.loss(data(1)[0])
    assert terms.old is not None
    assert terms.old.item() == pytest.approx(0.5 * 4 * 4.0, rel=1e-5)
    (pull,) = torch.autograd.grad(terms.old, [method.network.head.bias])
    assert torch.allclose(pull, torch.full((4,), 2.0))


def test_drop_transfer_lets_units_fall_back_to_what_the_last_network_makes_of_them() -> None:
    method = learned(learner(drop_transfer=0.25), 0)
    method.begin_task(info(1))
    assert isinstance(method.network.features, nn.Sequential)
    _, layer, rectifier = method.network.features
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.bias.add_(2.0)
    seen: list[Tensor] = []
    rectifier.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0].detach().clone()))
    batch = samples(*[2, 3] * 200, head=1)
    method.loss(batch)
    now = nn.functional.linear(batch.x, layer.weight, layer.bias).detach()
    old = method.ends[0]
    before = nn.functional.linear(batch.x, old["features.1.weight"], old["features.1.bias"])
    fallen = torch.isclose(seen[0], before, atol=1e-5)
    risen = torch.isclose(seen[0], now / 0.75 - before / 3, atol=1e-5)
    assert bool((fallen != risen).all())
    assert float(fallen.float().mean()) == pytest.approx(0.25, abs=0.05)


def test_the_curve_over_the_balance_is_that_of_the_merged_networks() -> None:
    method = learned(learner(), 0, 1)
    test_batches = [*data(0), *data(1)]
    points = method.curve(test_batches, (0.0, 0.5, 1.0))
    assert [balance for balance, _ in points] == [0.0, 0.5, 1.0]
    predictor = method.predictor().eval()
    right = 0
    for batch in test_batches:
        assert isinstance(batch.head, int)
        first, last = HEADS[batch.head]
        right += int((predictor(batch.x)[:, first : last + 1].argmax(dim=1) + first == batch.y).sum())
    assert points[1][1] == right / 18


def test_kept_bytes_are_networks_and_importances() -> None:
    method = learned(learner(), 0, 1)
    one = sum(4 * p.numel() for p in method.network.parameters())
    assert method.kept_bytes() == 4 * one + method.latest.bytes == 4 * one
