"""iCaRL: exemplars, distillation, and answers by the nearest mean."""

from typing import Literal

import numpy as np
import pytest
import torch
from tests.methods.toy import accuracy, batches, info, learn, make, same_after_resuming
from torch.nn import functional

from engram.core.values import Batch
from engram.methods.finetune import Finetune
from engram.methods.icarl import ICaRL, NearestMean, directions, herd

Setting = Literal["class", "domain", "task"]


def test_herding_is_the_greedy_choice() -> None:
    features = torch.randn(15, 4, generator=torch.Generator().manual_seed(0)).double()
    mean = features.mean(dim=0)
    taken: list[int] = []
    for _ in range(15):
        rest = [row for row in range(15) if row not in taken]
        distances = [float((mean - features[[*taken, row]].mean(dim=0)).norm()) for row in rest]
        taken.append(rest[int(np.argmin(distances))])
    assert herd(features, 15).tolist() == taken
    assert herd(features, 4).tolist() == taken[:4]
    assert herd(features, 99).tolist() == taken
    assert len(herd(features, 0)) == 0


def test_exemplars_are_shared_out_over_the_classes_and_represent_them() -> None:
    method = make(ICaRL, memory=12)
    kept = []
    for task, expected in enumerate(([6, 6], [3] * 4, [2] * 6)):
        learn(method, task, epochs=3)
        assert [len(part) for part in method.store.parts] == expected
        kept.append(method.store.parts[0].x)
    assert torch.equal(kept[2], kept[0][:2])
    everything = torch.cat([batch.x[batch.y == 4] for batch in batches(2)])
    mean = directions(method.teacher, _samples(everything)).mean(dim=0)
    chosen = directions(method.teacher, method.store.parts[4]).mean(dim=0)
    random = [directions(method.teacher, _samples(everything[[i, i + 1]])).mean(dim=0) for i in range(19)]
    assert float((chosen - mean).norm()) < np.median([float((r - mean).norm()) for r in random])


def _samples(x: torch.Tensor) -> Batch:
    return Batch(x, torch.zeros(len(x), dtype=torch.int64), heads=())


def test_units_of_older_classes_learn_the_older_answers() -> None:
    method = make(ICaRL, memory=12)
    learn(method, 0, epochs=3)
    shown = batches(1)
    method.begin_task(info(1, shown))
    terms = method.loss(shown[0])
    logits = method.network(shown[0].x)
    wanted = functional.one_hot(shown[0].y, 6).float()
    with torch.no_grad():
        before = torch.sigmoid(method.teacher(shown[0].x))
    bce = functional.binary_cross_entropy_with_logits
    torch.testing.assert_close(terms.new, bce(logits[:, 2:4], wanted[:, 2:4]) * 2)
    torch.testing.assert_close(terms.old, bce(logits[:, :2], before[:, :2]) * 2)
    # The older network is still the same, so the distillation is at its minimum: its gradient is 0.
    (gradient,) = torch.autograd.grad(terms.old, method.network.head.bias, retain_graph=True)
    torch.testing.assert_close(gradient, torch.zeros(6), atol=1e-6, rtol=0)
    method.observe(shown[0])
    terms = method.loss(shown[0])
    assert terms.old is not None
    (gradient,) = torch.autograd.grad(terms.old, method.network.head.bias)
    assert float(gradient[:2].norm()) > 1e-3


def test_a_pass_shows_each_exemplar_once() -> None:
    method = make(ICaRL, memory=12)
    learn(method, 0)
    shown = batches(1)
    method.begin_task(info(1, shown))
    old = torch.cat([joined.x[joined.fresh :] for joined in map(method.rehearse, shown) if joined.fresh])
    held = torch.cat([part.x for part in method.store.parts])
    assert sorted(old.flatten(1).tolist()) == sorted(held.flatten(1).tolist())


def test_the_nearest_mean_answers() -> None:
    method = make(ICaRL, memory=12)
    assert not isinstance(method.predictor(), NearestMean)
    learn(method, 0)
    predictor = method.predictor()
    assert isinstance(predictor, NearestMean)
    x = batches(0)[0].x
    scores = predictor(x)
    features = directions(method.network, _samples(x))
    means = [
        functional.normalize(directions(method.network, part).mean(dim=0), dim=0)
        for part in method.store.parts
    ]
    expected = torch.stack([-(features - mean).square().sum(dim=1) for mean in means], dim=1)
    torch.testing.assert_close(scores[:, :2], expected, atol=1e-5, rtol=1e-4)
    assert bool((scores[:, 2:] < scores[:, :2].min()).all())


def test_the_task_being_learned_can_be_answered_before_it_ends() -> None:
    method = make(ICaRL, memory=24)
    learn(method, 0, epochs=6)
    shown = batches(1)
    method.begin_task(info(1, shown, epochs=6))
    for batch in shown * 6:
        method.observe(batch)
    assert accuracy(method, 1, seen=2) > 0.7
    assert accuracy(method, 0, seen=2) > 0.7
    assert method.recent.share == 24 // 4


@pytest.mark.parametrize("setting", ["class", "domain", "task"])
def test_it_remembers_what_fine_tuning_forgets(setting: Setting) -> None:
    plain, method = make(Finetune), make(ICaRL, memory=30)
    for learner in (plain, method):
        for task in range(3):
            learn(learner, task, setting=setting, epochs=6)
    means = [sum(accuracy(m, t, setting=setting) for t in range(3)) / 3 for m in (plain, method)]
    assert means[1] > (means[0] + 0.4 if setting == "class" else 0.8)


@pytest.mark.parametrize("setting", ["class", "domain", "task"])
def test_it_resumes_with_the_same_bits(setting: Setting) -> None:
    assert same_after_resuming(ICaRL, setting=setting, memory=12)
