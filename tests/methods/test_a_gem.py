"""A-GEM's projection against the worked example and its constraint, and the method around it."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.methods.toy import batches, info, learn, make, same_after_resuming

from engram.core.values import Batch, Heads
from engram.methods.a_gem import AGEM, project
from engram.methods.losses import cross_entropy

VECTOR = json.loads((Path(__file__).parents[1] / "papers" / "vectors.json").read_text())["V5_AGEM"]
gradients = st.lists(st.floats(-3, 3, allow_subnormal=False), min_size=4, max_size=4)


def test_worked_example() -> None:
    g, reference = (torch.tensor(VECTOR[name], dtype=torch.float64) for name in ("g", "gref"))
    np.testing.assert_allclose(project(g, reference), VECTOR["gtilde"], atol=1e-6)


@example([0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, -2.3e-245])
@given(gradients, gradients)
@settings(max_examples=200, deadline=None)
def test_the_projection_never_goes_against_the_reference(gradient: list[float], memory: list[float]) -> None:
    g, reference = torch.tensor(gradient, dtype=torch.float64), torch.tensor(memory, dtype=torch.float64)
    projected = project(g, reference)
    if float(g @ reference) >= 0:
        assert projected is g
    else:
        assert float(projected @ reference) == pytest.approx(0.0, abs=1e-9)
        # It is the nearest such gradient: what was taken away points along the reference.
        away = g - projected
        assert float(away @ projected) == pytest.approx(0.0, abs=1e-9)


def test_the_step_does_not_go_against_the_memory() -> None:
    method = make(AGEM, memory=10, memory_batch=99, lr=0.3)
    learn(method, 0, epochs=8)
    shown = batches(1)
    method.begin_task(info(1, shown))
    products: list[tuple[float, float]] = []
    plain = method.edit_gradients

    def watched(batch: Batch) -> None:
        parameters = list(method.network.parameters())
        held = method.store.samples.batch(torch.arange(20), batch.heads)
        remembered = torch.autograd.grad(cross_entropy(method.network(held.x), held), parameters)
        before = sum(float((p.grad * r).sum()) for p, r in zip(parameters, remembered, strict=True))
        plain(batch)
        after = sum(float((p.grad * r).sum()) for p, r in zip(parameters, remembered, strict=True))
        products.append((before, after))

    method.edit_gradients = watched
    for batch in shown:
        method.observe(batch)
    assert min(before for before, _ in products) < -1e-3
    assert all(after >= -1e-6 for _, after in products)


@pytest.mark.parametrize("policy", ["random", "ring"])
def test_what_is_remembered(policy: str) -> None:
    method = make(AGEM, memory=3, policy=policy)
    sizes: list[int] = []
    learn(method, 0, after=lambda step: sizes.append(len(method.store)))
    assert sizes == [0] * 5
    assert Counter(method.store.samples.y.tolist()) == {0: 3, 1: 3}
    latest = torch.cat([batch.x for batch in batches(0)])[-6:]
    assert torch.equal(method.store.samples.x, latest) == (policy == "ring")
    learn(method, 1)
    assert Counter(method.store.samples.y.tolist()) == {0: 3, 1: 3, 2: 3, 3: 3}


@pytest.mark.parametrize("policy", ["random", "ring"])
def test_it_resumes_with_the_same_bits(policy: str) -> None:
    assert same_after_resuming(AGEM, policy=policy, memory=5, memory_batch=6)


@pytest.mark.parametrize(("fields", "expected"), [({}, [8, 8, 8, 8, 8]), ({"memory_batch": 5}, [5] * 5)])
def test_as_many_are_remembered_as_are_new_by_default(fields: dict[str, int], expected: list[int]) -> None:
    method = make(AGEM, memory=10, **fields)
    learn(method, 0)
    sizes: list[int] = []
    plain = method.store.sample

    def watched(size: int, heads: Heads) -> Batch:
        sizes.append(size)
        drawn: Batch = plain(size, heads)
        return drawn

    method.store.sample = watched
    learn(method, 1)
    assert sizes == expected
