"""Gradients as flat vectors, for methods that project them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def held_gradient(parameters: Sequence[nn.Parameter]) -> Tensor:
    """The gradients that parameters hold, as one vector; 0 for a parameter without one.

    Example:
        >>> weight, bias = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
        >>> weight.grad = torch.tensor([1.0, 2.0])
        >>> held_gradient([weight, bias])
        tensor([1., 2., 0.])
    """
    return _flat(parameters, [p.grad for p in parameters])


def gradient_of(loss: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
    """The gradient of a loss, as one vector; the gradients that parameters hold are not changed.

    Example:
        >>> weight, bias = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))
        >>> gradient_of(3 * weight.sum(), [weight, bias])
        tensor([3., 3., 0.])
    """
    return _flat(parameters, torch.autograd.grad(loss, parameters, allow_unused=True))


def assign_gradient(parameters: Sequence[nn.Parameter], gradient: Tensor) -> None:
    """Let parameters hold the pieces of a gradient given as one vector.

    Example:
        >>> weight = nn.Parameter(torch.zeros(1, 2))
        >>> assign_gradient([weight], torch.tensor([1.0, 2.0]))
        >>> weight.grad
        tensor([[1., 2.]])
    """
    pieces = gradient.split([p.numel() for p in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.grad = piece.view_as(parameter)


def _flat(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> Tensor:
    pairs = zip(parameters, gradients, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])
