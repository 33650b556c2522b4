"""Experience replay, rule by rule."""

import math
from collections import Counter
from typing import Literal

import pytest
import torch
from tests.methods.toy import accuracy, batches, info, learn, make, same_after_resuming, weights
from torch.nn import functional

from engram.methods.er import ER
from engram.methods.finetune import Finetune

Policy = Literal["class-balanced", "reservoir", "per-class"]
POLICIES: tuple[Policy, ...] = ("class-balanced", "reservoir", "per-class")


def test_the_weight_scales_the_loss_of_the_first_task_too() -> None:
    batch = batches(0)[0]
    whole = make(Finetune).observe(batch)
    for weight in (0.3, 1.0):
        assert make(ER, weight=weight).observe(batch) == pytest.approx(weight * whole, rel=1e-6)
    assert make(ER, weight="mean").observe(batch) == pytest.approx(whole, rel=1e-6)
    assert make(ER, weight="sum").observe(batch) == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("weight", [0.3, "mean", "sum"])
def test_the_loss_adds_two_means(weight: float | str) -> None:
    method = make(ER, weight=weight, memory=10, memory_batch=99)
    learn(method, 0)
    batch = batches(1)[0]
    held = method.store.samples
    assert len(held) == 10
    logits = [method.network(x)[:, :4] for x in (batch.x, held.x)]
    new, old = (functional.cross_entropy(z, y) for z, y in zip(logits, (batch.y, held.y), strict=True))
    share = {"mean": (8 / 18, 10 / 18), "sum": (1.0, 1.0)}.get(str(weight), (0.3, 0.7))
    method.begin_task(info(1, batches(1)))
    assert method.observe(batch) == pytest.approx(
        float(share[0] * new.detach() + share[1] * old.detach()), rel=1e-5
    )


@pytest.mark.parametrize("weight", [0.3, "mean", "sum"])
@pytest.mark.parametrize("size", [1, 5])
def test_an_update_looks_at_as_many_remembered_samples_as_asked_for(weight: float | str, size: int) -> None:
    method = make(ER, weight=weight, memory=20, memory_batch=size)
    learn(method, 0)
    assert len(method.rehearse(batches(1)[0])) == 8 + size


def test_a_class_balanced_memory_is_filled_when_a_task_ends() -> None:
    method = make(ER, memory=12)
    sizes: list[int] = []
    learn(method, 0, after=lambda step: sizes.append(len(method.store)))
    assert sizes == [0] * 5
    learn(method, 1)
    assert Counter(method.store.samples.y.tolist()) == {0: 3, 1: 3, 2: 3, 3: 3}


def test_a_reservoir_is_filled_after_every_update() -> None:
    method = make(ER, policy="reservoir", memory=20)
    sizes: list[int] = []
    learn(method, 0, after=lambda step: sizes.append(len(method.store)))
    assert sizes == [8, 16, 20, 20, 20]
    assert method.store.seen == 40


def test_a_memory_for_each_class_grows_with_the_tasks() -> None:
    method = make(ER, policy="per-class", memory=3)
    learn(method, 0)
    learn(method, 1)
    assert Counter(method.store.samples.y.tolist()) == {0: 3, 1: 3, 2: 3, 3: 3}


@pytest.mark.parametrize("policy", POLICIES)
def test_it_remembers_what_fine_tuning_forgets(policy: Policy) -> None:
    plain, replay = make(Finetune), make(ER, policy=policy, memory=20, weight=0.5)
    for method in (plain, replay):
        for task in range(3):
            learn(method, task, epochs=6)
    assert accuracy(plain, 0) < 0.3
    assert accuracy(replay, 0) > 0.8


@pytest.mark.parametrize("setting", ["class", "domain", "task"])
@pytest.mark.parametrize("policy", POLICIES)
def test_it_resumes_with_the_same_bits(policy: Policy, setting: Literal["class", "domain", "task"]) -> None:
    assert same_after_resuming(ER, setting=setting, policy=policy, memory=20)


def test_remembered_samples_compete_in_their_own_head() -> None:
    method = make(ER, memory=20, weight=0.5)
    learn(method, 0, setting="task")
    before = weights(method)
    batch = batches(1, setting="task")[0]
    method.begin_task(info(1, batches(1, setting="task"), setting="task"))
    assert math.isfinite(method.observe(batch))
    changed = (weights(method) - before)[-6:]  # the head's biases
    assert bool((changed[:4] != 0).all())
    assert torch.equal(changed[4:], torch.zeros(2))
