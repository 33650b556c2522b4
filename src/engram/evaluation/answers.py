"""What a network answers to some test sets, sample by sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from engram.core.errors import InputError
from engram.evaluation.evaluator import Evaluator


def answers_of(network: object, data: Mapping[str, object]) -> dict[str, Sequence[object]]:
    """Which samples a network classifies correctly, as the columns of a table of predictions.

    The network is evaluated as `Evaluator` does it, without being changed.

    Args:
        network: From inputs to the scores of all classes.
        data: Test sets by name, each in any form that `Evaluator` takes.

    Returns:
        The columns `id` (the name of the test set and the sample's place in it), `correct`, `label` and
        `data`, the name of the test set.

    Example:
        >>> import torch
        >>> columns = answers_of(nn.Identity(), {"digits": (torch.eye(2), torch.tensor([0, 0]))})
        >>> columns["id"], columns["correct"]
        (['digits:0', 'digits:1'], [True, False])
    """
    if not isinstance(network, nn.Module):
        raise InputError(f"test sets are answered by a network, got {type(network).__name__}")
    if not data:
        raise InputError("there is nothing to answer: give test sets by name, as in {'dogs': (x, y)}")
    watch = Evaluator(list(data.values()), tasks="all")
    watch.before(network)
    columns: dict[str, list[object]] = {"id": [], "correct": [], "label": [], "data": []}
    for row, (name, labels) in enumerate(zip(data, watch.labels, strict=True)):
        right = watch.trace.right(row).tolist()
        columns["id"] += [f"{name}:{place}" for place in range(len(right))]
        columns["correct"] += right
        columns["label"] += [None] * len(right) if labels is None else labels.tolist()
        columns["data"] += [name] * len(right)
    return dict(columns)
