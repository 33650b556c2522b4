"""Dense layers with rectifiers."""

import math

from torch import nn

from engram.models.network import Network
from engram.models.options import Dense


def mlp(shape: tuple[int, ...], n_units: int, options: Dense) -> Network:
    """A multilayer perceptron of any widths, with optional dropout of inputs and hidden units.

    Dropout is inverted (what stays is scaled up while training), as in Pfülb & Gepperth's D-FC with rates
    .2 and .5.

    Example:
        >>> net = mlp((1, 28, 28), 10, Dense(hidden=(400, 400)))
        >>> sum(p.numel() for p in net.parameters())
        478410
    """
    size = math.prod(shape)
    layers: list[nn.Module] = [nn.Flatten(1)]
    if options.dropout_input:
        layers.append(nn.Dropout(options.dropout_input))
    for width in options.hidden:
        layers += [nn.Linear(size, width), nn.ReLU(inplace=True)]
        if options.dropout_hidden:
            layers.append(nn.Dropout(options.dropout_hidden))
        size = width
    return Network(nn.Sequential(*layers), nn.Linear(size, n_units))
