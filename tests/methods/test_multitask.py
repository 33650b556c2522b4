"""Multitask learning: all earlier data stay at hand."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from engram.core.values import Batch, Heads, OptimizerSpec, TaskInfo
from engram.methods.multitask import Multitask
from engram.models import ModelSpec, build

SIZES = (30, 2, 1, 9)


def make(**fields: Any) -> Multitask:
    network = build(ModelSpec(hidden=(6,)), shape=(5,), n_units=8, seed=0)
    return Multitask(
        network=network,
        optimizer_spec=OptimizerSpec("sgd", lr=0.1),
        generator=torch.Generator().manual_seed(0),
        **fields,
    )


def info(index: int) -> TaskInfo:
    return TaskInfo(index, None, (0, 1), samples=SIZES[index], steps=2, epochs=1, batch_size=4)


def batches(task: int, heads: Heads = (tuple(range(8)),)) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(task)
    y = torch.randint(2, (SIZES[task],), generator=generator)
    # The first input says which task it is, and which sample.
    x = torch.randn(SIZES[task], 5, generator=generator)
    x[:, 0] = 100 * task + torch.arange(SIZES[task])
    for rows in torch.arange(SIZES[task]).split(4):
        yield Batch(x[rows] / 100, y[rows] + 2 * task, heads=heads, head=task if len(heads) > 1 else 0)


def learn(method: Multitask, index: int) -> None:
    method.begin_task(info(index))
    for batch in batches(index):
        method.observe(batch)
    method.end_task(batches(index))


def test_everything_is_stored() -> None:
    method = make()
    for index in range(3):
        learn(method, index)
    assert len(method.store) == sum(SIZES[:3])
    assert method.sizes == list(SIZES[:3])
    assert method.kept_bytes() == sum(SIZES[:3]) * (5 * 4 + 8 + 8)


@pytest.mark.parametrize("previous", ["union", "each"])
def test_every_task_counts_equally_and_every_sample_is_drawn(previous: str) -> None:
    method = make(previous=previous, memory_batch=600)
    for index in range(3):
        learn(method, index)
    drawn = method.rehearse(next(batches(3)))
    old = drawn.y[4:]
    n = 600 if previous == "union" else 1800
    counts = Counter((old // 2).tolist())
    assert sum(counts.values()) == n
    assert sorted(counts) == [0, 1, 2]
    # Three standard deviations of a binomial count, where there is chance at all.
    assert all(
        abs(count - n / 3) <= (3 * (n * 2 / 9) ** 0.5 if previous == "union" else 0)
        for count in counts.values()
    )
    assert len(drawn.x[4:, 0].unique()) == sum(SIZES[:3])


def test_the_loss_is_new_plus_weight_times_mean_of_old() -> None:
    method = make(weight=0.1, previous="each", memory_batch=5)
    for index in range(3):
        learn(method, index)
    method.begin_task(info(3))
    joined = method.rehearse(next(batches(3)))
    terms = method.loss(joined)
    new = nn.functional.cross_entropy(method.network(joined.x[:4]), joined.y[:4])
    by_task = [
        nn.functional.cross_entropy(method.network(joined.x[4:][rows]), joined.y[4:][rows])
        for rows in ((joined.y[4:] // 2 == task) for task in range(3))
    ]
    torch.testing.assert_close(terms.new, new)
    assert terms.old is not None
    torch.testing.assert_close(terms.old, 0.1 * torch.stack(by_task).mean())


def test_remembered_samples_keep_their_heads() -> None:
    heads = ((0, 1), (2, 3), (4, 5), (6, 7))
    method = make()
    method.begin_task(info(0))
    method.end_task(batches(0, heads))
    method.end_task(batches(1, heads))
    joined = method.rehearse(next(batches(3, heads)))
    assert isinstance(joined.head, torch.Tensor)
    assert torch.equal(joined.head, joined.y // 2)


def test_resumed_in_the_middle_of_a_task() -> None:
    whole = make(memory_batch=3)
    learn(whole, 0)
    learn(whole, 1)
    whole.begin_task(info(3))
    first, *rest = batches(3)
    whole.observe(first)
    resumed = make(memory_batch=3)
    resumed.load_state_dict(whole.state_dict())
    for method in (whole, resumed):
        for batch in rest:
            method.observe(batch)
        method.end_task(batches(3))
        learn(method, 2)
    for one, other in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(one, other)
