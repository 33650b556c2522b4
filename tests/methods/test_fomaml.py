"""First-order MAML: the gradient by hand, and what it is drawn from."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engram.core.values import Batch, Heads, OptimizerSpec, TaskInfo
from engram.methods.fomaml import FOMAML
from engram.models import ModelSpec, build
from engram.models.network import Network

HEADS: Heads = ((0, 1), (2, 3), (4, 5))


def samples(count: int, *, head: int, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    return Batch(x, 2 * head + torch.randint(2, (count,), generator=generator), heads=HEADS, head=head)


def info(index: int, *, count: int = 6, batch_size: int = 6) -> TaskInfo:
    return TaskInfo(
        index=index,
        identity=None,
        classes=(0, 1),
        samples=count,
        steps=4,
        epochs=4,
        batch_size=batch_size,
    )


def learner(network: Network | None = None, **settings: Any) -> FOMAML:
    return FOMAML(
        network=network or build(ModelSpec(hidden=(5,)), shape=(4,), n_units=6, seed=0),
        optimizer_spec=OptimizerSpec("sgd", lr=0.1),
        generator=torch.Generator().manual_seed(0),
        **settings,
    )


def gradient(network: nn.Module, batch: Batch) -> list[Tensor]:
    units = HEADS[batch.head] if isinstance(batch.head, int) else ()
    scores = network(batch.x)[:, list(units)]
    loss = nn.functional.cross_entropy(scores, batch.y - units[0])
    return list(torch.autograd.grad(loss, list(network.parameters()), materialize_grads=True))


def gradient_ahead(network: nn.Module, batch: Batch, *, steps: int, rate: float) -> list[Tensor]:
    """With a task that is one batch, every drawn batch is that batch."""
    ahead = copy.deepcopy(network)
    for _ in range(steps):
        gradients = gradient(ahead, batch)
        with torch.no_grad():
            for parameter, g in zip(ahead.parameters(), gradients, strict=True):
                parameter.sub_(rate * g)
    return gradient(ahead, batch)


def test_the_first_task_adds_the_gradient_a_few_steps_ahead() -> None:
    method = learner(inner_steps=3, inner_lr=0.5)
    method.begin_task(info(0))
    batch = samples(6, head=0)
    parts = gradient(method.network, batch), gradient_ahead(method.network, batch, steps=3, rate=0.5)
    wanted = [p.detach() - 0.1 * (a + b) for p, a, b in zip(method.network.parameters(), *parts, strict=True)]
    method.observe(batch)
    assert all(
        torch.allclose(a, b, atol=1e-6) for a, b in zip(wanted, method.network.parameters(), strict=True)
    )


def test_later_tasks_add_that_of_one_earlier_task_and_inner_steps_have_the_outer_rate() -> None:
    method = learner()
    old, new = samples(6, head=0, seed=1), samples(6, head=1, seed=2)
    method.begin_task(info(0))
    method.observe(old)
    method.end_task([old])
    method.begin_task(info(1))
    ahead = [gradient_ahead(method.network, batch, steps=2, rate=0.1) for batch in (old, new)]
    parts = gradient(method.network, new), *ahead
    wanted = [
        p.detach() - 0.1 * (a + b + c) for p, a, b, c in zip(method.network.parameters(), *parts, strict=True)
    ]
    method.observe(new)
    assert all(
        torch.allclose(a, b, atol=1e-6) for a, b in zip(wanted, method.network.parameters(), strict=True)
    )


@pytest.mark.parametrize("previous", [0, 1, 2, 3])
def test_as_many_earlier_heads_as_asked_for_are_trained_while_a_later_task_is_learned(previous: int) -> None:
    method = learner(previous=previous)
    for index in range(2):
        method.begin_task(info(index))
        method.end_task([samples(6, head=index)])
    method.begin_task(info(2))
    before = method.network.head.weight.detach().clone()
    method.observe(samples(6, head=2))
    changed = (method.network.head.weight.detach() != before).any(dim=1).tolist()
    assert changed[4:] == [True, True]
    assert sum(changed[:4]) == 2 * min(previous, 2)  # of each task both units


def test_all_samples_are_kept_task_by_task_or_some_of_each_class() -> None:
    data = [[samples(6, head=0), samples(3, head=0, seed=1)], [samples(4, head=1)]]
    for memory, sizes in ((None, [9, 4]), (1, [2, 2])):
        method = learner(memory=memory)
        for index, batches in enumerate(data):
            method.begin_task(info(index))
            method.end_task(batches)
        assert method.sizes == sizes
        assert len(method.earlier) == sum(sizes)
        assert method.earlier.head.tolist() == [0] * sizes[0] + [1] * sizes[1]
        assert set(method.earlier.y[: sizes[0]].tolist()) == {0, 1}


def test_a_task_is_noted_once_however_often_it_is_shown() -> None:
    method = learner()
    method.begin_task(info(0, count=8, batch_size=4))
    for _ in range(3):
        for seed in range(2):
            method.observe(samples(4, head=0, seed=seed))
    assert method.current.x is not None
    assert torch.equal(method.current.x, torch.cat([samples(4, head=0, seed=seed).x for seed in range(2)]))
    assert method.kept_bytes() == method.current.bytes > 0


def test_running_statistics_are_those_of_the_new_samples_alone() -> None:
    features = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU())
    method = learner(Network(features, nn.Linear(5, 6)))
    method.begin_task(info(0))
    alone = copy.deepcopy(method.network).train()
    batch = samples(6, head=0)
    alone(batch.x)
    method.observe(batch)
    for ours, theirs in zip(method.network.buffers(), alone.buffers(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("count", [1, 2])
def test_tasks_smaller_than_a_batch_are_fine(count: int) -> None:
    method = learner()
    for index in range(3):
        method.begin_task(info(index, count=count))
        method.observe(samples(count, head=index))
        method.end_task([samples(count, head=index)])
    assert method.sizes == [count] * 3
