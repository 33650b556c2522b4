"""Evaluation batch by batch: what is measured of each sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from engram.evaluation.asking import Routes, bools_of, call, numbers_of
from engram.evaluation.batch_sets import BatchQuestions
from engram.evaluation.batches import Batch, label_tensor
from engram.evaluation.dense import scorer
from engram.evaluation.judge import Judge, Sought
from engram.evaluation.passes import Passes
from engram.evaluation.ranks import Team
from engram.evaluation.samples import chunks, class_numbers
from engram.evaluation.ways import Ways
from engram.metrics.arrays import Label

Answering: TypeAlias = Callable[[], AbstractContextManager[object]]
"""Makes the context in which a network is called."""


class Evaluation(NamedTuple):
    """One evaluation, as `on_evaluate` is told of it.

    Attributes:
        step: Updates done.
        learning: The task being learned: its name, or its number where tasks have no names.
        accuracies: The accuracy of each task that was evaluated; empty where only scores are recorded.
        scores: The mean score of each task; empty without `score`.
    """

    step: int
    learning: Label
    accuracies: dict[Label, float]
    scores: dict[Label, float]


class Wanted(NamedTuple):
    """What is measured of classified samples besides which are right: losses, and the classes answered."""

    losses: bool = False
    answers: bool = False


class Measured(NamedTuple):
    """What was measured of each sample; None for what was not asked for."""

    right: Tensor | None
    scores: Tensor | None = None
    losses: Tensor | None = None
    answers: Tensor | None = None

    @classmethod
    def empty(cls, total: int, *, right: bool, scores: bool, wanted: Wanted) -> Measured:
        """Zeros, one per sample."""
        return cls(
            torch.zeros(total, dtype=torch.bool) if right else None,
            torch.zeros(total) if scores else None,
            torch.zeros(total) if wanted.losses else None,
            torch.zeros(total, dtype=torch.int64) if wanted.answers else None,
        )

    def combined(self, team: Team, device: torch.device) -> Measured:
        """What all processes measured, each its share."""
        return Measured(*(None if part is None else team.combine(part, device) for part in self))

    def arranged(self, in_order: Callable[[Tensor], Tensor]) -> Measured:
        """The same in another order of samples."""
        return Measured(*(None if part is None else in_order(part) for part in self))

    def part(self, start: int, stop: int) -> Measured:
        """What was measured of some samples."""
        return Measured(*(None if part is None else part[start:stop] for part in self))


def ask_at_once(passes: Passes, *, wanted: Wanted, team: Team) -> Measured:
    """Classify all samples in one pass, in pieces of some megabytes.

    Args:
        passes: The network and the samples.
        wanted: What else to measure.
        team: Which pieces this process evaluates; what is measured of the others is 0.
    """
    questions, judge, sought = passes.questions, passes.judge, passes.sought
    measured = Measured.empty(questions.total, right=True, scores=False, wanted=wanted)
    right, _, losses, answers = measured
    assert right is not None
    for number, part in enumerate(chunks(questions.total, passes.rows_at_once)):
        if not team.mine(number):
            continue
        x, y = questions.read(part)
        with passes.answering():
            logits = _scores(passes, x, part)
        for place, rows in questions.spans(part, sought):
            right[part][rows] = judge.right(logits[rows], y[rows], sought[place]).cpu()
            if answers is not None:
                answers[part][rows] = judge.answers(logits[rows], sought[place]).cpu()
            if losses is not None:
                losses[part][rows] = judge.loss(logits[rows], y[rows], sought[place]).float().cpu()
    return measured


def _scores(passes: Passes, x: Tensor, part: slice) -> Tensor:
    """The scores of all units; a network with a `route` for every task is evaluated task by task."""
    network, judge, sought = passes.network, passes.judge, passes.sought
    tasks = passes.questions.tasks
    if not isinstance(network, Routes):
        return judge.scores(passes.scorer(x), samples=len(x), tasks=tasks, sought=sought)
    pieces = []
    for place, rows in passes.questions.spans(part, tasks):
        here = x[rows]
        outputs = scorer(network.route(tasks[place]))(here)
        asked = [tasks[place]]
        pieces.append((rows, judge.scores(outputs, samples=len(here), tasks=asked, sought=[sought[place]])))
    scores = pieces[0][1].new_empty((len(x), *pieces[0][1].shape[1:]))
    for rows, answers in pieces:
        scores[rows] = answers
    return scores


def ask_in_batches(
    network: nn.Module,
    questions: BatchQuestions,
    *,
    ways: Ways,
    judge: Judge | None,
    sought: Sought,
    wanted: Wanted,
    names: Sequence[str],
    answering: Answering,
    team: Team,
) -> Measured:
    """Ask a network about some batches, and judge its answers.

    Args:
        network: In evaluation mode.
        questions: The batches.
        ways: How it is asked and judged.
        judge: Judges classes; needed where `ways` has no functions of its own.
        sought: For each task of the questions, the units that compete.
        wanted: What else to measure of classes.
        names: The names of all tasks, for messages.
        answering: The context in which the network is called.
        team: Which batches this process evaluates; what is measured of the others is 0.
    """
    measured = Measured.empty(
        questions.total, right=ways.answered, scores=ways.score is not None, wanted=wanted
    )
    right, scores, losses, answers = measured
    for number, (place, part) in enumerate(questions.parts):
        if not team.mine(number):
            continue
        batch, samples = questions.read(number), part.stop - part.start
        task = questions.tasks[place]
        asked = network.route(task) if isinstance(network, Routes) else network
        with answering():
            outputs = call(asked, batch) if ways.forward is None else ways.forward(asked, batch)
        if ways.right is not None and right is not None:
            right[part] = bools_of(ways.right(outputs, batch), samples=samples, task=names[task])
        elif right is not None:
            assert judge is not None
            units = sought[place]
            logits = judge.scores(outputs, samples=samples, tasks=[task], sought=[units])
            y = _classes(batch).to(logits.device)
            right[part] = judge.right(logits, y, units).cpu()
            if losses is not None:
                losses[part] = judge.loss(logits, y, units).float().cpu()
            if answers is not None:
                answers[part] = judge.answers(logits, units).cpu()
        if ways.score is not None and scores is not None:
            scores[part] = numbers_of(ways.score(outputs, batch), samples=samples, task=names[task])
    return measured


def _classes(batch: Batch) -> Tensor:
    return class_numbers(label_tensor(batch))
