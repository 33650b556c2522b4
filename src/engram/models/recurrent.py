"""Small networks for series: gated recurrent units, and convolutions over time."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.models.network import Network
from engram.models.options import Convolutions1d, Recurrent


class GatedUnits(nn.Module):
    """A layer of gated recurrent units; its features are their state after the last moment.

    The equations and initial weights are those of `torch.nn.GRU`. It is made of linear layers, so that
    gradients of single samples and operations can be computed as for all other networks.

    Args:
        channels: Values at each moment.
        width: Units.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(channels, 3 * width)
        self.state = nn.Linear(width, 3 * width)
        for weights in self.parameters():
            nn.init.uniform_(weights, -1 / math.sqrt(width), 1 / math.sqrt(width))

    def forward(self, x: Tensor) -> Tensor:
        """The state after the last moment, for samples × moments × channels."""
        moments = self.inputs(x)
        state: Tensor = moments.new_zeros(x.shape[0], self.state.in_features)
        for moment in moments.unbind(1):
            reset, update, fresh = moment.chunk(3, dim=-1)
            old_reset, old_update, old_fresh = self.state(state).chunk(3, dim=-1)
            gate = torch.sigmoid(update + old_update)
            proposed = torch.tanh(fresh + torch.sigmoid(reset + old_reset) * old_fresh)
            state = proposed + gate * (state - proposed)
        return state


class TimeLast(nn.Module):
    """Samples × moments × channels as samples × channels × moments, as convolutions take them."""

    def forward(self, x: Tensor) -> Tensor:
        """The same values, transposed."""
        return x.transpose(1, 2)


class MeanOverTime(nn.Module):
    """The mean of each channel over time."""

    def forward(self, x: Tensor) -> Tensor:
        """Samples × channels × moments to samples × channels."""
        return x.mean(dim=-1)


def gru(shape: tuple[int, ...], n_units: int, options: Recurrent) -> Network:
    """Gated recurrent units over a series, whose last state is classified (Cho et al., 2014).

    Example:
        >>> net = gru((20, 3), 10, Recurrent(width=32))
        >>> net(torch.zeros(5, 20, 3)).shape, net.width
        (torch.Size([5, 10]), 32)
    """
    _, channels = series_shape("gru", shape)
    return Network(GatedUnits(channels, options.width), nn.Linear(options.width, n_units))


def conv1d(shape: tuple[int, ...], n_units: int, options: Convolutions1d) -> Network:
    """Two convolutions over time with rectifiers, averaged over time.

    Example:
        >>> net = conv1d((20, 3), 10, Convolutions1d(width=32, kernel=5))
        >>> net(torch.zeros(5, 20, 3)).shape, net.width
        (torch.Size([5, 10]), 32)
    """
    _, channels = series_shape("conv1d", shape)
    layers = nn.Sequential(
        TimeLast(),
        nn.Conv1d(channels, options.width, options.kernel, padding=options.kernel // 2),
        nn.ReLU(inplace=True),
        nn.Conv1d(options.width, options.width, options.kernel, padding=options.kernel // 2),
        nn.ReLU(inplace=True),
        MeanOverTime(),
    )
    return Network(layers, nn.Linear(options.width, n_units))


def series_shape(model: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Moments and channels of a series.

    Raises:
        InputError: Samples are something else.

    Example:
        >>> series_shape("gru", (1, 28, 28))
        Traceback (most recent call last):
        engram.core.errors.InputError: model gru needs series (time × channels), not samples of shape ...
    """
    if len(shape) != 2:
        raise InputError(
            f"model {model} needs series (time × channels), not samples of shape {shape}: use mlp, or "
            "embedding-mlp for tokens"
        )
    return shape[0], shape[1]
