"""Mean-IMM: what is merged, how much each counts, and how networks are kept near one another."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engram.core.values import Batch, Heads, OptimizerSpec, TaskInfo
from engram.methods.imm_mean import IMMMean
from engram.methods.merging import merge_means, merge_modes, shares, transfer_dropout, weights_of
from engram.models import ModelSpec, build
from engram.models.network import Network

HEADS: Heads = ((0, 1, 2),)


def samples(*labels: int, seed: int = 0) -> Batch:
    x = torch.randn(len(labels), 1, 4, 4, generator=torch.Generator().manual_seed(seed))
    return Batch(x, torch.tensor(labels), heads=HEADS)


def info(index: int) -> TaskInfo:
    return TaskInfo(index=index, identity=None, classes=(0, 1), samples=9, steps=3, epochs=1, batch_size=3)


def with_batch_norm() -> Network:
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(1))
    return Network(features, nn.Linear(12, 3))


def learner(network: Network | None = None, **settings: Any) -> IMMMean:
    return IMMMean(
        network=network or with_batch_norm(),
        optimizer_spec=OptimizerSpec("sgd", lr=0.1),
        generator=torch.Generator().manual_seed(0),
        **settings,
    )


def learned(method: IMMMean, *tasks: int) -> IMMMean:
    for index in tasks:
        method.begin_task(info(index))
        for seed in range(3):
            method.observe(samples(0, 1, 2, seed=10 * index + seed))
        method.end_task([])
    return method


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(("balance", "which"), [(0.0, 0), (1.0, 1)])
def test_at_the_ends_it_is_the_first_or_the_second_network_to_the_bit(balance: float, which: int) -> None:
    method = learned(learner(balance=balance), 0, 1)
    assert not same(method.ends[0], method.ends[1])
    assert same(weights_of(method.predictor()), method.ends[which])


def test_between_them_it_is_the_weighted_mean_statistics_included() -> None:
    method = learned(learner(balance=0.25), 0, 1)
    merged = weights_of(method.predictor())
    for name, first in method.ends[0].items():
        second = method.ends[1][name]
        wanted = 0.75 * first + 0.25 * second if first.is_floating_point() else second
        assert torch.allclose(merged[name], wanted, atol=1e-7)


def test_all_networks_count_the_same_by_default() -> None:
    method = learned(learner(), 0, 1, 2)
    merged = weights_of(method.predictor())
    wanted = torch.stack([end["head.weight"] for end in method.ends]).mean(dim=0)
    assert torch.allclose(merged["head.weight"], wanted, atol=1e-7)
    assert shares(3, 0.5) == [0.25, 0.25, 0.5]


def test_while_a_task_is_learned_the_network_as_it_is_stands_for_it() -> None:
    method = learner()
    assert method.predictor() is method.network
    learned(method, 0)
    assert method.predictor() is method.network
    method.begin_task(info(1))
    method.observe(samples(0, 1, 2, seed=5))
    merged = weights_of(method.predictor())["head.weight"]
    both = method.ends[0]["head.weight"], method.network.head.weight.detach()
    assert torch.allclose(merged, (both[0] + both[1]) / 2, atol=1e-7)


def test_predicting_leaves_the_network_as_it_is() -> None:
    method = learned(learner(), 0, 1)
    before = weights_of(method.network)
    predictor = method.predictor()
    with torch.no_grad():
        for parameter in predictor.parameters():
            parameter.zero_()
    assert same(weights_of(method.network), before)


def test_weight_transfer_starts_where_the_last_task_ended_and_otherwise_where_the_first_began() -> None:
    for transfer in (True, False):
        method = learner(weight_transfer=transfer)
        start = weights_of(method.network)
        learned(method, 0)
        method.begin_task(info(1))
        assert same(weights_of(method.network), method.ends[0] if transfer else start)


def test_l2_transfer_is_the_squared_distance_to_the_last_network() -> None:
    method = learned(learner(l2_transfer=0.5), 0)
    method.begin_task(info(1))
    with torch.no_grad():
        method.network.head.bias.add_(2.0)
    terms = method.loss(samples(0, 1, 2))
    assert terms.old is not None
    assert terms.old.item() == pytest.approx(0.5 * 3 * 4.0, rel=1e-5)
    (pull,) = torch.autograd.grad(terms.old, [method.network.head.bias])
    assert torch.allclose(pull, torch.full((3,), 2.0))


def test_l2_transfer_keeps_the_networks_nearer() -> None:
    away = []
    for strength in (0.0, 2.0):
        method = learned(learner(l2_transfer=strength), 0, 1)
        first, second = (end["head.weight"] for end in method.ends)
        away.append(float((first - second).norm()))
    assert away[1] < 0.7 * away[0]


def test_drop_transfer_falls_back_to_the_old_units_and_is_right_on_average() -> None:
    network = build(ModelSpec(hidden=(40,)), shape=(4,), n_units=2, seed=0)
    old = weights_of(build(ModelSpec(hidden=(40,)), shape=(4,), n_units=2, seed=1))
    assert isinstance(network.features, nn.Sequential)
    layer = network.features[1]
    assert isinstance(layer, nn.Linear)
    x = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0))
    seen: list[Tensor] = []
    with transfer_dropout(network, old, rate=0.25, generator=torch.Generator().manual_seed(0)):
        layer.register_forward_hook(lambda _layer, _given, result: seen.append(result.detach().clone()))
        network(x)
    before = nn.functional.linear(x, old["features.1.weight"], old["features.1.bias"])
    now = nn.functional.linear(x, layer.weight, layer.bias).detach()
    fallen = torch.isclose(seen[0], before, atol=1e-5)
    risen = torch.isclose(seen[0], now / 0.75 - before / 3, atol=1e-5)
    assert bool((fallen | risen).all())
    assert float(fallen.float().mean()) == pytest.approx(0.25, abs=0.02)
    assert torch.allclose((seen[0] - now).mean(dim=0), torch.zeros(40), atol=0.05)


def test_drop_transfer_makes_training_draw_and_evaluation_not() -> None:
    method = learned(learner(drop_transfer=0.5), 0)
    state = method.generator.get_state()
    method.predictor()(samples(0, 1).x)
    assert torch.equal(method.generator.get_state(), state)
    method.begin_task(info(1))
    method.observe(samples(0, 1, 2))
    assert not torch.equal(method.generator.get_state(), state)
    assert all(not layer._forward_hooks for layer in method.network.modules())


def test_the_curve_over_the_balance_ends_at_the_two_networks_and_leaves_the_network_alone() -> None:
    method = learned(learner(), 0, 1)
    test_batches = [samples(0, 1, 2, 2, seed=seed) for seed in range(30)]
    points = dict(method.curve(test_batches, (0.0, 0.5, 1.0)))
    for balance, end in ((0.0, method.ends[0]), (1.0, method.ends[1])):
        alone = copy.deepcopy(method.network).eval()
        alone.load_state_dict(end)
        right = sum(int((alone(batch.x).argmax(dim=1) == batch.y).sum()) for batch in test_batches)
        assert points[balance] == right / 120
    assert len(method.curve(test_batches[:1])) == 101


def test_kept_bytes_are_the_networks_of_the_tasks_that_ended() -> None:
    method = learned(learner(), 0, 1)
    one = sum(t.numel() * t.element_size() for t in method.network.state_dict().values())
    assert method.kept_bytes() == 2 * one


def test_a_single_network_comes_out_to_the_bit_negative_zeros_included() -> None:
    first, second = {"w": torch.tensor([-0.0, 0.1])}, {"w": torch.tensor([1.0, 0.3])}
    for merged in (
        merge_means([first, second], [1.0, 0.0]),
        merge_modes([first, second], [first, second], [1.0, 0.0]),
    ):
        assert merged["w"].tolist() == first["w"].tolist()
        assert bool(torch.signbit(merged["w"])[0])


def test_a_head_is_averaged_among_the_networks_that_trained_it() -> None:
    """Task k trains units 2k and 2k + 1; the others are initial, or those of the task before."""
    heads: Heads = ((0, 1), (2, 3), (4, 5))
    for transfer in (True, False):
        network = build(ModelSpec(hidden=(5,)), shape=(4,), n_units=6, seed=0)
        method = learner(network, weight_transfer=transfer)
        for index in range(3):
            method.begin_task(info(index))
            for seed in range(3):
                x = torch.randn(4, 4, generator=torch.Generator().manual_seed(10 * index + seed))
                y = 2 * index + torch.tensor([0, 1, 0, 1])
                method.observe(Batch(x, y, heads=heads, head=index))
            method.end_task([])
        for balance in ("equal", 0.0, 0.3, 1.0):
            merged = method.merged(balance)
            for index, end in enumerate(method.ends):
                rows = slice(2 * index, 2 * index + 2)
                for name in ("head.weight", "head.bias"):
                    assert torch.equal(merged[name][rows], end[name][rows]), (transfer, balance, index)
        body = torch.stack([end["features.1.weight"] for end in method.ends]).mean(dim=0)
        assert torch.allclose(method.merged("equal")["features.1.weight"], body, atol=1e-7)


def test_tasks_that_share_a_head_share_its_units() -> None:
    heads: Heads = ((0, 1), (2, 3))
    method = learner(build(ModelSpec(hidden=(5,)), shape=(4,), n_units=4, seed=0))
    for index, head in enumerate((0, 1, 0)):
        method.begin_task(info(index))
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(index))
        method.observe(Batch(x, 2 * head + torch.tensor([0, 1, 0, 1]), heads=heads, head=head))
        method.end_task([])
    merged, ends = method.merged("equal")["head.weight"], [end["head.weight"] for end in method.ends]
    assert torch.allclose(merged[:2], (ends[0][:2] + ends[2][:2]) / 2, atol=1e-7)
    assert torch.equal(merged[2:], ends[1][2:])
