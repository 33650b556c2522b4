"""A network for tokens: embeddings, averaged, and dense layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.models.mlp import mlp
from engram.models.network import Network
from engram.models.options import Dense, Embedding


class MeanEmbedding(nn.Module):
    """The mean of the embeddings of a sample's tokens, whatever their order.

    Args:
        vocabulary: How many different tokens there are.
        width: Values of an embedding.
    """

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)

    def forward(self, x: Tensor) -> Tensor:
        """Samples × tokens to samples × values."""
        embedded: Tensor = self.embedding(x.to(torch.int64))
        return embedded.mean(dim=1)


def embedding_mlp(shape: tuple[int, ...], n_units: int, options: Embedding) -> Network:
    """The mean of the tokens' embeddings, and dense layers with rectifiers.

    Example:
        >>> net = embedding_mlp((12,), 10, Embedding(vocabulary=50, embedding=16, hidden=(32,)))
        >>> net(torch.zeros(5, 12, dtype=torch.int64)).shape, net.width
        (torch.Size([5, 10]), 32)
    """
    if len(shape) != 1:
        raise InputError(f"model embedding-mlp needs rows of tokens, not samples of shape {shape}: use mlp")
    if not options.vocabulary:
        raise InputError(
            "model embedding-mlp needs the number of different tokens, which only data of tokens tell: "
            "use mlp, or set model.vocabulary"
        )
    dense = mlp((options.embedding,), n_units, Dense(hidden=options.hidden))
    return Network(
        nn.Sequential(MeanEmbedding(options.vocabulary, options.embedding), dense.features), dense.head
    )
