"""Scores in half precision (bfloat16), from a network that stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from engram.evaluation.asking import scores_in
from engram.evaluation.dense import Dense, dense_layers, fused_linear, fusing_works, parts_of, watched
from engram.evaluation.integers import MOST_INPUTS, Lattice, integer_layer, integers_work
from engram.evaluation.precision import computing_in

Form: TypeAlias = Literal["plain", "rounded", "integers"]
"""How inputs are given: as they are; flat and rounded to bfloat16; or flat and as 8-bit numbers."""
WORTH_INTEGERS = 2**26
"""Multiplications in the first layer from which on 8-bit numbers save more than preparing its weights costs.
"""


class HalfScorer(NamedTuple):
    """Computes a network's scores in bfloat16, and returns them in 32 bits.

    Attributes:
        scores: The function.
        form: The form in which it takes inputs. Where they are to be rounded they may be given as they are.
    """

    scores: Callable[[Tensor], Tensor]
    form: Form = "plain"


def half_scorer(
    network: nn.Module, layers: list[Dense] | None = None, lattice: Lattice | None = None
) -> HalfScorer:
    """A function that computes a network's scores in bfloat16, and returns them in 32 bits.

    Chains of dense layers are computed by oneDNN with copies of their weights, which are made here: make a
    new function after every update. Where inputs are 8-bit numbers, the first of these layers is computed in
    integers, which is faster. All other networks are called within `torch.autocast`. Where the last part of a
    network is known to be a dense layer, it is computed in 32 bits: it costs little, and scores that are not
    rounded to 8 bits err much less.

    Args:
        network: In evaluation mode, with weights in 32 bits; it is not changed.
        layers: Its `dense_layers`, if they are known already.
        lattice: What inputs stand for if they are given as 8-bit numbers; see `worth_integers`.

    Example:
        >>> network = nn.Sequential(nn.Linear(50, 20), nn.ReLU(), nn.Linear(20, 3)).eval()
        >>> x = torch.randn(100, 50)
        >>> with torch.no_grad():
        ...     scores, exact = half_scorer(network).scores(x), network(x)
        >>> scores.dtype, torch.allclose(scores, exact, atol=0.05), torch.equal(scores, exact)
        (torch.float32, True, False)
    """
    steps = layers or dense_layers(network)
    if steps is not None and fusing_works() and bfloat16_works():
        return HalfScorer(_dense(steps, lattice), "rounded" if lattice is None else "integers")
    parts = parts_of(network)
    head = parts[-1] if parts else None
    if parts and type(head) is nn.Linear and len(parts) > 1 and not watched(network) and not watched(head):
        return HalfScorer(_before_head(parts[:-1], head))

    def scores(x: Tensor) -> Tensor:
        with computing_in(x.device, torch.bfloat16):
            return scores_in(network(x)).float()

    return HalfScorer(scores)


def worth_integers(layers: list[Dense] | None, samples: int) -> bool:
    """Whether a network of these layers gains if so many samples are given as 8-bit numbers.

    Example:
        >>> worth_integers([Dense(nn.Linear(784, 400), rectified=True)], 10**6)
        False
    """
    # An only layer is the last one too, and computed in 32 bits.
    if layers is None or len(layers) < 2:
        return False
    first = layers[0].layer
    worth_it = samples * first.weight.numel() >= WORTH_INTEGERS
    return worth_it and first.in_features <= MOST_INPUTS and integers_work()


def _dense(steps: list[Dense], lattice: Lattice | None = None) -> Callable[[Tensor], Tensor]:
    """A chain of dense layers; the last is computed in 32 bits unless it is the only one."""
    hidden, last = (steps[:-1], steps[-1]) if len(steps) > 1 else (steps, None)
    first = None if lattice is None else integer_layer(hidden[0].layer, lattice)
    rest = hidden if first is None else hidden[1:]
    converted = [(layer.weight.bfloat16(), _bfloat16(layer.bias), rectified) for layer, rectified in rest]

    def scores(x: Tensor) -> Tensor:
        x = x.flatten(1) if first is None else first(x)
        if first is not None and hidden[0].rectified:
            x = x.relu_()
        if converted:
            x = x.bfloat16()
        for weight, bias, rectified in converted:
            x = fused_linear(x, weight, bias, "relu" if rectified else "none")
        x = x.float()
        if last is None:
            return x
        return fused_linear(x, last.layer.weight, last.layer.bias, "relu" if last.rectified else "none")

    return scores


def _before_head(features: tuple[nn.Module, ...], head: nn.Linear) -> Callable[[Tensor], Tensor]:
    def scores(x: Tensor) -> Tensor:
        with computing_in(x.device, torch.bfloat16):
            for part in features:
                x = cast(Tensor, part(x))
        return functional.linear(x.float(), head.weight, head.bias)

    return scores


def _bfloat16(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.bfloat16()


def bfloat16_works() -> bool:
    """Whether oneDNN computes dense layers in bfloat16 on this processor.

    Example:
        >>> bfloat16_works() in (True, False)
        True
    """
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False
