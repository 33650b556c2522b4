"""Methods that hold weights where they were: L2, EWC, online EWC, SI and MAS."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Literal, get_args

import pytest
import torch
from torch import Tensor, nn

from engram.core.values import Batch, Heads, OptimizerSpec, TaskInfo
from engram.methods.base import Learner
from engram.methods.ewc import EWC
from engram.methods.finetune import Finetune
from engram.methods.importance import FisherKind, Label, batch_fisher, diagonal_fisher, output_sensitivity
from engram.methods.l2 import L2
from engram.methods.mas import MAS
from engram.methods.online_ewc import OnlineEWC
from engram.methods.si import SI
from engram.models import ModelSpec, build
from engram.models.network import Network

Prior = L2 | EWC | OnlineEWC | SI | MAS
PRIORS: list[type[Prior]] = [L2, EWC, OnlineEWC, SI, MAS]
ONE_HEAD: Heads = ((0, 1, 2, 3),)


def network_with_batch_norm() -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        features = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten(1))
        return Network(features, nn.Linear(12, 4))


def mlp() -> Network:
    return build(ModelSpec(hidden=(8,)), shape=(1, 4, 4), n_units=4, seed=0)


def make(method: type, network: Network | None = None, **fields: Any) -> Any:
    return method(
        network=network or mlp(),
        optimizer_spec=OptimizerSpec("adam", lr=0.01, reset=False),
        generator=torch.Generator().manual_seed(3),
        **fields,
    )


def info(index: int, samples: int = 24) -> TaskInfo:
    classes = (0, 1) if index % 2 == 0 else (2, 3)
    return TaskInfo(index, None, classes, samples=samples, steps=3, epochs=1, batch_size=8)


def batches(index: int, *, heads: Heads = ONE_HEAD, sizes: tuple[int, ...] = (8, 8, 8)) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(100 + index)
    for size in sizes:
        y = torch.randint(2, (size,), generator=generator) + 2 * (index % 2)
        x = torch.randn(size, 1, 4, 4, generator=generator) + y[:, None, None, None]
        yield Batch(x, y, heads=heads, head=index % 2 if len(heads) > 1 else 0)


def learn(method: Learner, index: int, **options: Any) -> None:
    method.begin_task(info(index))
    for batch in batches(index, **options):
        method.observe(batch)
    method.end_task(batches(index, **options))


def penalty_of(method: Prior) -> Tensor:
    return method.anchors.penalty(method.network.parameters())


def weights(method: Learner) -> list[Tensor]:
    return [p.detach().clone() for p in method.network.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("kind", PRIORS)
def test_the_first_task_is_fine_tuning(kind: type[Prior]) -> None:
    prior, plain = make(kind), make(Finetune)
    for method in (prior, plain):
        learn(method, 0)
    assert same(weights(prior), weights(plain))


@pytest.mark.parametrize("kind", PRIORS)
def test_later_tasks_are_held_back(kind: type[Prior]) -> None:
    method = make(kind, strength=10.0)
    learn(method, 0)
    assert penalty_of(method).item() == pytest.approx(0, abs=1e-12)
    method.begin_task(info(1))
    for batch in batches(1):
        method.observe(batch)
    penalty = penalty_of(method)
    gradient = torch.autograd.grad(penalty, list(method.network.parameters()))
    assert penalty.item() > 0
    assert any(bool(g.any()) for g in gradient)


@pytest.mark.parametrize("kind", PRIORS)
def test_strength_zero_is_fine_tuning_and_more_strength_moves_less(kind: type[Prior]) -> None:
    ends = {}
    for strength in (0.0, 1.0, 30.0):
        fields: dict[str, Any] = {"clip": True} if kind is SI else {}
        method = make(kind, strength=strength, **fields)
        learn(method, 0)
        before = weights(method)
        learn(method, 1)
        ends[strength] = (
            weights(method),
            sum(float((a - b).square().sum()) for a, b in zip(weights(method), before, strict=True)),
        )
    plain = make(Finetune)
    learn(plain, 0)
    learn(plain, 1)
    assert same(ends[0.0][0], weights(plain))
    assert ends[30.0][1] < ends[1.0][1] < ends[0.0][1]


@pytest.mark.parametrize("kind", PRIORS)
def test_the_gradient_is_that_of_loss_and_penalty(kind: type[Prior]) -> None:
    """One plain step of gradient descent, against the total loss differentiated in one piece."""
    spec = OptimizerSpec("sgd", lr=0.1)
    method = kind(network=mlp(), optimizer_spec=spec, strength=0.7)
    learn(method, 0)
    method.begin_task(info(1))
    first, second, _ = batches(1)
    method.observe(first)
    here = list(method.network.parameters())
    loss = nn.functional.cross_entropy(method.network(second.x), second.y) + 0.7 * penalty_of(method)
    expected = [p.detach() - 0.1 * g for p, g in zip(here, torch.autograd.grad(loss, here), strict=True)]
    method.split_gradients = True
    assert method.observe(second) == pytest.approx(loss.item(), rel=1e-6)
    for got, wanted in zip(here, expected, strict=True):
        torch.testing.assert_close(got.detach(), wanted, rtol=1e-5, atol=1e-7)
    assert method.gradient_norms["stability-gradient"] > 0


@pytest.mark.parametrize("kind", PRIORS)
@pytest.mark.parametrize("build_network", [mlp, network_with_batch_norm])
def test_resumed_in_the_middle_of_a_task(kind: type[Prior], build_network: Callable[[], Network]) -> None:
    fields: dict[str, object] = {"label": "sampled"} if kind in (EWC, OnlineEWC) else {}
    whole = make(kind, build_network(), **fields)
    learn(whole, 0)
    whole.begin_task(info(1))
    first, *rest = batches(1)
    whole.observe(first)
    resumed = make(kind, build_network(), **fields)
    resumed.load_state_dict(whole.state_dict())
    for method in (whole, resumed):
        for batch in rest:
            method.observe(batch)
        method.end_task(batches(1))
        learn(method, 2)
    assert same(weights(whole), weights(resumed))
    assert penalty_of(whole).item() == penalty_of(resumed).item()


@pytest.mark.parametrize("kind", PRIORS)
def test_same_seed_same_bits(kind: type[Prior]) -> None:
    pair = [make(kind), make(kind)]
    for method in pair:
        learn(method, 0)
        learn(method, 1)
    assert same(weights(pair[0]), weights(pair[1]))


@pytest.mark.parametrize("kind", PRIORS)
def test_a_task_of_one_sample_and_a_last_batch_of_one(kind: type[Prior]) -> None:
    method = make(kind)
    learn(method, 0, sizes=(1,))
    learn(method, 1, sizes=(8, 8, 1))
    learn(method, 2)
    assert all(bool(w.isfinite().all()) for w in weights(method))


@pytest.mark.parametrize(("kind", "copies"), [(L2, 1), (EWC, 2), (OnlineEWC, 2), (MAS, 2), (SI, 3)])
def test_memory_does_not_grow_with_tasks(kind: type[Prior], copies: int) -> None:
    method = make(kind)
    learn(method, 0)
    held = method.kept_bytes()
    for index in range(1, 4):
        learn(method, index)
    assert method.kept_bytes() == held
    one = sum(4 * p.numel() for p in method.network.parameters())
    # L2 holds one number a tensor for the importance that all its weights share.
    assert copies * one <= held <= copies * one + 4 * len(weights(method))


def test_l2_counts_every_weight_alike() -> None:
    method = make(L2)
    learn(method, 0)
    anchor = weights(method)
    method.begin_task(info(1))
    for batch in batches(1):
        method.observe(batch)
    expected = sum(float((a - b).square().sum()) for a, b in zip(anchor, weights(method), strict=True))
    assert expected > 0
    assert penalty_of(method).item() == pytest.approx(expected, rel=1e-5)


def test_l2_anchors_at_the_latest_task_alone() -> None:
    method = make(L2)
    learn(method, 0)
    learn(method, 1)
    assert penalty_of(method).item() == 0


def test_ewc_has_an_anchor_for_every_task() -> None:
    method = make(EWC)
    slots = []
    for index in range(3):
        learn(method, index)
        slots.append((diagonal_fisher(method.network, batches(index)), weights(method)))
    here = weights(method)
    expected = sum(
        float((f * (w - anchor).square()).sum())
        for fisher, centre in slots
        for f, w, anchor in zip(fisher, here, centre, strict=True)
    )
    assert expected > 0
    assert penalty_of(method).item() == pytest.approx(expected, rel=1e-4)


def test_ewc_average_is_the_mean_importance_at_the_latest_weights() -> None:
    method = make(EWC, slots="average", label="true", fisher="batch")
    fishers = []
    for index in range(3):
        learn(method, index)
        fishers.append(batch_fisher(method.network, batches(index)))
    assert penalty_of(method).item() == 0
    assert same(method.anchors.centre, weights(method))
    for held, *of_tasks in zip(method.anchors.importance, *fishers, strict=True):
        torch.testing.assert_close(held, torch.stack(of_tasks).mean(dim=0))


@pytest.mark.parametrize("kind", [EWC, OnlineEWC])
def test_the_importance_is_of_the_labels_and_gradients_that_were_asked_for(kind: type[Prior]) -> None:
    sums = set()
    for label, fisher in product(get_args(Label), get_args(FisherKind)):
        method = make(kind, label=label, fisher=fisher)
        learn(method, 0)
        draws = torch.Generator().manual_seed(3)
        if fisher == "sample":
            expected = diagonal_fisher(method.network, batches(0), label=label, generator=draws)
        else:
            expected = batch_fisher(
                method.network,
                batches(0),
                label=label,
                generator=draws,
                scale="size" if fisher == "batch-scaled" else "one",
            )
        assert same(method.anchors.importance, expected)
        sums.add(sum(float(tensor.sum()) for tensor in expected))
    assert len(sums) == 9


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_online_ewc_adds_up_at_the_latest_weights(decay: float) -> None:
    method = make(OnlineEWC, decay=decay)
    total = [torch.zeros_like(w) for w in weights(method)]
    for index in range(3):
        learn(method, index)
        fisher = diagonal_fisher(method.network, batches(index))
        total = [decay * old + new for old, new in zip(total, fisher, strict=True)]
    assert same(method.anchors.centre, weights(method))
    for held, expected in zip(method.anchors.importance, total, strict=True):
        torch.testing.assert_close(held, expected)


@pytest.mark.parametrize("gradients", ["batch", "sample"])
def test_mas_adds_up_sensitivities_and_needs_no_labels(gradients: Literal["batch", "sample"]) -> None:
    method = make(MAS, gradients=gradients)
    total = [torch.zeros_like(w) for w in weights(method)]
    for index in range(2):
        learn(method, index)
        unlabelled = [Batch(b.x, torch.zeros_like(b.y), heads=b.heads) for b in batches(index)]
        sensitivity = output_sensitivity(method.network, unlabelled, kind=gradients)
        total = [old + new for old, new in zip(total, sensitivity, strict=True)]
    for held, expected in zip(method.anchors.importance, total, strict=True):
        torch.testing.assert_close(held, expected)


@pytest.mark.parametrize("kind", [EWC, OnlineEWC, MAS])
def test_a_head_that_was_not_learned_stays_free(kind: type[Prior]) -> None:
    method = make(kind)
    learn(method, 0, heads=((0, 1), (2, 3)))
    importance = method.anchors.importance[-2]
    assert importance[:2].any()
    assert not importance[2:].any()
