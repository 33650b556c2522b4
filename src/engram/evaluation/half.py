"""Scores in half precision (bfloat16, or 8-bit integers), from a network that stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from engram.evaluation.asking import scores_in
from engram.evaluation.dense import Dense, dense_layers, fused_linear, fusing_works, parts_of, watched
from engram.evaluation.integers import MOST_INPUTS, Form, IntegerLayer, Lattice, integers_work
from engram.evaluation.precision import computing_in

WORTH_INTEGERS = 2**27
"""Multiplications from which on 8-bit numbers save more than preparing the weights costs."""


class HalfScorer(NamedTuple):
    """Computes a network's scores with less precision, and returns them in 32 bits.

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
    new function after every update. Where inputs are 8-bit numbers, all but the last layer are computed in
    8-bit integers, which is faster. All other networks are called within `torch.autocast`. Where the last
    part of a network is known to be a dense layer, it is computed in 32 bits: it costs little, and scores
    that are not rounded to 8 bits err much less.

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
    if steps is not None and fusing_works():
        if lattice is not None:
            return HalfScorer(_integers(steps, lattice), "integers")
        if bfloat16_works():
            return HalfScorer(_dense(steps), "rounded")
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
    if layers is None or len(layers) < 2 or not all(layer.rectified for layer in layers[:-1]):
        return False
    work = samples * sum(step.layer.weight.numel() for step in layers[:-1])
    inputs = max(step.layer.in_features for step in layers)
    return work >= WORTH_INTEGERS and inputs <= MOST_INPUTS and integers_work()


def _dense(steps: list[Dense]) -> Callable[[Tensor], Tensor]:
    """A chain of dense layers; the last is computed in 32 bits unless it is the only one."""
    hidden, last = (steps[:-1], steps[-1]) if len(steps) > 1 else (steps, None)
    converted = [(layer.weight.bfloat16(), _bfloat16(layer.bias), rectified) for layer, rectified in hidden]

    def scores(x: Tensor) -> Tensor:
        x = x.flatten(1).bfloat16()
        for weight, bias, rectified in converted:
            x = fused_linear(x, weight, bias, "relu" if rectified else "none")
        return x.float() if last is None else _computed(last, x.float())

    return scores


def _integers(steps: list[Dense], lattice: Lattice) -> Callable[[Tensor], Tensor]:
    """A chain of dense layers with ReLUs between them, all but the last in 8-bit integers."""
    first, *rest = (IntegerLayer(step.layer) for step in steps[:-1])
    given = first.given(lattice)

    def scores(values: Tensor) -> Tensor:
        x = given(values).relu_()
        for layer in rest:
            x = layer.of_positive(x).relu_()
        return _computed(steps[-1], x)

    return scores


def _computed(step: Dense, x: Tensor) -> Tensor:
    """A dense layer in 32 bits."""
    return fused_linear(x, step.layer.weight, step.layer.bias, "relu" if step.rectified else "none")


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
