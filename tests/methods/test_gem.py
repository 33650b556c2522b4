"""GEM's projection against worked examples and its own constraints, and the method around it."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from tests.methods.toy import batches, info, learn, make, same_after_resuming

from engram.core.jsons import JsonObject
from engram.core.values import Batch
from engram.methods.gem import GEM, _solve, project

VECTORS = json.loads((Path(__file__).parents[1] / "papers" / "vectors.json").read_text())
numbers = st.floats(-3, 3, allow_subnormal=False)


@pytest.mark.parametrize("vector", VECTORS["V4_GEM"])
def test_worked_examples(vector: JsonObject) -> None:
    g = torch.tensor(vector["g"], dtype=torch.float64)
    rows = torch.tensor(vector["G"], dtype=torch.float64)
    projected = project(g, rows, margin=vector["margin"], ridge=vector["eps"])
    np.testing.assert_allclose(projected, vector["gtilde"], atol=1e-6)
    dual = _solve((rows @ rows.T).numpy(), (rows @ g).numpy(), margin=vector["margin"], ridge=vector["eps"])
    np.testing.assert_allclose(dual, vector["v"], atol=1e-6)


@given(st.data(), st.integers(1, 4), st.integers(2, 6), st.sampled_from([0.0, 0.5]))
@settings(max_examples=80, deadline=None)
def test_the_projection_agrees_with_every_memory(
    data: st.DataObject, tasks: int, size: int, margin: float
) -> None:
    draw = st.lists(numbers, min_size=size, max_size=size)
    g = torch.tensor(data.draw(draw), dtype=torch.float64)
    rows = torch.tensor([data.draw(draw) for _ in range(tasks)], dtype=torch.float64)
    projected = project(g, rows, margin=margin)
    if bool((rows @ g >= 0).all()):
        assert projected is g
        return
    dual = _solve((rows @ rows.T).numpy(), (rows @ g).numpy(), margin=margin, ridge=1e-3)
    # The programme with its ridge has G·g̃ = (what the bound adds) − ridge·v: not below 0 but for the ridge.
    slack = rows @ projected + 1e-3 * torch.from_numpy(dual)
    assert bool((torch.from_numpy(dual) >= margin - 1e-9).all())
    assert bool((slack >= -1e-6).all())
    # A memory whose v is above its bound is met exactly (complementary slackness).
    assert torch.allclose(
        slack[torch.from_numpy(dual) > margin + 1e-6], torch.tensor(0.0).double(), atol=1e-6
    )


def test_the_step_raises_the_loss_on_no_memory() -> None:
    method = make(GEM, memory=20, margin=0.0, lr=0.3)
    learn(method, 0, epochs=8)
    shown = batches(1)
    method.begin_task(info(1, shown))
    projections = []
    plain = method.edit_gradients

    def watched(batch: Batch) -> None:
        before = torch.cat([p.grad.flatten() for p in method.network.parameters()])
        plain(batch)
        after = torch.cat([p.grad.flatten() for p in method.network.parameters()])
        parameters = list(method.network.parameters())
        remembered = method._gradient_on(torch.arange(20), batch, parameters)
        projections.append((float(before @ remembered), float(after @ remembered), float(remembered.norm())))

    method.edit_gradients = watched
    for batch in shown:
        method.observe(batch)
    assert min(before for before, _, _ in projections) < 0
    # For one memory r the ridge leaves g̃·r = g·r · ridge / (r·r + ridge) of what was below 0.
    for before, after, size in projections:
        assert after >= min(before, 0.0) * 1e-3 / (size**2 + 1e-3) - 1e-6


@pytest.mark.parametrize(
    ("policy", "expected"), [("first", range(10)), ("ring", range(30, 40)), ("random", None)]
)
def test_what_is_remembered(policy: str, expected: range | None) -> None:
    method = make(GEM, memory=10, policy=policy)
    learn(method, 0, size=7)
    x = torch.cat([batch.x for batch in batches(0)])
    rows = [int((x == held).flatten(1).all(dim=1).nonzero()) for held in method.store.x]
    assert len(set(rows)) == 10
    if expected is None:
        assert rows not in (list(range(10)), list(range(30, 40)))
    else:
        assert rows == list(expected)
    learn(method, 1)
    assert method.sizes == [10, 10]


def test_a_random_memory_is_a_uniform_sample_of_its_task() -> None:
    method = make(GEM, memory=3, policy="random")
    x = torch.arange(12.0)[:, None]
    task = [
        Batch(part, torch.zeros(len(part), dtype=torch.int64), heads=((0,),))
        for part in x.split((5, 1, 2, 4))
    ]
    for _ in range(600):
        method.end_task(iter(task))
    kept = method.store.x.int().reshape(600, 3)
    assert all(len(set(triple)) == 3 for triple in kept.tolist())
    # Draws without replacement vary less than the test assumes, so a p-value near 0 means a real difference.
    assert chisquare(kept.flatten().bincount(minlength=12)).pvalue > 0.001
    # Of the 220 sets of three, 600 draws leave about 14 out.
    assert len({frozenset(triple) for triple in kept.tolist()}) > 180


@pytest.mark.parametrize("policy", ["random", "first", "ring"])
def test_a_task_that_ended_is_kept_once(policy: str) -> None:
    method = make(GEM, memory=10, policy=policy)
    kept = []
    for task in range(2):
        learn(method, task)
        kept.append(method.kept_bytes())
    assert kept[1] == 2 * kept[0]


@pytest.mark.parametrize("policy", ["random", "first", "ring"])
def test_it_resumes_with_the_same_bits(policy: Literal["random", "first", "ring"]) -> None:
    assert same_after_resuming(GEM, policy=policy, memory=10)
