"""The confusion matrix of a run at one moment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.metrics.predictions import Classes, confusion_matrix
from engram.record.samples import LABEL
from engram.record.tables import Tables


class Confusion(NamedTuple):
    """How often each class was answered for the samples of each class.

    Attributes:
        classes: The classes, in ascending order.
        counts: `counts[i, j]`: samples of class i that were answered as class j.
    """

    classes: Classes
    counts: NDArray[np.int64]


def confusion_of(tables: Tables, *, task: int | None = None, step: int | None = None) -> Confusion:
    """The confusion matrix at one moment; see `engram.metrics.predictions.confusion_matrix`.

    Args:
        tables: The tables of a run, with samples and answers.
        task: The task; None for all that were evaluated then.
        step: After how many updates; None for the last evaluation with answers.

    Raises:
        InputError: Answers or labels were not recorded.

    Example:
        >>> from engram.record.answers import Answers
        >>> from engram.record.samples import Samples, TaskSamples
        >>> answers = Answers()
        >>> answers.add(step=5, learning=0, task=0, answers=np.array([0, 1, 1]))
        >>> samples = Samples.of({0: TaskSamples(["a", "b", "c"], [0, 0, 1])})
        >>> confusion_of(Tables(samples=samples, answers=answers)).counts.tolist()
        [[1, 1], [0, 1]]
    """
    answers, samples = tables.answers, tables.samples
    if not len(answers):
        raise InputError("no answers were recorded: record them with answers=True, or `engram run --answers`")
    if samples is None:
        raise InputError("the labels of the samples were not recorded, or they were drawn again and again")
    moment = max(answers.step) if step is None else step
    at_moment = [t for t, at in zip(answers.task, answers.step, strict=True) if at == moment]
    tasks = list(dict.fromkeys(at_moment)) if task is None else [task]
    labels = [samples.of_task(number)[LABEL] for number in tasks]
    if any(column.null_count() or not len(column) for column in labels):
        raise InputError("a confusion matrix needs the label of every sample, and some are unknown")
    answered = [answers.at(moment, number) for number in tasks]
    if not answered:
        raise InputError(f"no answers were recorded at step {moment}")
    return Confusion(
        *confusion_matrix(
            np.array([label for column in labels for label in column.to_list()]), np.concatenate(answered)
        )
    )
