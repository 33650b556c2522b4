"""Operations are counted alike whether or not PyTorch's compiler is loaded."""

import sys
from importlib import import_module

import pytest
import torch
from torch import nn

from engram.engine.operations import counting_operations


def counted() -> tuple[str, int]:
    with counting_operations() as counting:
        (torch.ones(5, 4) @ torch.ones(4, 3)).sum()
    return type(counting).__name__, counting.flops


def test_counts_are_the_same_beside_the_compiler() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "torch._dynamo", raising=False)
        assert counted() == ("Operations", 135)
    import_module("torch._dynamo")
    assert counted() == ("_BesideCompiler", 135)


@pytest.mark.parametrize("samples_first", [True, False])
def test_a_recurrent_layer_has_operations_and_samples(samples_first: bool) -> None:
    layer = nn.LSTM(8, 16, batch_first=samples_first)
    x = torch.zeros(5, 20, 8) if samples_first else torch.zeros(20, 5, 8)
    with counting_operations() as counting:
        scores, _ = layer(x)
        forwards = counting.flops
        scores.sum().backward()
    products = 5 * 20 * (4 * 16) * (8 + 16)
    assert forwards == pytest.approx(2 * products, rel=0.02)
    assert counting.flops == pytest.approx(6 * products, rel=0.05)
    assert counting.samples == 5


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_samples_are_learned_from_only_with_gradients(
    off: type[torch.no_grad | torch.inference_mode],
) -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 10))
    with counting_operations() as counting:
        with off():
            network(torch.zeros(7, 1, 8, 8))
        assert counting.samples == 0 < counting.flops
        network(torch.zeros(5, 1, 8, 8)).sum().backward()
    assert counting.samples == 5
