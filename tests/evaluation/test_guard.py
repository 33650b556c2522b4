"""Watching leaves no trace: random states, modes, buffers and gradients are as before."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engram.evaluation.evaluator import Evaluator
from engram.evaluation.guard import same_randomness, untouched


class Nosy(nn.Module):
    """A module that does all it should not do while being evaluated."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        torch.rand(3)
        np.random.rand(3)  # noqa: NPY002
        random.random()
        scores: Tensor = self.drop(self.linear(x))
        return scores


def states() -> tuple[list[int], list[int], object]:
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002
    return torch.get_rng_state().tolist(), numpy_state["state"]["key"].tolist(), random.getstate()


def test_random_states_are_put_back() -> None:
    before = states()
    with same_randomness():
        torch.rand(1)
        np.random.rand(1)  # noqa: NPY002
        random.random()
    assert states() == before


def test_random_states_are_put_back_after_an_error() -> None:
    before = torch.get_rng_state()
    try:
        with same_randomness():
            torch.rand(1)
            raise KeyError
    except KeyError:
        pass
    assert torch.equal(before, torch.get_rng_state())


def test_modes_of_every_part_and_buffers_are_put_back() -> None:
    module = Nosy()
    module.train()
    module.drop.eval()
    with untouched(module):
        assert not module.training
        module(torch.zeros(1, 2))
    assert module.training and not module.drop.training and module.linear.training
    assert float(module.count) == 0


def test_evaluator_leaves_gradients_and_global_randomness_alone() -> None:
    module = Nosy()
    module(torch.ones(2, 2)).sum().backward()
    grad = module.linear.weight.grad
    assert grad is not None
    kept, count, random_state = grad.clone(), module.count.clone(), torch.get_rng_state()
    with pytest.warns(UserWarning, match="redraw"):
        watch = Evaluator([(torch.ones(8, 2), torch.zeros(8))], subset=4, redraw=True)
    with pytest.warns(UserWarning, match=r"Nosy changes itself in evaluation \(count\): it is restored"):
        watch(module, learning=0)
    assert module.linear.weight.grad is grad and torch.equal(grad, kept)
    assert torch.equal(module.count, count) and torch.equal(torch.get_rng_state(), random_state)


def test_the_guard_can_fail() -> None:
    """Without it the same evaluation does change things, so the tests above measure something."""
    module = Nosy()
    state = torch.get_rng_state()
    module(torch.ones(1, 2))
    assert float(module.count) == 1 and not torch.equal(state, torch.get_rng_state())
