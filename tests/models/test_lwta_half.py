"""Local winner takes all: with blocks of two, exactly half of the hidden units are silent."""

import pytest
import torch

from engram.models import ModelSpec, build
from engram.models.lwta import Winners


@pytest.mark.parametrize("hidden", [(20,), (16, 8, 12)])
def test_blocks_of_two_zero_exactly_half_of_the_units_of_every_layer(hidden: tuple[int, ...]) -> None:
    net = build(ModelSpec("lwta", hidden=hidden, block=2), shape=(1, 5, 5), n_units=3, seed=0)
    silent: list[torch.Tensor] = []
    for layer in net.modules():
        if isinstance(layer, Winners):
            layer.register_forward_hook(
                lambda _layer, _given, result: silent.append((result == 0).sum(dim=1))
            )
    net(torch.randn(50, 1, 5, 5, generator=torch.Generator().manual_seed(1)))
    assert [counts.tolist() for counts in silent] == [[blocks] * 50 for blocks in hidden]


@pytest.mark.parametrize(("block", "passing"), [(2, 1 / 2), (3, 1 / 3), (5, 1 / 5)])
def test_one_unit_of_every_block_passes(block: int, passing: float) -> None:
    x = torch.randn(40, 30, generator=torch.Generator().manual_seed(2))
    assert float((Winners(block)(x) != 0).float().mean()) == pytest.approx(passing)
