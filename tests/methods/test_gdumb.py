"""GDumb: it stores greedily, and what it answers follows from the memory alone."""

import copy
import math
from collections import Counter
from typing import Literal

import pytest
import torch
from tests.methods.toy import accuracy, batches, learn, make, network, same_after_resuming, weights
from torch import nn

from engram.core.errors import NonFinite
from engram.core.values import Batch
from engram.methods.base import Method
from engram.methods.gdumb import GDumb, cut_and_mix, warm_restarts
from engram.models import ModelSpec, build
from engram.models.network import Network

Setting = Literal["class", "domain", "task"]


def test_updates_only_store() -> None:
    method = make(GDumb, memory=12, epochs=3)
    before = weights(method)
    losses = learn(method, 0) + learn(method, 1) + learn(method, 2)
    assert losses == [0.0] * 15
    assert torch.equal(weights(method), before)
    assert Counter(method.store.samples.y.tolist()) == dict.fromkeys(range(6), 2)
    assert method.kept_bytes() == 12 * (16 * 4 + 16) + 4 * before.numel()


def test_the_learning_rate_follows_pytorchs_own_schedule() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        optimizer, T_0=1, T_mult=2, eta_min=0.0005
    )
    expected = [0.005, 0.05]
    for _ in range(30):
        optimizer.step()
        schedule.step()
        expected.append(optimizer.param_groups[0]["lr"])
    rates = [warm_restarts(epoch, 0.05, 0.0005) for epoch in range(32)]
    assert rates == pytest.approx(expected)


def test_the_fitted_network_is_kept_while_the_memory_stays() -> None:
    method = make(GDumb, memory=80, epochs=3)
    learn(method, 0)
    fitted = method.predictor()
    assert method.predictor() is fitted
    method.observe(batches(0)[0])  # nothing new in it
    assert method.predictor() is fitted
    method.observe(batches(1)[0])
    assert method.predictor() is not fitted


def test_evaluation_changes_nothing() -> None:
    evaluated, left_alone = (make(GDumb, memory=8, epochs=2, cutmix=0.5) for _ in range(2))
    torch.manual_seed(3)
    for task in range(3):
        learn(evaluated, task, after=lambda step: evaluated.predictor())
        learn(left_alone, task)
    assert torch.equal(evaluated.store.samples.x, left_alone.store.samples.x)
    torch.manual_seed(4)
    x = batches(0)[0].x
    assert torch.equal(evaluated.predictor()(x), left_alone.predictor()(x))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
@pytest.mark.parametrize("clip", [0.1, 100.0])
def test_a_fit_has_momentum_weight_decay_and_clipped_gradients(
    momentum: float, weight_decay: float, clip: float
) -> None:
    method = GDumb(
        network=network(), epochs=4, lr=0.2, momentum=momentum, weight_decay=weight_decay, clip=clip
    )
    (batch,) = batches(0, count=16, size=16)
    method.observe(batch)
    by_hand = copy.deepcopy(method.network)
    parameters = list(by_hand.parameters())
    moving = [torch.zeros_like(p) for p in parameters]
    for epoch in range(4):
        loss = nn.functional.cross_entropy(by_hand(batch.x)[:, :2], batch.y)
        gradients = torch.autograd.grad(loss, parameters)
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        assert 0.1 < norm < 100
        for place, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            step = min(1, clip / float(norm)) * gradient + weight_decay * parameter.detach()
            moving[place] = momentum * moving[place] + step
            parameter.data -= warm_restarts(epoch, 0.2, 0.0005) * moving[place]
    for fitted, wanted in zip(method.predictor().parameters(), parameters, strict=True):
        torch.testing.assert_close(fitted, wanted, rtol=1e-4, atol=1e-6)


def test_before_anything_was_stored_it_answers_with_the_initial_network() -> None:
    method = make(GDumb)
    x = batches(0)[0].x
    assert torch.equal(method.predictor()(x), method.network(x))


@pytest.mark.parametrize("cutmix", [0.0, 0.5])
@pytest.mark.parametrize("setting", ["class", "domain", "task"])
def test_it_learns_from_its_memory(setting: Setting, cutmix: float) -> None:
    # Where no class is new, a memory that is full stays as it is: the whole stream must fit.
    method = make(GDumb, memory=120 if setting == "domain" else 36, epochs=30, cutmix=cutmix)
    for task in range(3):
        learn(method, task, setting=setting)
    assert sum(accuracy(method, task, setting=setting) for task in range(3)) / 3 > 0.85


def test_cut_and_mix_pastes_a_rectangle_of_the_stated_area() -> None:
    generator = torch.Generator().manual_seed(0)
    shares = []
    for _ in range(200):
        mixed, share = cut_and_mix(torch.zeros(2, 3, 8, 6), torch.ones(2, 3, 8, 6), generator)
        rows, columns = (mixed[0, 0].amax(dim).sum() for dim in (1, 0))
        assert float(mixed[0, 0].sum()) == float(rows * columns)
        assert float(mixed.mean()) == pytest.approx(1 - share, abs=1e-6)
        shares.append(share)
    assert min(shares) <= 0.5
    assert max(shares) == 1.0


def test_augmentation_changes_the_fit_of_images_and_nothing_else() -> None:
    plain, augmented = (
        GDumb(
            network=build(ModelSpec(hidden=(8,)), shape=(3, 6, 5), n_units=2, seed=0),
            generator=torch.Generator().manual_seed(0),
            epochs=2,
            augment=augment,
        )
        for augment in (False, True)
    )
    x = torch.rand(12, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    batch = Batch(x, torch.arange(12) % 2, heads=((0, 1),))
    fits = []
    for method in (plain, augmented):
        method.observe(batch)
        fits.append(method.predictor()(x))
    assert not torch.equal(*fits)
    held = [method.store.samples.batch(torch.arange(12), batch.heads).x for method in (plain, augmented)]
    assert torch.equal(*held)


def test_a_last_batch_of_one_joins_the_one_before() -> None:
    features = nn.Sequential(nn.Flatten(1), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU())
    method = GDumb(network=Network(features, nn.Linear(8, 6)), epochs=2, batch=4)
    assert isinstance(method, Method)
    (batch,) = batches(0, count=5, size=5)
    method.observe(batch)
    assert len(method.store) == 5
    assert bool(torch.isfinite(method.predictor().eval()(batch.x)).all())  # batch norm refuses a batch of one


def test_a_full_memory_stays_where_no_class_is_new() -> None:
    method = make(GDumb, memory=20)
    learn(method, 0, setting="domain")
    before = method.store.samples.x.clone()
    learn(method, 1, setting="domain")
    assert torch.equal(method.store.samples.x, before)


def test_it_resumes_with_the_same_bits() -> None:
    assert same_after_resuming(GDumb, memory=8, epochs=2)


def test_a_fit_whose_loss_is_no_number_stops() -> None:
    method = make(GDumb, memory=20, weight_decay=1.0)
    method.lr = 1e30
    learn(method, 0)
    with pytest.raises(NonFinite, match=r"loss became \w+: in pass \d+ of gdumb's fit; set its lr") as error:
        method.predictor()
    assert error.value.what == "loss"
    assert error.value.value is not None and not math.isfinite(error.value.value)
    assert "\n" not in str(error.value)
