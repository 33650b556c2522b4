"""Ready answers to "what counts as right": functions for `Evaluator(right=…)`.

    Evaluator(test_sets, right=engram.right.top_k(5))

Each returns a function of a network's outputs and a batch, which says of every sample whether it is right.
The outputs are a tensor, or have it as `logits` or as their first entry; the labels are `labels` or `label`
of a mapping, or the last entry of a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from engram.core.errors import InputError
from engram.evaluation.accuracy import answered_right
from engram.evaluation.asking import Right, scores_in
from engram.evaluation.batches import Batch, label_tensor, required_labels
from engram.evaluation.samples import class_numbers

Decode: TypeAlias = Callable[[object], Sequence[str]]

__all__ = ["arg_max", "exact_match", "iou", "mask_iou", "multi_label", "tokens", "top_k", "within"]


def arg_max() -> Right:
    """Right is the class with the highest score. With a single output, a value above 0 means class 1.

    This is the default; say it where scores are recorded beside it.

    Example:
        >>> arg_max()(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), (None, torch.tensor([1, 1])))
        tensor([ True, False])
    """
    return top_k(1)


def top_k(k: int) -> Right:
    """Right is a sample whose class is among the k highest scores; a NaN score is never right.

    Args:
        k: How many classes are looked at.

    Example:
        >>> scores = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
        >>> top_k(2)(scores, (None, torch.tensor([1, 2])))
        tensor([ True, False])
    """
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")

    def right(outputs: object, batch: Batch) -> Tensor:
        scores = scores_in(outputs)
        y = class_numbers(label_tensor(batch)).to(scores.device)
        if scores.shape in ((len(y),), (len(y), 1)):
            scores = torch.stack([torch.zeros_like(scores.flatten()), scores.flatten()], dim=1)
        _check_shape(scores, (len(y), -1), "one row of scores per sample")
        if k == 1:
            return answered_right(scores, y)
        highest = scores.topk(min(k, scores.shape[1]), dim=1)
        return ((highest.indices == y[:, None]) & ~highest.values.isnan()).any(dim=1)

    return right


def multi_label(threshold: float = 0.0) -> Right:
    """Right is a sample of which every label is predicted and no other: an exact match.

    Labels are 0 or 1 per sample and class, and a class is predicted where its score is above the threshold.

    Args:
        threshold: The threshold: 0 for logits, .5 for probabilities.

    Example:
        >>> scores = torch.tensor([[2.0, -1.0, 1.0], [2.0, 1.0, 1.0]])
        >>> multi_label()(scores, (None, torch.tensor([[1, 0, 1], [1, 0, 1]])))
        tensor([ True, False])
    """

    def right(outputs: object, batch: Batch) -> Tensor:
        scores, labels = _alike(outputs, batch)
        if not bool(((labels == 0) | (labels == 1)).all()):
            raise InputError("labels must be 0 or 1 for each class of a sample")
        return ((scores > threshold) == labels.bool()).flatten(1).all(dim=1)

    return right


def within(tolerance: float, *, relative: bool = False) -> Right:
    """Right is a prediction that is at most `tolerance` from its label, in each of its numbers.

    Args:
        tolerance: The largest allowed difference.
        relative: Whether it is a share of the label's magnitude.

    Example:
        >>> within(0.5)(torch.tensor([[1.4], [3.0]]), (None, torch.tensor([1.0, 2.0])))
        tensor([ True, False])
    """
    if not tolerance >= 0:
        raise InputError(f"tolerance must be at least 0, got {tolerance}")

    def right(outputs: object, batch: Batch) -> Tensor:
        predicted, labels = _alike(outputs, batch)
        predicted, labels = predicted.double().flatten(1), labels.double().flatten(1)
        allowed = tolerance * labels.abs() if relative else torch.full_like(labels, tolerance)
        return ((predicted - labels).abs() <= allowed).all(dim=1)

    return right


def iou(threshold: float = 0.5) -> Right:
    """Right is a box whose intersection with the true box, divided by their union, is at least `threshold`.

    Outputs and labels are one box per sample: left, top, right and bottom.

    Args:
        threshold: The least intersection over union.

    Example:
        >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0]])
        >>> iou(0.5)(boxes, (None, torch.tensor([[0.0, 0.0, 2.0, 1.0], [1.0, 1.0, 3.0, 3.0]])))
        tensor([ True, False])
    """
    _check_share(threshold, "threshold")

    def right(outputs: object, batch: Batch) -> Tensor:
        boxes, true = _alike(outputs, batch)
        _check_shape(boxes, (len(boxes), 4), "one box per sample: left, top, right, bottom")
        boxes, true = boxes.double(), true.double()
        sides = torch.minimum(boxes[:, 2:], true[:, 2:]) - torch.maximum(boxes[:, :2], true[:, :2])
        common = sides.clamp(min=0).prod(dim=1)
        areas = [(box[:, 2:] - box[:, :2]).clamp(min=0).prod(dim=1) for box in (boxes, true)]
        union = areas[0] + areas[1] - common
        return (common >= threshold * union) & (union > 0)

    return right


def mask_iou(threshold: float = 0.5, *, cut: float = 0.0) -> Right:
    """Right is a mask whose intersection with the true mask, divided by their union, is at least `threshold`.

    Two empty masks agree.

    Args:
        threshold: The least intersection over union.
        cut: Scores above it are part of a mask: 0 for logits, .5 for probabilities.

    Example:
        >>> scores = torch.tensor([[[1.0, 1.0], [-1.0, -1.0]]])
        >>> mask_iou(0.5)(scores, (None, torch.tensor([[[1, 0], [0, 0]]])))
        tensor([True])
    """
    _check_share(threshold, "threshold")

    def right(outputs: object, batch: Batch) -> Tensor:
        scores, labels = _alike(outputs, batch)
        mask, true = (scores > cut).flatten(1), (labels > 0).flatten(1)
        common, union = (mask & true).sum(dim=1), (mask | true).sum(dim=1)
        return common >= threshold * union

    return right


def tokens(share: float = 1.0, *, ignore: int = -100, shift: bool = False) -> Right:
    """Right is a sequence of which at least a share of the tokens is predicted by the highest score.

    A sequence in which all tokens are ignored is wrong.

    Args:
        share: The least share of tokens; 1 for all.
        ignore: The label of tokens that do not count.
        shift: Whether the scores at a place predict the next token, as in causal language models.

    Example:
        >>> scores = torch.nn.functional.one_hot(torch.tensor([[1, 2, 0]]), 3).float()
        >>> batch = None, torch.tensor([[1, 2, 2]])
        >>> tokens(0.6)(scores, batch), tokens()(scores, batch)
        (tensor([True]), tensor([False]))
    """
    _check_share(share, "share")

    def right(outputs: object, batch: Batch) -> Tensor:
        hits, counted = token_hits(outputs, batch, ignore=ignore, shift=shift)
        return (hits >= share * counted) & (counted > 0)

    return right


def exact_match(decode: Decode, *, strip: bool = True) -> Right:
    """Right is a generated text that equals the label.

    The network is made to generate by `forward`, as in
    `Evaluator(…, forward=lambda net, batch: net.generate(batch["input_ids"]), right=exact_match(decode))`.
    Labels are texts, or whatever `decode` decodes.

    Args:
        decode: From what the network returned to one text per sample, such as `tokenizer.batch_decode`.
        strip: Whether spaces around a text do not count.

    Example:
        >>> letters = lambda rows: ["".join("ab "[token] for token in row) for row in rows]
        >>> exact_match(letters)(torch.tensor([[0, 1], [1, 2]]), {"input_ids": None, "labels": ["ab", "a"]})
        [True, False]
    """

    def right(outputs: object, batch: Batch) -> list[bool]:
        labels = required_labels(batch)
        texts = list(decode(outputs))
        written = isinstance(labels, Sequence) and all(isinstance(label, str) for label in labels)
        expected = [str(label) for label in labels] if written and isinstance(labels, Sequence) else None
        if expected is None:
            expected = list(decode(labels))
        if len(texts) != len(expected):
            raise InputError(f"decode must return one text per sample, got {len(texts)} for {len(expected)}")
        if strip:
            texts, expected = [[text.strip() for text in some] for some in (texts, expected)]
        return [text == label for text, label in zip(texts, expected, strict=True)]

    return right


def token_hits(
    outputs: object, batch: Batch, *, ignore: int = -100, shift: bool = False
) -> tuple[Tensor, Tensor]:
    """For each sequence, how many of its tokens have the highest score, and how many count.

    Example:
        >>> scores = torch.nn.functional.one_hot(torch.tensor([[1, 2, 0]]), 3).float()
        >>> token_hits(scores, (None, torch.tensor([[1, 1, -100]])))
        (tensor([1]), tensor([2]))
    """
    scores, labels = token_scores(outputs, batch, shift=shift)
    counted = labels != ignore
    return ((scores.argmax(dim=-1) == labels) & counted).sum(dim=1), counted.sum(dim=1)


def token_scores(outputs: object, batch: Batch, *, shift: bool) -> tuple[Tensor, Tensor]:
    """The scores of all tokens at all places, and the tokens that are right there.

    Raises:
        InputError: They do not fit.

    Example:
        >>> token_scores(torch.zeros(2, 5, 9), (None, torch.zeros(2, 5)), shift=True)[0].shape
        torch.Size([2, 4, 9])
    """
    scores = scores_in(outputs)
    labels = label_tensor(batch).to(scores.device)
    if scores.ndim != 3 or labels.shape != scores.shape[:2]:
        raise InputError(
            "scores must have the shape [samples, places, tokens] and labels [samples, places], "
            f"got {list(scores.shape)} and {list(labels.shape)}"
        )
    return (scores[:, :-1], labels[:, 1:].long()) if shift else (scores, labels.long())


def _alike(outputs: object, batch: Batch) -> tuple[Tensor, Tensor]:
    """Scores and labels of one shape; a last axis of one entry is dropped."""
    scores = scores_in(outputs)
    labels = label_tensor(batch).to(scores.device)
    scores, labels = (part[:, None] if part.ndim == 1 else part for part in (scores, labels))
    if scores.shape != labels.shape and scores.numel() == labels.numel() and len(scores) == len(labels):
        # One channel, as in masks of the shape [samples, 1, height, width].
        scores, labels = scores.squeeze(1), labels.squeeze(1)
    if scores.shape != labels.shape:
        raise InputError(
            f"outputs and labels must have the same shape, got {list(scores.shape)} and {list(labels.shape)}"
        )
    return scores, labels


def _check_shape(scores: Tensor, shape: tuple[int, ...], what: str) -> None:
    fits = scores.ndim == len(shape) and all(
        n == -1 or n == m for n, m in zip(shape, scores.shape, strict=True)
    )
    if not fits:
        raise InputError(f"a network must return {what}, got shape {list(scores.shape)}")


def _check_share(value: float, name: str) -> None:
    if not 0 < value <= 1:
        raise InputError(f"{name} must be above 0 and at most 1, got {value}")
