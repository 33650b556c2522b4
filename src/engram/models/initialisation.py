"""Initial weights other than PyTorch's defaults."""

import math

from torch import nn


def truncated_normal(network: nn.Module, *, std: float | None = None, bias: float = 0.0) -> None:
    """Redraw all weights of linear and convolutional layers as Pfülb & Gepperth do, and set all biases.

    Normal, cut at two standard deviations. Their dense networks have the deviation 1/√(inputs of a unit)
    (for a third hidden layer, which may be of another size than the second, their code takes its own size
    instead), their convolutional network .1 everywhere, both with biases of 0; EWC has .1 for either.

    Args:
        network: The network.
        std: The standard deviation (default: 1/√(inputs of a unit)).
        bias: The value of all biases.

    Example:
        >>> layer = nn.Linear(100, 50)
        >>> truncated_normal(layer)
        >>> bool(layer.weight.abs().max() <= 0.2), float(layer.bias.detach().abs().sum())
        (True, 0.0)
    """
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            deviation = std or 1 / math.sqrt(layer.weight[0].numel())
            nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, bias)
