"""Evaluation batch by batch: what is measured of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from engram.evaluation.asking import Routes, bools_of, call, numbers_of
from engram.evaluation.batch_sets import BatchQuestions
from engram.evaluation.batches import Batch, label_tensor
from engram.evaluation.judge import Judge, Sought
from engram.evaluation.ranks import Team
from engram.evaluation.samples import class_numbers
from engram.evaluation.ways import Ways


class Measured(NamedTuple):
    """What was measured of each sample, in the order of tasks; None for what was not asked for."""

    right: Tensor | None
    scores: Tensor | None = None
    losses: Tensor | None = None

    def combined(self, team: Team, device: torch.device) -> Measured:
        """What all processes measured, each its share."""
        return Measured(*(None if part is None else team.combine(part, device) for part in self))


def ask_in_batches(
    network: nn.Module,
    questions: BatchQuestions,
    *,
    ways: Ways,
    judge: Judge | None,
    sought: Sought,
    losses: bool,
    names: Sequence[str],
    team: Team,
) -> Measured:
    """Ask a network about some batches, and judge its answers.

    Args:
        network: In evaluation mode.
        questions: The batches.
        ways: How it is asked and judged.
        judge: Judges classes; needed where `ways` has no functions of its own.
        sought: For each task of the questions, the units that compete.
        losses: Whether to measure the loss of classes.
        names: The names of all tasks, for messages.
        team: Which batches this process evaluates; what is measured of the others is 0.
    """
    right = torch.zeros(questions.total, dtype=torch.bool) if ways.answered else None
    scores = torch.zeros(questions.total) if ways.score is not None else None
    cost = torch.zeros(questions.total) if losses else None
    for number, (place, part) in enumerate(questions.parts):
        if not team.mine(number):
            continue
        batch, samples = questions.read(number), part.stop - part.start
        task = questions.tasks[place]
        asked = network.route(task) if isinstance(network, Routes) else network
        outputs = call(asked, batch) if ways.forward is None else ways.forward(asked, batch)
        if ways.right is not None and right is not None:
            right[part] = bools_of(ways.right(outputs, batch), samples=samples, task=names[task])
        elif right is not None:
            assert judge is not None
            units = sought[place]
            logits = judge.scores(outputs, samples=samples, tasks=[task], sought=[units])
            y = _classes(batch).to(logits.device)
            right[part] = judge.right(logits, y, units).cpu()
            if cost is not None:
                cost[part] = judge.loss(logits, y, units).cpu().float()
        if ways.score is not None and scores is not None:
            scores[part] = numbers_of(ways.score(outputs, batch), samples=samples, task=names[task])
    return Measured(right, scores, cost)


def _classes(batch: Batch) -> Tensor:
    return class_numbers(label_tensor(batch))
