"""Ready scores: functions for `Evaluator(score=…)`, one number per sample.

    Evaluator(test_sets, score=engram.score.perplexity(shift=True))

Each knows whether a higher score is better, so that `higher_is_better` need not be said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engram.core.errors import InputError
from engram.evaluation.asking import scores_in
from engram.evaluation.batches import Batch, label_tensor
from engram.evaluation.right import token_hits, token_scores
from engram.evaluation.samples import class_numbers

__all__ = ["ReadyScore", "absolute_error", "cross_entropy", "perplexity", "token_accuracy"]


@dataclass(frozen=True, slots=True)
class ReadyScore:
    """A score and its direction.

    Attributes:
        function: From outputs and a batch to one number per sample.
        higher_is_better: Whether a higher score is better.
    """

    function: Callable[[object, Batch], Tensor]
    higher_is_better: bool

    def __call__(self, outputs: object, batch: Batch) -> Tensor:
        """The score of each sample."""
        return self.function(outputs, batch)


def cross_entropy(*, ignore: int = -100, shift: bool = False) -> ReadyScore:
    """The cross-entropy of the right class, or its mean over the tokens of a sequence; lower is better.

    Args:
        ignore: The label of tokens that do not count.
        shift: Whether the scores at a place predict the next token, as in causal language models.

    Example:
        >>> cross_entropy()(torch.zeros(2, 4), (None, torch.tensor([0, 3])))
        tensor([1.3863, 1.3863])
    """

    def score(outputs: object, batch: Batch) -> Tensor:
        scores = scores_in(outputs)
        if scores.ndim == 2:
            y = class_numbers(label_tensor(batch)).to(scores.device)
            return functional.cross_entropy(scores.float(), y, reduction="none")
        return _token_losses(outputs, batch, ignore=ignore, shift=shift)

    return ReadyScore(score, higher_is_better=False)


def perplexity(*, ignore: int = -100, shift: bool = False) -> ReadyScore:
    """The perplexity of each sequence: e to the mean cross-entropy of its tokens; lower is better.

    Args:
        ignore: The label of tokens that do not count.
        shift: Whether the scores at a place predict the next token, as in causal language models.

    Example:
        >>> perplexity()(torch.zeros(1, 3, 4), (None, torch.tensor([[0, 3, -100]])))
        tensor([4.])
    """

    def score(outputs: object, batch: Batch) -> Tensor:
        return _token_losses(outputs, batch, ignore=ignore, shift=shift).exp()

    return ReadyScore(score, higher_is_better=False)


def token_accuracy(*, ignore: int = -100, shift: bool = False) -> ReadyScore:
    """The share of the tokens of each sequence that have the highest score; higher is better.

    Args:
        ignore: The label of tokens that do not count.
        shift: Whether the scores at a place predict the next token, as in causal language models.

    Example:
        >>> scores = functional.one_hot(torch.tensor([[1, 2, 0]]), 3).float()
        >>> token_accuracy()(scores, (None, torch.tensor([[1, 1, -100]])))
        tensor([0.5000])
    """

    def score(outputs: object, batch: Batch) -> Tensor:
        hits, counted = token_hits(outputs, batch, ignore=ignore, shift=shift)
        return hits / _some(counted)

    return ReadyScore(score, higher_is_better=True)


def absolute_error() -> ReadyScore:
    """The absolute difference of prediction and label, or its mean over several numbers; lower is better.

    Example:
        >>> absolute_error()(torch.tensor([[1.5], [2.0]]), (None, torch.tensor([1.0, 2.0])))
        tensor([0.5000, 0.0000])
    """

    def score(outputs: object, batch: Batch) -> Tensor:
        predicted = scores_in(outputs).float()
        labels = label_tensor(batch).to(predicted)
        if predicted.numel() != labels.numel() or len(predicted) != len(labels):
            raise InputError(
                "predictions and labels must be as many numbers, "
                f"got shapes {list(predicted.shape)} and {list(labels.shape)}"
            )
        return (
            (predicted.flatten(1) if predicted.ndim > 1 else predicted[:, None])
            .sub(labels.reshape(len(labels), -1))
            .abs()
            .mean(dim=1)
        )

    return ReadyScore(score, higher_is_better=False)


def _token_losses(outputs: object, batch: Batch, *, ignore: int, shift: bool) -> Tensor:
    """The mean cross-entropy of the tokens of each sequence."""
    scores, labels = token_scores(outputs, batch, shift=shift)
    losses = functional.cross_entropy(
        scores.float().transpose(1, 2), labels, ignore_index=ignore, reduction="none"
    )
    return losses.sum(dim=1) / _some((labels != ignore).sum(dim=1))


def _some(counted: Tensor) -> Tensor:
    if not bool((counted > 0).all()):
        place = int(torch.nonzero(counted == 0)[0])
        raise InputError(f"sequence {place} of a batch has no token that counts: leave it out")
    return counted
