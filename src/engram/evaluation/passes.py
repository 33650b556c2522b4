"""All samples asked in half precision, and some of them in full precision: their margins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from engram.evaluation.dense import Dense, dense_layers, scorer
from engram.evaluation.doubt import Margins, margins_of
from engram.evaluation.half import half_scorer, worth_integers
from engram.evaluation.integers import Lattice
from engram.evaluation.judge import Judge, Sought
from engram.evaluation.samples import Questions, chunks

CHUNK_BYTES = 2**23
CHUNK_BYTES_CONVOLVED = 2**20
"""Smaller, because the activations of convolutions are much larger than their inputs and should stay in the
cache."""


@dataclass(frozen=True)
class Passes:
    """The ways in which one evaluation asks a network.

    Attributes:
        network: In evaluation mode.
        questions: The samples.
        judge: Judges classes.
        sought: For each task of the questions, the units that compete.
        answering: The context in which the network is called.

    Example:
        >>> from contextlib import nullcontext
        >>> from engram.evaluation.samples import TensorSet
        >>> x, y = torch.randn(100, 8), torch.arange(100) % 3
        >>> questions = Questions([TensorSet(x, y)], [torch.arange(100)], [0], device="cpu", hold=True)
        >>> network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> passes = Passes(network, questions, Judge([y]), [None], nullcontext)
        >>> with torch.no_grad():
        ...     half, (full, right) = passes.half(), passes.full(torch.arange(100))
        >>> torch.allclose(half.margin, full, atol=0.1), torch.equal(right, network(x).argmax(1) == y)
        (True, True)
    """

    network: nn.Module
    questions: Questions
    judge: Judge
    sought: Sought
    answering: Callable[[], AbstractContextManager[object]]

    def half(self, *, integers: bool = True) -> Margins:
        """The margins of all samples in half precision.

        Args:
            integers: Whether inputs may be given as 8-bit numbers, where that is faster.
        """
        questions = self.questions
        margin, scale = torch.empty(questions.total), torch.empty(questions.total)
        ask = half_scorer(self.network, self.dense, self.lattice if integers else None)
        # Inputs take half the space, or less.
        for part in chunks(questions.total, 2 * self.rows_at_once):
            x, y = questions.read_as(ask.form, part)
            scores = self._scores(ask.scores, x)
            for place, rows in questions.spans(part, self.sought):
                found = margins_of(scores[rows], y[rows], self.sought[place])
                margin[part][rows], scale[part][rows] = found.margin.cpu(), found.scale.cpu()
        return Margins(margin, scale)

    def full(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """In full precision, the margins of some samples, and which of them are answered correctly."""
        margin, right = torch.empty(len(index)), torch.empty(len(index), dtype=torch.bool)
        for part in chunks(len(index), self.rows_at_once):
            x, y = self.questions.pick(index[part])
            scores = self._scores(self.scorer, x)
            for place, rows in self._groups(index[part]):
                units = self.sought[place]
                margin[part][rows] = margins_of(scores[rows], y[rows], units).margin.cpu()
                right[part][rows] = self.judge.right(scores[rows], y[rows], units).cpu()
        return margin, right

    @cached_property
    def scorer(self) -> Callable[[Tensor], Tensor]:
        """Computes the network's scores in full precision."""
        return scorer(self.network, self.dense)

    @cached_property
    def dense(self) -> list[Dense] | None:
        """The layers of a network of dense layers only; None for any other, and where hooks are to be run."""
        return dense_layers(self.network)

    @cached_property
    def lattice(self) -> Lattice | None:
        """What the inputs stand for, if giving them as 8-bit numbers makes half precision faster."""
        return self.questions.lattice if worth_integers(self.dense, self.questions.total) else None

    @cached_property
    def rows_at_once(self) -> int:
        """How many samples are asked in full precision at once; twice as many are in half precision."""
        convolved = self.dense is None and any(
            isinstance(module, nn.Conv2d) for module in self.network.modules()
        )
        return self.questions.rows_in(CHUNK_BYTES_CONVOLVED if convolved else CHUNK_BYTES)

    def _scores(self, ask: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        with self.answering():
            outputs = ask(x)
        scores = self.judge.scores(outputs, samples=len(x), tasks=self.questions.tasks, sought=self.sought)
        return scores.float()

    def _groups(self, index: Tensor) -> Iterator[tuple[int, slice | Tensor]]:
        """Some samples by the units that compete for them, as `Questions.spans`."""
        group = self._group
        if group is None:
            yield 0, slice(0, len(index))
            return
        mine = group[index]
        for place in mine.unique().tolist():
            yield place, torch.nonzero(mine == place).squeeze(1)

    @cached_property
    def _group(self) -> Tensor | None:
        """For each sample, the first task with the same units; None where all compete for all."""
        if len(set(self.sought)) == 1:
            return None
        group = torch.empty(self.questions.total, dtype=torch.int64)
        for place, rows in self.questions.spans(slice(0, self.questions.total), self.sought):
            group[rows] = place
        return group
