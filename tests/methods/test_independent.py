"""Independent networks, one a task."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from engram.core.errors import InputError
from engram.core.values import Batch, OptimizerSpec, TaskInfo
from engram.engine.loop import run
from engram.engine.recipe import experiment
from engram.methods.finetune import Finetune
from engram.methods.independent import Independent, Routed
from engram.models import ModelSpec, build
from engram.models.network import Network

HEADS = ((0, 1), (2, 3), (4, 5))


def network() -> Network:
    return build(ModelSpec(hidden=(6,)), shape=(5,), n_units=6, seed=0)


def make(*, keep: bool = True) -> Independent:
    # The optimiser would keep its state if the method did not start it anew.
    spec = OptimizerSpec("adam", lr=0.01, reset=False)
    return Independent(network=network(), optimizer_spec=spec, keep=keep)


def info(task: int | None, index: int = 0) -> TaskInfo:
    return TaskInfo(index, task, (0, 1), samples=16, steps=2, epochs=1, batch_size=8)


def batches(task: int) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(task)
    for _ in range(3):
        y = torch.randint(2, (8,), generator=generator)
        yield Batch(torch.randn(8, 5, generator=generator) + y[:, None], y + 2 * task, heads=HEADS, head=task)


def learn(method: Independent, task: int, index: int) -> None:
    method.begin_task(info(task, index))
    for batch in batches(task):
        method.observe(batch)
    method.end_task(batches(task))


def weights(method: Independent | Finetune) -> list[Tensor]:
    return [p.detach().clone() for p in method.network.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_task_is_learned_as_if_it_were_alone() -> None:
    method = make()
    for index, task in enumerate((1, 0, 2)):
        learn(method, task, index)
        alone = Finetune(network=network(), optimizer_spec=OptimizerSpec("adam", lr=0.01))
        alone.begin_task(info(task))
        for batch in batches(task):
            alone.observe(batch)
        assert same(weights(method), weights(alone))


def test_each_task_is_answered_by_its_own_network() -> None:
    method, x = make(), torch.randn(4, 5, generator=torch.Generator().manual_seed(9))
    untrained = network()(x)
    learn(method, 1, 0)
    after_first = method.network(x).detach()
    method.begin_task(info(0, 1))
    method.observe(next(batches(0)))
    answers = method.predictor()
    assert isinstance(answers, Routed)
    assert torch.equal(answers.route(1)(x), after_first)
    assert torch.equal(answers.route(0)(x), method.network(x))
    assert torch.equal(answers.route(2)(x), untrained)
    assert torch.equal(answers(x), method.network(x))


def test_a_learned_network_does_not_change_any_more() -> None:
    method, x = make(), torch.ones(1, 5)
    learn(method, 0, 0)
    first = method.predictor()
    assert isinstance(first, Routed)
    before = first.route(0)(x).detach().clone()
    learn(method, 1, 1)
    later = method.predictor()
    assert isinstance(later, Routed)
    assert torch.equal(later.route(0)(x), before)


def test_resumed_in_the_middle_of_a_task() -> None:
    whole, x = make(), torch.ones(1, 5)
    learn(whole, 0, 0)
    whole.begin_task(info(1, 1))
    first, *rest = batches(1)
    whole.observe(first)
    resumed = make()
    resumed.load_state_dict(whole.state_dict())
    for method in (whole, resumed):
        for batch in rest:
            method.observe(batch)
        method.end_task(batches(1))
        learn(method, 2, 2)
    assert same(weights(whole), weights(resumed))
    one, other = whole.predictor(), resumed.predictor()
    assert isinstance(one, Routed)
    assert isinstance(other, Routed)
    for task in range(3):
        assert torch.equal(one.route(task)(x), other.route(task)(x))


def test_every_kept_network_counts() -> None:
    method = make()
    size = sum(4 * p.numel() for p in method.network.parameters())
    learn(method, 0, 0)
    learn(method, 1, 1)
    # Two learned networks, and the initial weights.
    assert method.kept_bytes() == 3 * size


def test_without_task_identity_it_refuses() -> None:
    with pytest.raises(InputError, match="independent learns one task at a time"):
        make().begin_task(info(None))


def test_without_keeping_the_newest_network_answers_for_all_and_nothing_adds_up() -> None:
    method = make(keep=False)
    size = sum(4 * p.numel() for p in method.network.parameters())
    kept = make()
    for task in range(3):
        learn(method, task, task)
        learn(kept, task, task)
        assert same(weights(method), weights(kept))
        assert method.predictor() is method.network
        assert method.kept_bytes() == size
    method.begin_task(info(None))


def test_without_keeping_tasks_are_forgotten() -> None:
    """Their heads have the initial weights again; and a domain stream, which hides the task, is learned."""
    forgetting = {}
    for setting in ("task", "domain"):
        for keep in (True, False)[setting == "domain" :]:
            settings = {"keep": keep}
            planned = experiment("split-digits", "independent", setting=setting, settings=settings, epochs=3)
            forgetting[setting, keep] = run(planned).metrics["AvgFgt"]
    assert forgetting["task", True] == 0
    assert forgetting["task", False] < -0.2
    assert forgetting["domain", False] < -0.2
