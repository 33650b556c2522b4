"""ER-ACE: who competes with whom."""

from typing import Literal

import pytest
import torch
from tests.methods.toy import accuracy, batches, info, learn, make, same_after_resuming
from torch.nn import functional

from engram.methods.er_ace import ERACE
from engram.methods.finetune import Finetune

Setting = Literal["class", "domain", "task"]


def test_new_samples_leave_absent_classes_alone() -> None:
    method = make(ERACE)
    batch = batches(1)[0]  # classes 2 and 3, while 0 to 3 compete
    terms = method.loss(batch)
    assert terms.old is None
    expected = functional.cross_entropy(method.network(batch.x)[:, 2:4], batch.y - 2)
    torch.testing.assert_close(terms.new, expected)
    terms.new.backward()
    touched = method.network.head.bias.grad != 0
    assert touched.tolist() == [False, False, True, True, False, False]


def test_remembered_samples_compare_all_classes_seen() -> None:
    method = make(ERACE, memory=40, memory_batch=40)
    learn(method, 0)
    method.begin_task(info(1, batches(1)))
    batch = batches(1)[0]
    joined = method.rehearse(batch)
    assert (joined.fresh, len(joined)) == (8, 48)
    terms = method.loss(joined)
    assert terms.old is not None
    expected = functional.cross_entropy(method.network(joined.x[8:])[:, :4], joined.y[8:])
    torch.testing.assert_close(terms.old, expected)
    terms.old.backward()
    assert (method.network.head.bias.grad != 0).tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize(("size", "expected"), [(None, 8), (1, 1), (5, 5)])
def test_an_update_looks_at_as_many_remembered_samples_as_asked_for(size: int | None, expected: int) -> None:
    method = make(ERACE, memory=20, memory_batch=size)
    learn(method, 0)
    joined = method.rehearse(batches(1)[0])
    assert (joined.fresh, len(joined)) == (8, 8 + expected)


def test_a_batch_of_one_class_has_nothing_to_tell_apart() -> None:
    method = make(ERACE)
    batch = batches(0, count=1)[0]
    assert method.observe(batch) == 0.0


def test_the_memory_is_a_reservoir_of_the_stream() -> None:
    method = make(ERACE, memory=10)
    learn(method, 0, epochs=2)
    assert (len(method.store), method.store.seen) == (10, 80)


@pytest.mark.parametrize("setting", ["class", "task"])
def test_it_remembers_what_fine_tuning_forgets(setting: Setting) -> None:
    plain, replay = make(Finetune), make(ERACE, memory=30)
    for method in (plain, replay):
        for task in range(3):
            learn(method, task, setting=setting, epochs=6)
    means = [sum(accuracy(m, t, setting=setting) for t in range(3)) / 3 for m in (plain, replay)]
    assert means[1] > (0.9 if setting == "task" else means[0] + 0.4)


@pytest.mark.parametrize("setting", ["class", "domain", "task"])
def test_it_resumes_with_the_same_bits(setting: Setting) -> None:
    assert same_after_resuming(ERACE, setting=setting, memory=12, memory_batch=6)
