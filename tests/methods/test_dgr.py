"""Deep generative replay: what is replayed, how it is weighed, and whether it looks like its class."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engram.core.values import Batch, Heads, OptimizerSpec, TaskInfo
from engram.datasets import load
from engram.methods.dgr import DGR
from engram.models import ModelSpec, build
from engram.models.vae import VAE
from engram.run.experiment import Experiment
from engram.run.loop import run_steps
from engram.scenarios import prefix, split
from engram.scenarios.preparation import UNIT_RANGE

TASK: Heads = ((0, 1), (2, 3), (4, 5))


def samples(*labels: int, head: int = 0, heads: Heads = TASK, seed: int = 0) -> Batch:
    x = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(seed))
    return Batch(x, torch.tensor(labels), heads=heads, head=head)


def info(index: int) -> TaskInfo:
    return TaskInfo(index=index, identity=None, classes=(0, 1), samples=9, steps=3, epochs=1, batch_size=5)


def learner(**settings: Any) -> DGR:
    return DGR(
        network=build(ModelSpec(hidden=(8,)), shape=(6,), n_units=6, seed=0),
        optimizer_spec=OptimizerSpec("adam", lr=0.01),
        generator=torch.Generator().manual_seed(3),
        **{"latent": 2, **settings},
    )


def after(tasks: int) -> DGR:
    method = learner()
    for index in range(tasks):
        method.begin_task(info(index))
        for seed in range(3):
            method.observe(samples(2 * index, 2 * index + 1, 2 * index, head=index, seed=seed))
        method.end_task([])
    method.begin_task(info(tasks))
    return method


def test_nothing_is_replayed_in_the_first_task() -> None:
    method = learner()
    method.begin_task(info(0))
    batch = samples(0, 1)
    assert method.rehearse(batch) is batch


def test_every_earlier_head_labels_its_equal_share_within_itself() -> None:
    joined = after(2).rehearse(samples(4, 5, 4, head=2))
    assert joined.fresh == 3
    assert len(joined) == 3 + 6  # a batch of five, in two equal parts, rounded up
    assert isinstance(joined.head, torch.Tensor)
    assert joined.head.tolist() == [2, 2, 2, 0, 0, 0, 1, 1, 1]
    assert all(y in TASK[head] for y, head in zip(joined.y.tolist(), joined.head.tolist(), strict=True))


def test_the_third_task_counts_a_third() -> None:
    joined = after(2).rehearse(samples(4, 5, 4, head=2))
    assert joined.weight is not None
    assert float(joined.weight[:3].sum()) == pytest.approx(1 / 3)
    assert float(joined.weight[3:].sum()) == pytest.approx(2 / 3)


def test_where_identity_is_hidden_labels_are_sought_among_all_classes_learned_before() -> None:
    method = learner()
    method.begin_task(info(0))
    for seed in range(3):
        method.observe(samples(0, 1, 3, heads=((0, 1, 3),), seed=seed))
    method.end_task([])
    method.begin_task(info(1))
    replayed = method.replayed(samples(4, 5, heads=((0, 1, 3, 4, 5),)))
    assert replayed.head == 0
    assert len(replayed) == 5
    assert set(replayed.y.tolist()) <= {0, 1, 3}
    assert method.teacher is not None
    among = torch.tensor([0, 1, 3])
    assert torch.equal(among[method.teacher(replayed.x)[:, among].argmax(dim=1)], replayed.y)


def test_the_generator_learns_beside_the_network_and_the_older_one_stays() -> None:
    method = after(1)
    model, previous, teacher = method.dreams.model, method.dreams.previous, method.teacher
    assert isinstance(model, VAE) and previous is not None and teacher is not None

    def copied(module: nn.Module) -> list[torch.Tensor]:
        return [p.detach().clone() for p in module.parameters()]

    held = {name: copied(part) for name, part in (("model", model), ("old", previous), ("teacher", teacher))}
    method.observe(samples(2, 3, 3, head=1))
    assert all(not torch.equal(a, b) for a, b in zip(held["model"], model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(held["old"], previous.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(held["teacher"], teacher.parameters(), strict=True))


def test_limits_come_from_the_first_batch_unless_given() -> None:
    batch = samples(0, 1)
    for settings, wanted in (({}, (batch.x.min(), batch.x.max())), ({"low": -9.0, "high": 8.0}, (-9.0, 8.0))):
        method = learner(**settings)
        method.begin_task(info(0))
        method.observe(batch)
        assert isinstance(method.dreams.model, VAE)
        back = method.dreams.model.feedback
        assert (float(back.low), float(back.high)) == (float(wanted[0]), float(wanted[1]))


def test_a_first_batch_of_one_constant_sample_is_fine() -> None:
    method = learner()
    method.begin_task(info(0))
    for value in (0.0, 1.0):
        method.observe(Batch(torch.full((1, 6), value), torch.tensor([0]), heads=TASK))
    assert all(p.isfinite().all() for p in method.network.parameters())


def test_initial_weights_leave_the_global_generator_alone() -> None:
    method = learner()
    method.begin_task(info(0))
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    method.observe(samples(0, 1))
    assert torch.equal(torch.rand(1), expected)


def test_kept_bytes_are_both_generators_and_the_older_network() -> None:
    method = after(1)
    assert method.dreams.model is not None
    of = [sum(4 * t.numel() for t in m.state_dict().values()) for m in (method.dreams.model, method.network)]
    assert method.kept_bytes() == 2 * of[0] + of[1]
    assert learner().kept_bytes() == 0


@pytest.mark.slow
def test_replayed_digits_look_to_a_judge_like_the_class_they_stand_for(real_data: Path) -> None:
    digits = load("mnist", real_data).train
    images = next(iter(digits.read([torch.arange(len(digits.labels))]))).float() / 255
    judge = build(ModelSpec("cnn"), shape=(1, 28, 28), n_units=10, seed=1)
    optimizer = torch.optim.Adam(judge.parameters(), lr=0.001)
    order = torch.Generator().manual_seed(0)
    for _ in range(2):
        for rows in torch.randperm(len(images), generator=order).split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(judge(images[rows]), digits.labels[rows]).backward()
            optimizer.step()

    plan = Experiment(
        prefix(split("mnist", setting="class", transforms=(UNIT_RANGE,)), 2),
        "dgr",
        optimizer=OptimizerSpec("adam", lr=0.001, reset=False),
        batch_size=128,
        updates=1000,
    )
    steps = run_steps(plan, data=real_data, watch=False)
    method = next(progress for progress in steps if progress.step == 1001).line.method
    assert isinstance(method, DGR)
    new = Batch(images[:1], digits.labels[:1], heads=((0, 1, 2, 3),))
    replayed = [method.replayed(new) for _ in range(16)]
    y = torch.cat([batch.y for batch in replayed])
    with torch.no_grad():
        seen = torch.cat([judge(batch.x).argmax(dim=1) for batch in replayed])
    assert len(y) == 16 * 128
    assert y.bincount().min() > 0.3 * len(y)  # both digits come back
    assert float((seen == y).float().mean()) > 0.9  # among all ten
