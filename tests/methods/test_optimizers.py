"""Optimisers by name do what PyTorch's do."""

import copy
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from tests.drained import drained, saved
from torch import nn
from torch.optim import Optimizer

from engram.core.errors import InputError
from engram.core.values import OptimizerSpec
from engram.engine.loop import run, run_steps
from engram.engine.recipe import experiment
from engram.methods.optimizers import OPTIMIZERS, build_optimizer

THEIRS: dict[str, Callable[..., Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}


def test_all_are_compared() -> None:
    assert set(THEIRS) == set(OPTIMIZERS)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_steps_are_those_of_pytorch(name: str, momentum: float) -> None:
    options: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.3}
    spec = OptimizerSpec(name, momentum=momentum, **options)
    ours, theirs = (nn.Parameter(torch.tensor([1.0, -2.0, 0.5])) for _ in range(2))
    if momentum and name not in ("sgd", "rmsprop"):
        with pytest.raises(InputError, match=f"momentum belongs to sgd and rmsprop, not to {name}"):
            build_optimizer(spec, [ours])
        return
    built = build_optimizer(spec, [ours])
    reference = THEIRS[name]([theirs], **options, **({"momentum": momentum} if momentum else {}))
    for _ in range(3):
        for weights, optimizer in ((ours, built), (theirs, reference)):
            optimizer.zero_grad()
            weights.pow(4).sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_the_weight_decay_of_adamw_is_decoupled() -> None:
    weights = nn.Parameter(torch.tensor([2.0]))
    weights.grad = torch.zeros(1)
    build_optimizer(OptimizerSpec("adamw", lr=0.1, weight_decay=0.5), [weights]).step()
    assert weights.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5))


@pytest.mark.parametrize("name", ["adamw", "rmsprop"])
def test_a_run_resumes_with_the_same_bits(name: str) -> None:
    planned = experiment("split-digits", "finetune", optimizer=name, updates=4, evaluation={"every": 2})
    assert (planned.optimizer.name, planned.optimizer.lr) == (name, 0.001)
    whole = run(planned)
    *_, middle = islice(run_steps(planned), 6)
    resumed, _ = drained(planned, resume=saved(middle))
    assert resumed.trace == whole.trace


def test_experiments_keep_their_names() -> None:
    """More optimisers, options and methods do not make other experiments of those that are recorded."""
    known = {
        ("split-mnist", "er"): "split-mnist-class-er-s0-96bb1288c151",
        ("split-digits", "ewc"): "split-digits-class-ewc-s0-09569e7d311a",
        ("split-mnist", "offline"): "split-mnist-class-offline-s0-139156fa5e06",
        ("split-digits", "dgr"): "split-digits-class-dgr-s0-3e657d7d0c89",
    }
    assert {pair: experiment(*pair).id for pair in known} == known


@pytest.mark.slow
def test_training_does_not_import_the_compiler() -> None:
    """It takes as long as importing PyTorch itself, and nothing is compiled."""
    program = """
import sys
import torch
from engram.engine.loop import run
from engram.engine.recipe import experiment
from engram.methods import METHODS
from engram.methods.optimizers import OPTIMIZERS

torch.set_num_threads(1)
for optimizer in OPTIMIZERS:
    run(experiment("split-digits", "finetune", updates=2, optimizer=optimizer, evaluation={"subset": 20}))
for method in METHODS:
    run(experiment("split-digits", method, setting="task", updates=2, evaluation={"subset": 20}))
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimisers_can_be_copied(name: str) -> None:
    network = nn.Linear(2, 2)
    optimizer = build_optimizer(OptimizerSpec(name, lr=0.1), network.parameters())
    network(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    other = copy.deepcopy(optimizer)
    assert type(other) is type(optimizer)
    assert other.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
