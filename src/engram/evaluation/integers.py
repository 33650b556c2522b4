"""Inputs that are 8-bit numbers, such as the pixels of images, and dense layers computed with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

Form: TypeAlias = Literal["plain", "rounded", "integers"]
"""How inputs are given: as they are; flat and rounded to bfloat16; or flat and as 8-bit numbers."""
LEVELS = 256
MOST_INPUTS = 2**16
"""Inputs of a layer, at most: sums of more products might not fit in 32 bits."""
LOOKED_AT = 2**14
"""Values among which the distance of neighbours is looked for."""
TOLERANCE = 1e-3
"""How far from a level a value may be, in steps: normalising images leaves errors of a hundredth of this."""
PIECE = 2**20
"""Values that are converted at once: few enough to stay in the cache."""
TINY = torch.finfo(torch.float32).tiny


class Lattice(NamedTuple):
    """Evenly spaced levels, at most 256, that stand for 8-bit numbers.

    Attributes:
        lowest: The level of -128.
        step: The distance of two levels.
    """

    lowest: float
    step: float


class Integers(NamedTuple):
    """Inputs as 8-bit numbers, one row per sample."""

    values: Tensor
    lattice: Lattice


def as_integers(x: Tensor) -> Integers | None:
    """Inputs as 8-bit numbers; None if they are anything else than such numbers, scaled and shifted.

    Nothing is rounded: an image with 8 bits per pixel that was normalised with one mean and one standard
    deviation is still one with 8 bits per pixel.

    Example:
        >>> pixels = torch.tensor([[0.0, 3.0, 4.0], [255.0, 17.0, 4.0]])
        >>> as_integers((pixels / 255 - 0.3) / 0.4).values
        tensor([[-128, -125, -124],
                [ 127, -111, -124]], dtype=torch.int8)
        >>> as_integers(torch.randn(2, 3)) is None
        True
    """
    if x.dtype is not torch.float32 or not x.is_cpu or not x.numel():
        return None
    flat = x.flatten(1)
    lowest, highest = (float(value) for value in flat.aminmax())
    lattice = _lattice(flat.reshape(-1)[:LOOKED_AT].unique(), lowest, highest)
    if lattice is None:
        return None
    values = torch.empty(flat.shape, dtype=torch.int8)
    rows = max(1, PIECE // flat.shape[1])
    for part, into in zip(flat.split(rows), values.split(rows), strict=True):
        exact = (part - lattice.lowest).div_(lattice.step)
        whole = exact.round()
        if not float(exact.sub_(whole).abs_().amax()) < TOLERANCE:
            return None
        into.copy_(whole.sub_(LEVELS // 2))
    return Integers(values, lattice)


def _lattice(some: Tensor, lowest: float, highest: float) -> Lattice | None:
    """The levels on which all values between two may lie; None if there would be too many of them.

    Args:
        some: Some of the values, ascending.
        lowest: The lowest of all.
        highest: The highest of all.
    """
    if not 1 < len(some) <= LEVELS or not math.isfinite(highest - lowest):
        return None
    steps = round((highest - lowest) / float(some.diff().amin()))
    return Lattice(lowest, (highest - lowest) / steps) if steps < LEVELS else None


class IntegerLayer:
    """A dense layer that multiplies 8-bit numbers: weights are rounded to as many bits, for each unit.

    Args:
        layer: The layer, in 32 bits. Its weights are copied: make a new one after every update.

    Example:
        >>> x = torch.randint(256, (100, 50)) / 255
        >>> layer, (values, lattice) = nn.Linear(50, 20), as_integers(x)
        >>> with torch.no_grad():
        ...     torch.allclose(IntegerLayer(layer).given(lattice)(values), layer(x), atol=0.01)
        True
    """

    def __init__(self, layer: nn.Linear) -> None:
        weight = layer.weight.detach()
        # Units without a weight have nothing to divide.
        self.scale = weight.abs().amax(dim=1).div_(LEVELS // 2 - 1).clamp_(min=TINY)
        rounded = (weight / self.scale[:, None]).round_()
        self.columns = rounded.to(torch.int8).t()
        # The lowest number, -128, is to count 0.
        self.shift = LEVELS // 2 * rounded.sum(dim=1)
        self.layer = layer

    def given(self, lattice: Lattice) -> Callable[[Tensor], Tensor]:
        """The function of inputs that are 8-bit numbers already.

        Args:
            lattice: What the numbers stand for.
        """
        scale = self.scale * lattice.step
        constant = lattice.lowest * self.layer.weight.detach().sum(dim=1)
        constant += self.shift * scale
        if self.layer.bias is not None:
            constant += self.layer.bias.detach()

        def outputs(values: Tensor) -> Tensor:
            products = self._products(values)
            return torch.addcmul(constant, products, scale, out=products)

        return outputs

    def of_positive(self, x: Tensor) -> Tensor:
        """The outputs for inputs that are not negative, such as those after a ReLU; `x` is overwritten.

        The inputs of each sample are rounded to 256 levels between 0 and the highest of them.
        """
        step = x.amax(dim=1, keepdim=True).div_(LEVELS - 1).clamp_(min=TINY)
        lowest = x.new_full((x.shape[1],), -LEVELS // 2)
        values = torch.addcmul(lowest, x, step.reciprocal(), out=x).round_().to(torch.int8)
        outputs = self._products(values)
        torch.addcmul(self.shift * self.scale, outputs, self.scale, out=outputs)
        if self.layer.bias is None:
            return outputs.mul_(step)
        return torch.addcmul(self.layer.bias.detach(), outputs, step, out=outputs)

    def _products(self, values: Tensor) -> Tensor:
        products = torch._int_mm(values, self.columns)
        # Converted where they are: two copies of many samples do not fit in the cache.
        return products.view(torch.float32).copy_(products)


@cache
def integers_work() -> bool:
    """Whether this processor multiplies 8-bit numbers fast, and PyTorch does so correctly.

    Example:
        >>> integers_work() in (True, False)
        True
    """
    values = (torch.arange(64 * 64) % LEVELS - LEVELS // 2).reshape(64, 64).to(torch.int8)
    try:
        if not torch.cpu._is_vnni_supported():
            return False
        return torch.equal(torch._int_mm(values, values.t()), values.int() @ values.int().t())
    except (AttributeError, RuntimeError):
        return False
