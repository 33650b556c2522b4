"""Variational autoencoders: the loss by hand, inputs of any range, and codes that stand for what was seen."""

import math

import pytest
import torch
from torch import nn

from engram.core.errors import InputError
from engram.models.vae import VAE, Feedback


def test_it_mirrors_its_encoder() -> None:
    vae = VAE((1, 28, 28), hidden=(400, 300), latent=100, limits=(0.0, 1.0))
    sizes = [layer.weight.shape for layer in vae.modules() if isinstance(layer, nn.Linear)]
    assert [(int(i), int(o)) for o, i in sizes] == [
        (784, 400),
        (400, 300),
        (300, 100),
        (300, 100),
        (100, 300),
        (300, 400),
        (400, 784),
    ]


def test_the_loss_is_what_the_paper_adds_up() -> None:
    back = Feedback(3, (1, 2, 2), hidden=(), latent=2, limits=(-1.0, 3.0))
    generator = torch.Generator().manual_seed(0)
    features, noise = torch.randn(5, 3, generator=generator), torch.randn(5, 2, generator=generator)
    x = 4 * torch.rand(5, 1, 2, 2, generator=generator) - 1
    mean, log_variance = back.mean(features), back.log_variance(features)
    p = torch.sigmoid(back.decoder(mean + noise * (log_variance / 2).exp()))
    target = ((x + 1) / 4).flatten(1)
    crossed = -(target * p.log() + (1 - target) * (1 - p).log())
    divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum() / 5
    by_hand = crossed.mean() + divergence / 4
    assert back.loss(features, x, noise).item() == pytest.approx(by_hand.item(), abs=1e-6)


def test_generated_inputs_stay_within_the_limits_and_values_beyond_count_as_the_limits() -> None:
    vae = VAE((4,), hidden=(8,), latent=2, limits=(-0.5, 2.0))
    with torch.no_grad():
        inputs = vae.generate(50 * torch.randn(64, 2, generator=torch.Generator().manual_seed(0)))
    assert inputs.shape == (64, 4)
    assert inputs.min() >= -0.5 and inputs.max() <= 2.0
    noise = torch.zeros(1, 2)
    outside, at_limit = torch.full((1, 4), 9.0), torch.full((1, 4), 2.0)
    assert vae.loss(outside, noise).item() == vae.loss(at_limit, noise).item()


def test_a_range_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"the lower limit of inputs must be below the upper one, got"):
        VAE((4,), hidden=(8,), latent=2, limits=(1.0, 1.0))


def test_it_learns_to_make_up_the_two_patterns_that_it_sees() -> None:
    torch.manual_seed(0)
    patterns = torch.tensor([[1.0, 1.0, -1.0, -1.0], [-1.0, -1.0, 1.0, 1.0]])
    vae = VAE((4,), hidden=(32,), latent=2, limits=(-1.0, 1.0))
    optimizer = torch.optim.Adam(vae.parameters(), lr=0.01)
    before = after = math.inf
    for step in range(300):
        loss = vae.loss(patterns[torch.randint(2, (32,))], torch.randn(32, 2))
        before, after = (loss.item(), after) if step == 0 else (before, loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert after < 0.75 * before
    with torch.no_grad():
        inputs = vae.generate(torch.randn(200, 2))
    nearest = torch.cdist(inputs, patterns).min(dim=1)
    assert nearest.values.mean() < 0.5
    assert nearest.indices.bincount(minlength=2).min() > 30
