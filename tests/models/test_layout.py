"""Images whose channels lie side by side in memory: another layout, the same numbers."""

import pytest
import torch
from torch import nn

from engram.core.values import Batch
from engram.methods.importance import diagonal_fisher
from engram.models import ModelSpec, build
from engram.models.image_input import channels_last


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "name", ["cnn", "conv", "slim-resnet18", pytest.param("resnet18", marks=pytest.mark.slow)]
)
def test_scores_and_gradients_are_those_of_the_usual_layout(name: str, channels: int) -> None:
    network = build(ModelSpec(name), shape=(channels, 32, 32), n_units=4, seed=0)
    usual = nn.Sequential(nn.Sequential(*network.features.children()), network.head)
    x = torch.randn(6, channels, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network.eval()(x), usual.eval()(x), rtol=1e-4, atol=1e-4)
    # Gradients through batch norm cancel each other: their digits want more precision.
    network.double()
    gradients = []
    for module in (network, usual):
        network.zero_grad()
        module.train()(x.double()).square().sum().backward()
        gradients.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
        assert all(p.grad is not None and p.grad.is_contiguous() for p in network.parameters())
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_stay_what_they_are(channels: int) -> None:
    x = torch.randn(4, channels, 8, 6)
    for images in (x, x.transpose(2, 3), x[::2], x.expand(4, channels, 8, 6)):
        assert torch.equal(channels_last(images), images)
        assert channels_last(images).is_contiguous(memory_format=torch.channels_last)
    for other in (x[0], x.flatten(1)):
        assert channels_last(other) is other


def test_per_sample_gradients_see_the_usual_layout() -> None:
    network = build(ModelSpec("cnn"), shape=(3, 20, 20), n_units=3, seed=0)
    x = torch.randn(5, 3, 20, 20, generator=torch.Generator().manual_seed(1))
    batch = Batch(x, torch.tensor([0, 1, 2, 0, 1]), heads=((0, 1, 2),))
    mine = diagonal_fisher(network, [batch], label="true")
    for place, parameter in enumerate(network.parameters()):
        squares = torch.zeros_like(parameter)
        for row in range(len(batch)):
            loss = nn.functional.cross_entropy(network(x[row : row + 1]), batch.y[row : row + 1])
            squares += torch.autograd.grad(loss, parameter)[0].square() / len(batch)
        torch.testing.assert_close(mine[place], squares, rtol=1e-3, atol=1e-6)
