"""The options of engram's own networks, each declared once. Torch is not imported, so that `--help` is fast.

An option may belong to several networks; it means the same in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Widths = tuple[Annotated[int, Field(ge=1)], ...]
Share = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """A network that is always the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """Options of `mlp`; no hidden layers make a linear classifier."""

    hidden: Annotated[Widths, Field(description="Widths of the hidden layers, for example 400,400")] = (
        400,
        400,
    )
    dropout_input: Annotated[Share, Field(description="Share of inputs dropped in training")] = 0.0
    dropout_hidden: Annotated[Share, Field(description="Share of hidden units dropped in training")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Competing:
    """Options of `lwta`."""

    hidden: Annotated[Widths, Field(description="Blocks in each hidden layer, for example 400,400")] = (
        400,
        400,
    )
    block: Annotated[int, Field(ge=2, description="Units that compete in each block")] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutional:
    """Options of `conv`: dropout of the inputs, and after the dense layer."""

    dropout_input: Annotated[Share, Field(description="Share of inputs dropped in training")] = 0.0
    dropout_hidden: Annotated[Share, Field(description="Share of hidden units dropped in training")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Options of the residual networks.

    The stem `32` (3×3, stride 1) keeps the resolution of small images, `224` (7×7, stride 2, pooling) is for
    large ones.
    """

    stem: Annotated[
        Literal["32", "224"], Field(description="First layers, for images of 32 or 224 pixels")
    ] = "32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """Options of `embedding-mlp`."""

    vocabulary: Annotated[
        int, Field(ge=0, description="Number of different tokens (default: that of the data)")
    ] = 0
    embedding: Annotated[int, Field(ge=1, description="Values of an embedding")] = 32
    hidden: Annotated[Widths, Field(description="Widths of the hidden layers, for example 400,400")] = (128,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """Options of `gru`."""

    width: Annotated[int, Field(ge=1, description="Units of the layer")] = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutions1d:
    """Options of `conv1d`."""

    width: Annotated[int, Field(ge=1, description="Channels of each layer")] = 64
    kernel: Annotated[int, Field(ge=1, description="Moments that a convolution sees")] = 5
