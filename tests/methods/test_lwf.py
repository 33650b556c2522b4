"""Learning without forgetting: the losses to six digits, and what is held to what."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engram.core.jsons import JsonObject
from engram.core.values import Batch, Heads, OptimizerSpec, TaskInfo
from engram.methods.distil import Learned, distillation, head_distillation
from engram.methods.lwf import LwF
from engram.models import ModelSpec, build
from engram.models.network import Network

V6: JsonObject = json.loads(
    (Path(__file__).parents[1] / "papers" / "vectors.json").read_text(encoding="utf-8")
)["V6_KD"]
CURRENT, PREVIOUS = (
    torch.tensor(V6["cur"], dtype=torch.float64),
    torch.tensor(V6["prev"], dtype=torch.float64),
)
HEADS: Heads = ((0, 1), (2, 3))


def samples(*labels: int, head: int = 0, heads: Heads = HEADS, seed: int = 0) -> Batch:
    x = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(seed))
    return Batch(x, torch.tensor(labels), heads=heads, head=head)


def info(index: int) -> TaskInfo:
    return TaskInfo(index=index, identity=None, classes=(0, 1), samples=4, steps=2, epochs=2, batch_size=4)


def learner(network: Network | None = None, **settings: Any) -> LwF:
    network = network or build(ModelSpec(hidden=(8,)), shape=(6,), n_units=4, seed=0)
    return LwF(network=network, optimizer_spec=OptimizerSpec("sgd", lr=0.1), **settings)


def after_one_task(**settings: Any) -> LwF:
    method = learner(**settings)
    method.begin_task(info(0))
    for seed in range(3):
        method.observe(samples(0, 1, 1, 0, seed=seed))
    method.end_task([])
    method.begin_task(info(1))
    return method


def moved(method: LwF) -> LwF:
    with torch.no_grad():
        for parameter in method.network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    return method


@pytest.mark.parametrize(
    ("expected", "units", "options"),
    [
        ("T2_CE_classsum", 3, {"squared": True, "form": "cross-entropy"}),
        (
            "T2_CE_mean_over_classes_2018",
            3,
            {"squared": True, "form": "cross-entropy", "mean_over_units": True},
        ),
        ("KL_batchmean_noT2", 3, {}),
        ("classIL_prev_first2_T2_CE", 2, {"squared": True, "form": "cross-entropy"}),
    ],
)
def test_worked_example(expected: str, units: int, options: JsonObject) -> None:
    loss = distillation(CURRENT, PREVIOUS[:, :units], temperature=V6["T"], **options)
    assert float(loss) == pytest.approx(V6[expected], abs=1e-6)


def test_the_padded_softmax_is_the_worked_example_whatever_the_order_of_the_units() -> None:
    order = [2, 0, 1]
    loss = head_distillation(
        CURRENT[:, order],
        PREVIOUS[:, order],
        known=[1, 2],
        active=[0, 1, 2],
        temperature=2.0,
        softmax="padded",
        squared=True,
        form="cross-entropy",
    )
    assert float(loss) == pytest.approx(V6["classIL_prev_first2_T2_CE"], abs=1e-6)


def test_softmax_over_all_units_is_summed_over_the_known_ones() -> None:
    p, q = torch.softmax(CURRENT / 2, dim=1), torch.softmax(PREVIOUS / 2, dim=1)
    by_hand = (q * (q.log() - p.log()))[:, [0, 2]].sum(dim=1).mean()
    loss = head_distillation(
        CURRENT, PREVIOUS, known=[0, 2], active=[0, 1, 2], temperature=2.0, softmax="all"
    )
    assert float(loss) == pytest.approx(float(by_hand), abs=1e-12)


def test_units_that_are_not_known_do_not_matter_to_a_softmax_of_the_known_ones() -> None:
    other = CURRENT.clone()
    other[:, 2] += 7
    losses = [
        float(head_distillation(c, PREVIOUS, known=[0, 1], active=[0, 1, 2], temperature=2.0))
        for c in (CURRENT, other)
    ]
    assert losses[0] == losses[1] > 0


def test_an_answer_that_underflows_costs_a_finite_amount() -> None:
    sure = torch.tensor([[0.0, -1000.0]])
    assert float(distillation(sure, sure, temperature=1.0)) == 0.0


def test_learned_units_are_counted_by_head_and_become_earlier_ones_when_a_task_ends() -> None:
    learned = Learned()
    learned.note(samples(1, 0))
    learned.note(samples(3, 3, head=1))
    assert learned.before == {}
    learned.end_task()
    learned.note(samples(2, head=1))
    assert learned.before == {0: [0, 1], 1: [3]}
    assert learned.now == {0: [0, 1], 1: [2, 3]}


def test_the_first_task_is_fine_tuning_and_the_second_is_held() -> None:
    first = learner()
    first.begin_task(info(0))
    assert first.loss(samples(0, 1)).old is None
    second = moved(after_one_task())
    terms = second.loss(samples(2, 3, head=1))
    assert terms.old is not None
    assert terms.old.item() > 0
    gradients = torch.autograd.grad(terms.old, list(second.network.parameters()), allow_unused=True)
    assert all(g is not None and g.abs().sum() > 0 for g in gradients)


def test_the_gradient_of_the_distillation_reaches_the_known_head_only() -> None:
    method = moved(after_one_task())
    old = method.loss(samples(2, 3, head=1)).old
    assert old is not None
    (gradient,) = torch.autograd.grad(old, [method.network.head.weight])
    assert gradient[:2].abs().sum() > 0
    assert gradient[2:].abs().sum() == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 5.0),
        ("squared", True),
        ("form", "cross-entropy"),
        ("mean_over_units", True),
        ("softmax", "padded"),
        ("softmax", "all"),
    ],
)
def test_the_learner_compares_answers_as_its_fields_say(name: str, value: Any) -> None:
    batch = samples(2, 3, 2, heads=((0, 1, 2, 3),))
    method, plain = moved(after_one_task(**{name: value})), moved(after_one_task())
    assert method.teacher is not None
    wanted = head_distillation(
        method.network(batch.x),
        method.teacher(batch.x),
        known=(0, 1),
        active=(0, 1, 2, 3),
        **{"temperature": 2.0, name: value},
    )
    old, usual = method.loss(batch).old, plain.loss(batch).old
    assert old is not None and usual is not None
    assert old.item() == pytest.approx(wanted.item(), rel=1e-6)
    assert old.item() != pytest.approx(usual.item(), rel=1e-2)


def test_the_share_gives_the_second_task_one_half_each() -> None:
    batch = samples(2, 3, head=1)
    plain, shared = moved(after_one_task()).loss(batch), moved(after_one_task(weight="share")).loss(batch)
    assert plain.old is not None and shared.old is not None
    assert shared.new.item() == pytest.approx(plain.new.item() / 2)
    assert shared.old.item() == pytest.approx(plain.old.item() / 2)


def test_the_heads_of_earlier_tasks_are_averaged() -> None:
    method = after_one_task()
    for seed in range(2):
        method.observe(samples(2, 3, head=1, seed=seed))
    method.end_task([])
    moved(method)
    batch = samples(2, 3, head=1)
    assert method.teacher is not None
    now, then = method.network(batch.x).detach(), method.teacher(batch.x)
    losses = [float(distillation(now[:, [a, b]], then[:, [a, b]], temperature=2.0)) for a, b in HEADS]
    old = method.loss(batch).old
    assert old is not None
    assert old.item() == pytest.approx(sum(losses) / 2, rel=1e-5)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_teacher_uses_running_statistics_unless_it_is_left_in_training(mode: str) -> None:
    features = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU())
    method = learner(Network(features, nn.Linear(5, 4)), teacher_mode=mode)
    method.begin_task(info(0))
    for seed in range(3):
        method.observe(samples(0, 1, 1, 0, seed=seed))
    method.end_task([])
    method.begin_task(info(1))
    batch = samples(2, 3, 2, head=1)
    teacher = copy.deepcopy(method.network).train(mode == "train")
    method.network.train()
    now: Tensor = method.network(batch.x)
    wanted = distillation(now[:, :2], teacher(batch.x)[:, :2], temperature=2.0)
    old = method.loss(batch).old
    assert old is not None
    assert old.item() == pytest.approx(wanted.item(), abs=1e-6)
    assert (old.item() > 1e-4) == (mode == "eval")


def test_old_answers_to_new_samples_change_less_than_without() -> None:
    drifts = []
    for weight in (0.0, 20.0):
        method = after_one_task(weight=weight)
        batch = samples(2, 3, 2, 3, 2, 2, head=1)
        with torch.no_grad():
            before = method.network(batch.x)[:, :2].softmax(dim=1)
        for _ in range(100):
            method.observe(batch)
        with torch.no_grad():
            drifts.append(float((method.network(batch.x)[:, :2].softmax(dim=1) - before).abs().mean()))
    assert drifts[1] < drifts[0] / 3
