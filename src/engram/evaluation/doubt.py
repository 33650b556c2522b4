"""Which answers in half precision are sure, and which must be asked again in full precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from engram.models.heads import Units, places_among, scores_of

PROBES = 16
"""Samples that are asked in both precisions in every evaluation, drawn at random, at least."""
FACTOR = 4.0
"""How many times the largest error seen a margin must have to be sure; see docs/decisions/024."""
FLOOR = 0.5
"""Scores that are smaller than this share of the mean are measured by the mean: errors do not shrink with
scores that cancel each other."""
BLOCK = 32
"""Samples are asked again in multiples of this many: oneDNN compiles its products anew for every number of
samples, which takes as long as the products, and a few alone may be summed in another order than among many.
"""
MOST = 0.25
"""The share of samples from which on asking again is not worth it."""

AskAgain = Callable[[Tensor], tuple[Tensor, Tensor]]
"""In full precision, the margins of some samples, and which of them are answered correctly."""


class Margins(NamedTuple):
    """How clearly the answers to some samples are right or wrong.

    Attributes:
        margin: The score of the true class minus the best other, among the units that compete.
        scale: The largest score of these units, without its sign.
    """

    margin: Tensor
    scale: Tensor


def margins_of(scores: Tensor, y: Tensor, units: Units | None = None) -> Margins:
    """The margins of some samples; a label that is not among the units is surely not answered.

    Example:
        >>> margins_of(torch.tensor([[3.0, 1.0, -4.0]]), torch.tensor([1]))
        Margins(margin=tensor([-2.]), scale=tensor([4.]))
        >>> bool(margins_of(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]), (1, 2)).margin < -1e38)
        True
    """
    among = scores_of(scores, units)
    width = among.shape[1]
    known = None
    if units is not None and width < scores.shape[1]:
        known = torch.isin(y, torch.tensor(units, device=y.device))
        y = places_among(y, units, scores.shape[1]).clamp(0, width - 1)
    place = y[:, None]
    other = among.scatter(1, place, -math.inf).amax(dim=1)
    margin = among.gather(1, place).squeeze(1) - other
    if known is not None:
        margin = margin.where(known, torch.finfo(margin.dtype).min)
    return Margins(margin, among.abs().amax(dim=1))


class Settled(NamedTuple):
    """The answers to all samples, settled.

    Attributes:
        right: Which are right; None where too many were in doubt, and all are to be asked in full precision.
        asked: Which were asked again.
        error: The largest error of a margin among these, relative to the scale.
    """

    right: Tensor | None
    asked: Tensor
    error: float


def settle(half: Margins, ask: AskAgain, *, known_error: float, factor: float, seed: int) -> Settled:
    """Decide which answers are right, asking again for those that half precision leaves in doubt.

    Some samples, drawn at random, are asked in both precisions: at least `PROBES`, and as many as make up
    whole blocks. An answer is in doubt if its margin is at most `factor` times the largest error of a margin
    seen so far, both relative to the scale. Answers in doubt are asked again; if the errors among them are
    larger, so is the doubt, and more are asked.

    Args:
        half: The margins of all samples in half precision.
        ask: Asks samples, by number, in full precision.
        known_error: The largest error in the last evaluations.
        factor: How many times that error a margin must have to be sure.
        seed: For drawing samples.

    Example:
        >>> full = torch.linspace(-1, 1, 1000)
        >>> half = Margins(full + 0.001 * torch.sin(1e5 * full), torch.ones(1000))
        >>> ask = lambda rows: (full[rows], full[rows] > 0)
        >>> settled = settle(half, ask, known_error=0.0, factor=2.0, seed=0)
        >>> torch.equal(settled.right, full > 0), int(settled.asked.sum()) < 80, 5e-4 < settled.error <= 1e-3
        (True, True, True)
    """
    margin, mean = half.margin, float(half.scale.mean())
    finite = None
    if not math.isfinite(mean):
        finite = half.scale.isfinite()
        mean = float(half.scale[finite].mean().nan_to_num())
    scale = half.scale.clamp(min=FLOOR * mean)
    # Not a number where scores are not finite: never sure.
    clear = margin.abs() / scale
    right, asked = margin > 0, torch.zeros(len(margin), dtype=torch.bool)
    draw = torch.Generator().manual_seed(seed)
    error, extra = 0.0, PROBES
    # Without a known error, nothing can be said before the first are asked.
    doubtful, applied = (~(clear > factor * known_error), known_error) if known_error > 0 else (asked, -1.0)
    rows = torch.nonzero(doubtful).squeeze(1)
    while len(rows) or extra:
        if int(asked.sum()) + len(rows) > max(MOST * len(margin), BLOCK):
            return Settled(None, asked, error)
        fill = in_blocks(len(rows) + extra) - len(rows)
        # Together: asking once is cheaper than asking twice.
        index = torch.cat([rows, torch.randint(len(margin), (fill,), generator=draw)])
        full, right[index] = ask(index)
        asked[index] = True
        errors = (full - margin[index]).abs() / scale[index]
        error, extra = max(error, _largest(errors if finite is None else errors[finite[index]])), 0
        if error <= applied:
            break
        applied = error
        rows = torch.nonzero(~(clear > factor * applied) & ~asked).squeeze(1)
    return Settled(right, asked, error)


def in_blocks(samples: int) -> int:
    """How many samples are asked at once where so many are wanted: few different numbers, at most 1/8 more.

    Example:
        >>> [in_blocks(samples) for samples in (1, 32, 33, 300, 600, 5000)]
        [32, 32, 64, 320, 640, 5120]
    """
    step = max(BLOCK, 1 << max(0, samples.bit_length() - 4))
    return -(-samples // step) * step


def _largest(errors: Tensor) -> float:
    """The largest error; infinite where one is not a number, 0 where there is none."""
    if not len(errors):
        return 0.0
    largest = float(errors.max())
    return largest if math.isfinite(largest) else math.inf
