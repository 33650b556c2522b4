"""Variational autoencoders: networks that generate inputs like those they were trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from engram.core.errors import InputError


class Feedback(nn.Module):
    """A variational autoencoder without its encoder: from features to a latent code and back to inputs.

    The code of a sample is normal with a mean and a variance that are linear in its features; dense layers
    with rectifiers lead from the code to the inputs, mirroring an encoder with the same `hidden` widths.

    Inputs are treated as probabilities of pixels: a value is scaled from `limits` to 0..1 before it is
    compared with the output of the last, logistic, layer. Values beyond the limits are clamped. Generated
    inputs are scaled back to the range of the inputs.

    Args:
        width: How many features there are.
        shape: The shape of one sample.
        hidden: Widths of the encoder's hidden layers, first to last; the decoder has them in reverse.
        latent: How many numbers the code has.
        limits: Least and greatest value of an input.

    Example:
        >>> back = Feedback(8, (1, 4, 4), hidden=(16, 8), latent=3, limits=(-1.0, 1.0))
        >>> back.generate(torch.zeros(5, 3)).shape
        torch.Size([5, 1, 4, 4])
    """

    low: Tensor
    high: Tensor

    def __init__(
        self,
        width: int,
        shape: Sequence[int],
        *,
        hidden: Sequence[int],
        latent: int,
        limits: tuple[float, float],
    ) -> None:
        super().__init__()
        if not limits[0] < limits[1]:
            raise InputError(
                f"the lower limit of inputs must be below the upper one, got {limits[0]} and {limits[1]}"
            )
        self.shape = tuple(shape)
        self.latent = latent
        self.register_buffer("low", torch.tensor(limits[0]))
        self.register_buffer("high", torch.tensor(limits[1]))
        self.mean = nn.Linear(width, latent)
        self.log_variance = nn.Linear(width, latent)
        layers: list[nn.Module] = []
        size = latent
        for units in reversed(hidden):
            layers += [nn.Linear(size, units), nn.ReLU()]
            size = units
        self.decoder = nn.Sequential(*layers, nn.Linear(size, math.prod(self.shape)))

    def generate(self, code: Tensor) -> Tensor:
        """The inputs of these latent codes."""
        pixels = torch.sigmoid(self.decoder(code))
        inputs: Tensor = (self.low + (self.high - self.low) * pixels).unflatten(1, self.shape)
        return inputs

    def scaled(self, x: Tensor) -> Tensor:
        """Inputs as probabilities: 0 at the lower limit and below, 1 at the upper and above."""
        return ((x - self.low) / (self.high - self.low)).clamp(0.0, 1.0)

    def loss(self, features: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        """The reconstruction loss of inputs, and the divergence of their codes from a standard normal.

        Binary cross-entropy of the reconstruction, the mean over pixels, plus the Kullback-Leibler divergence
        of the code's distribution from the standard normal, divided by the number of pixels; both means over
        the samples (van de Ven & Tolias, 2018).

        Args:
            features: The encoder's output for the inputs.
            x: The inputs.
            noise: Standard normal noise, one row per sample, from which the codes are drawn.

        Example:
            >>> back = Feedback(1, (1,), hidden=(), latent=1, limits=(0.0, 1.0))
            >>> for parameter in back.parameters():
            ...     _ = nn.init.zeros_(parameter)
            >>> loss = back.loss(torch.zeros(1, 1), torch.ones(1, 1), torch.zeros(1, 1))
            >>> round(loss.item(), 6)  # the code is standard normal, the pixel a coin: ln 2
            0.693147
        """
        mean, log_variance = self.mean(features), self.log_variance(features)
        code = mean + noise * torch.exp(0.5 * log_variance)
        pixels = self.scaled(x).flatten(1)
        reconstruction = functional.binary_cross_entropy_with_logits(self.decoder(code), pixels)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1).mean()
        total: Tensor = reconstruction + divergence / pixels.shape[1]
        return total


class VAE(nn.Module):
    """A symmetric variational autoencoder of dense layers, with an encoder of its own.

    Inputs may have any range: see `Feedback` for what `limits` does.

    Args:
        shape: The shape of one sample.
        hidden: Widths of the encoder's hidden layers, at least one; the decoder has them in reverse.
        latent: How many numbers the code has.
        limits: Least and greatest value of an input.

    Example:
        >>> vae = VAE((1, 28, 28), hidden=(400, 400), latent=100, limits=(0.0, 1.0))
        >>> sum(p.numel() for p in vae.parameters())
        1069784
    """

    def __init__(
        self, shape: Sequence[int], *, hidden: Sequence[int], latent: int, limits: tuple[float, float]
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten(1)]
        size = math.prod(shape)
        for units in hidden:
            layers += [nn.Linear(size, units), nn.ReLU()]
            size = units
        self.encoder = nn.Sequential(*layers)
        self.feedback = Feedback(size, shape, hidden=hidden, latent=latent, limits=limits)

    @property
    def latent(self) -> int:
        """How many numbers the code has."""
        return self.feedback.latent

    def generate(self, code: Tensor) -> Tensor:
        """The inputs of these latent codes."""
        return self.feedback.generate(code)

    def loss(self, x: Tensor, noise: Tensor) -> Tensor:
        """What training minimises: see `Feedback.loss`. The encoder sees the inputs scaled to 0..1."""
        return self.feedback.loss(self.encoder(self.feedback.scaled(x)), x, noise)
