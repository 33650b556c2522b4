"""Replay through feedback: one network, both ways, and softened answers of its older self."""

from typing import Any

import pytest
import torch

from engram.core.errors import InputError
from engram.core.values import Batch, Heads, OptimizerSpec, TaskInfo
from engram.methods.distil import distillation
from engram.methods.losses import cross_entropy
from engram.methods.rtf import RtF
from engram.models import ModelSpec, build
from engram.models.vae import Feedback

TASK: Heads = ((0, 1), (2, 3), (4, 5))


def samples(*labels: int, head: int = 0, heads: Heads = TASK, seed: int = 0) -> Batch:
    x = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(seed))
    return Batch(x, torch.tensor(labels), heads=heads, head=head)


def info(index: int) -> TaskInfo:
    return TaskInfo(index=index, identity=None, classes=(0, 1), samples=9, steps=3, epochs=1, batch_size=5)


def learner(hidden: tuple[int, ...] = (8,), **settings: Any) -> RtF:
    return RtF(
        network=build(ModelSpec(hidden=hidden), shape=(6,), n_units=6, seed=0),
        optimizer_spec=OptimizerSpec("adam", lr=0.01),
        generator=torch.Generator().manual_seed(3),
        **{"latent": 2, **settings},
    )


def after(tasks: int, *, heads: Heads = TASK, **settings: Any) -> RtF:
    method = learner(**settings)
    for index in range(tasks):
        method.begin_task(info(index))
        head = index if len(heads) > 1 else 0
        for seed in range(3):
            method.observe(samples(2 * index, 2 * index + 1, 2 * index, head=head, heads=heads, seed=seed))
        method.end_task([])
    method.begin_task(info(tasks))
    return method


def twin(method: RtF) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(method.generator.get_state())
    return generator


def test_the_first_task_classifies_and_reconstructs() -> None:
    method = after(0)
    method.observe(samples(0, 1))  # makes the decoder
    batch, draws = samples(0, 1, 1, seed=4), twin(method)
    terms = method.loss(batch)
    assert terms.old is None
    model = method.dreams.model
    assert isinstance(model, Feedback)
    features = method.network.features(batch.x)
    generative = model.loss(features, batch.x, torch.randn(3, 2, generator=draws))
    classified = cross_entropy(method.network.head(features), batch)
    assert terms.new.item() == pytest.approx((classified + generative).item(), abs=1e-6)


@pytest.mark.parametrize(("mean_over_units", "divisor"), [(True, 4), (False, 1)])
def test_the_second_task_of_the_class_setting_by_hand(mean_over_units: bool, divisor: int) -> None:
    heads: Heads = ((0, 1, 2, 3),)
    method = after(1, heads=heads, mean_over_units=mean_over_units)
    batch, draws = samples(2, 3, heads=heads), twin(method)
    terms = method.loss(batch)
    model, previous, teacher = method.dreams.model, method.dreams.previous, method.teacher
    assert isinstance(model, Feedback) and isinstance(previous, Feedback) and teacher is not None
    torch.randn(2, 2, generator=draws)  # noise of the new samples
    x = previous.generate(torch.randn(5, 2, generator=draws))
    features = method.network.features(x)
    generative = model.loss(features, x, torch.randn(5, 2, generator=draws))
    now = method.network.head(features)[:, :4] / 2
    target = torch.softmax(teacher(x)[:, :2] / 2, dim=1)
    kept = -4 * (target * now.log_softmax(dim=1)[:, :2]).sum(dim=1).mean() / divisor
    assert terms.old is not None
    assert terms.old.item() == pytest.approx(0.5 * (generative + kept).item(), abs=1e-5)


def test_earlier_heads_are_compared_on_their_shares_and_averaged() -> None:
    method = after(2)
    batch, draws = samples(4, 5, head=2), twin(method)
    terms = method.loss(batch)
    model, previous, teacher = method.dreams.model, method.dreams.previous, method.teacher
    assert isinstance(model, Feedback) and isinstance(previous, Feedback) and teacher is not None
    torch.randn(2, 2, generator=draws)
    x = previous.generate(torch.randn(6, 2, generator=draws))
    features = method.network.features(x)
    generative = model.loss(features, x, torch.randn(6, 2, generator=draws))
    now, then = method.network.head(features), teacher(x)
    losses = [
        distillation(
            now[rows][:, units],
            then[rows][:, units],
            temperature=2.0,
            squared=True,
            form="cross-entropy",
            mean_over_units=True,
        )
        for rows, units in ((slice(3), [0, 1]), (slice(3, 6), [2, 3]))
    ]
    assert terms.old is not None
    assert terms.old.item() == pytest.approx(2 / 3 * (generative + sum(losses) / 2).item(), abs=1e-5)


def test_replay_moves_features_head_and_decoder() -> None:
    method = after(1)
    model = method.dreams.model
    assert model is not None
    old = method.loss(samples(2, 3, head=1)).old
    assert old is not None
    weights = [*method.network.parameters(), *model.parameters()]
    gradients = torch.autograd.grad(old, weights, materialize_grads=True)
    assert all(gradient.abs().sum() > 0 for gradient in gradients)
    before = [p.detach().clone() for p in weights]
    method.observe(samples(2, 3, head=1))
    assert all(not torch.equal(a, b) for a, b in zip(before, weights, strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_kept_bytes_are_both_decoders_and_the_older_network() -> None:
    method = after(1)
    assert method.dreams.model is not None
    of = [sum(4 * t.numel() for t in m.state_dict().values()) for m in (method.dreams.model, method.network)]
    assert method.kept_bytes() == 2 * of[0] + of[1]


def test_a_linear_classifier_has_no_encoder() -> None:
    with pytest.raises(InputError, match="give it hidden layers"):
        learner(hidden=())
