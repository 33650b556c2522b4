"""Local winner takes all: units compete in small blocks, and only the winners pass on their value."""

import math

from torch import Tensor, nn

from engram.models.network import Network
from engram.models.options import Competing


def winners(x: Tensor, block: int) -> Tensor:
    """Keep the largest of every `block` adjacent units and set the others to 0; tied winners are all kept.

    Example:
        >>> import torch
        >>> winners(torch.tensor([0.3, -0.2, -0.5, -0.1, 0.7, 0.7]), 2)
        tensor([ 0.3000,  0.0000,  0.0000, -0.1000,  0.7000,  0.7000])
    """
    blocks = x.reshape(*x.shape[:-1], -1, block)
    won = blocks == blocks.amax(-1, keepdim=True)
    return blocks.masked_fill(~won, 0.0).flatten(-2)


class Winners(nn.Module):
    """`winners` as a layer."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        """Let the winner of every block pass."""
        return winners(x, self.block)

    def extra_repr(self) -> str:
        """The block size, as `print` shows it."""
        return f"block={self.block}"


def lwta(shape: tuple[int, ...], n_units: int, options: Competing) -> Network:
    """A perceptron whose hidden units compete in blocks, linear otherwise (Pfülb & Gepperth's LWTA).

    A layer "of size S" has S blocks, as in their code: 2 S units with blocks of two.

    Example:
        >>> lwta((4,), 10, Competing(hidden=(200,))).width
        400
    """
    size = math.prod(shape)
    layers: list[nn.Module] = [nn.Flatten(1)]
    for blocks in options.hidden:
        layers += [nn.Linear(size, blocks * options.block), Winners(options.block)]
        size = blocks * options.block
    return Network(nn.Sequential(*layers), nn.Linear(size, n_units))
