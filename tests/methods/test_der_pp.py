"""DER++: the memory's scores stay those of the moment when a sample was stored."""

import pytest
import torch
from tests.methods.toy import accuracy, batches, info, learn, make, same_after_resuming
from torch import Tensor
from torch.nn import functional

from engram.methods.der_pp import DERPP
from engram.methods.finetune import Finetune


def test_scores_are_those_from_before_the_update() -> None:
    method = make(DERPP, memory=12)
    scores_before: dict[tuple[float, ...], Tensor] = {}
    plain = method.loss

    def watched(batch):  # type: ignore[no-untyped-def]
        with torch.no_grad():
            for x, z in zip(batch.x, method.network(batch.x), strict=True):
                scores_before[tuple(x.flatten().tolist())] = z
        return plain(batch)

    method.loss = watched
    learn(method, 0)
    learn(method, 1)
    assert (len(method.store), len(method.scores)) == (12, 12)
    for x, y, z in zip(method.store.samples.x, method.store.samples.y, method.scores, strict=True):
        assert int(y) in range(4)
        torch.testing.assert_close(z, scores_before[tuple(x.flatten().tolist())])
    now = method.network(method.store.samples.x)
    assert not torch.allclose(now, method.scores, atol=1e-3)


def test_the_loss_has_three_parts() -> None:
    method = make(DERPP, memory=12, memory_batch=99, logit_weight=0.7, label_weight=0.4)
    learn(method, 0)
    shown = batches(1)
    method.begin_task(info(1, shown))
    terms = method.loss(shown[0])
    held = method.store.samples
    z = method.network(held.x)
    torch.testing.assert_close(
        terms.new, functional.cross_entropy(method.network(shown[0].x)[:, :4], shown[0].y)
    )
    old = 0.7 * (z - method.scores).square().mean() + 0.4 * functional.cross_entropy(z[:, :4], held.y)
    torch.testing.assert_close(terms.old, old)
    assert float(old.detach()) > 0
    old.backward()
    assert float(method.network.head.weight.grad.norm()) > 0


def test_bytes_count_samples_and_scores() -> None:
    method = make(DERPP, memory=12)
    learn(method, 0)
    assert method.kept_bytes() == 12 * (16 * 4 + 16 + 6 * 4)


def test_it_remembers_what_fine_tuning_forgets() -> None:
    plain, replay = make(Finetune), make(DERPP, memory=30)
    for method in (plain, replay):
        for task in range(3):
            learn(method, task, epochs=6)
    means = [sum(accuracy(m, t) for t in range(3)) / 3 for m in (plain, replay)]
    assert means[1] > means[0] + 0.4


@pytest.mark.parametrize("memory", [1, 12])
def test_it_resumes_with_the_same_bits(memory: int) -> None:
    assert same_after_resuming(DERPP, memory=memory, memory_batch=6)
