"""What is right: how a network's outputs are read as scores, and which outputs cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engram.core.errors import InputError
from engram.evaluation.accuracy import answered_right
from engram.evaluation.asking import scores_in
from engram.evaluation.loss import answer_loss
from engram.models.heads import Units, scores_of, units_at

Sought = Sequence[Units | None]
"""For each of some tasks, the output units that compete for the answer; None for all."""


class Judge:
    """Reads the outputs of a network, and says which answers are right.

    Outputs are scores, one row per sample and one column per class. A network with a single output is read as
    a binary classifier if all labels are 0 or 1: the output is the logit of class 1. Outputs of another form,
    and labels that no output stands for, are refused, because every answer would be wrong.

    Args:
        labels: The labels of each task.
        names: The names of the tasks, for messages (default: their numbers).

    Raises:
        InputError: A label is not a class number from 0 on.

    Example:
        >>> judge = Judge([torch.tensor([0, 1])])
        >>> scores = judge.scores(torch.tensor([[-2.0], [3.0]]), samples=2, tasks=[0], sought=[None])
        >>> scores, judge.right(scores, torch.tensor([0, 1]))
        (tensor([[ 0., -2.],
                [ 0.,  3.]]), tensor([True, True]))
    """

    def __init__(self, labels: Sequence[Tensor], *, names: Sequence[str] | None = None) -> None:
        self.names = list(map(str, range(len(labels)))) if names is None else list(names)
        self.highest: list[int] = []
        for task, y in zip(self.names, labels, strict=True):
            if y.ndim != 1 or y.is_floating_point():
                kind = f"shape {list(y.shape)} and type {str(y.dtype).removeprefix('torch.')}"
                raise InputError(f"labels must be one whole number per sample, task {task} has {kind}")
            if (lowest := int(y.min())) < 0:
                raise InputError(
                    f"labels must be class numbers from 0 on, task {task} has the label {lowest}: "
                    "leave such samples out"
                )
            self.highest.append(int(y.max()))
        self._single = self._beyond = False

    def scores(self, outputs: object, *, samples: int, tasks: Sequence[int], sought: Sought) -> Tensor:
        """The scores in the outputs for some samples: one row per sample, one column per class.

        Args:
            outputs: What the network returned.
            samples: How many samples it was called with.
            tasks: The tasks of the samples.
            sought: For each of these tasks, the units that compete.

        Raises:
            InputError: The outputs cannot be read, or a label or a competing unit has no output.
        """
        outputs = scores_in(outputs)
        if outputs.ndim == 2 and outputs.shape[0] == samples and outputs.shape[1] > 1:
            self._refuse_missing(outputs.shape[1], tasks, sought)
            return outputs
        if outputs.shape not in ((samples,), (samples, 1)):
            raise InputError(
                f"a network must return one row of scores per sample, shape [{samples}, classes], "
                f"got shape {list(outputs.shape)}"
            )
        return self._of_one_output(outputs, tasks, sought)

    def right(self, scores: Tensor, y: Tensor, units: Units | None = None) -> Tensor:
        """Which samples are classified correctly; see `answered_right`."""
        return answered_right(scores, y, units)

    def answers(self, scores: Tensor, units: Units | None = None) -> Tensor:
        """The class that each sample is classified as: the unit with the highest score among those sought."""
        place = scores_of(scores, units).argmax(dim=1)
        return units_at(place, units, scores.shape[1])

    def loss(self, scores: Tensor, y: Tensor, units: Units | None = None) -> Tensor:
        """The loss of each sample; see `answer_loss`. With a single logit it is the binary cross-entropy."""
        return answer_loss(scores, y, units)

    @property
    def single(self) -> bool:
        """Whether outputs were read as the logit of a binary classifier."""
        return self._single

    @property
    def noticed(self) -> tuple[bool, bool]:
        """Whether there was a single output, and whether it was ever beyond 0 and 1."""
        return self._single, self._beyond

    def notice(self, single: bool, beyond: bool) -> None:
        """Take over what another judge of the same outputs noticed."""
        self._single, self._beyond = self._single or single, self._beyond or beyond

    @property
    def doubt(self) -> str:
        """Why the reading of the outputs may be wrong; empty where nothing speaks against it.

        A logit that is between 0 and 1 in every evaluation is probably a probability: then every answer was
        read as class 1.
        """
        if not self._single or self._beyond:
            return ""
        return (
            "the network's single output was between 0 and 1 in every evaluation, as probabilities are, "
            "but was read as a logit, above 0 for class 1: return logits, before the sigmoid"
        )

    def _of_one_output(self, outputs: Tensor, tasks: Sequence[int], sought: Sought) -> Tensor:
        """The scores of two classes, of which the first has logit 0."""
        if any(units is not None for units in sought):
            if outputs.ndim == 2:
                self._refuse_missing(1, tasks, sought)
                return outputs
            raise InputError(
                f"a network must return one row of scores per sample, got shape {list(outputs.shape)}"
            )
        if not outputs.is_floating_point():
            raise InputError(
                f"a network must return scores, got one {str(outputs.dtype).removeprefix('torch.')} per "
                "sample: return scores before the argmax"
            )
        if max(self.highest) == 0:
            raise InputError(
                "all labels are 0 and the network has one output, so any answer would be right: "
                "give a network with one output per class, or test samples of both classes"
            )
        self._refuse_missing(1 if max(self.highest) > 1 else 2, tasks, sought)
        logits = outputs.flatten()
        self._single = True
        self._beyond = self._beyond or bool(((logits < 0) | (logits > 1)).any())
        return torch.stack([torch.zeros_like(logits), logits], dim=1)

    def _refuse_missing(self, outputs: int, tasks: Sequence[int], sought: Sought) -> None:
        """Refuse tasks with labels or competing units that no output stands for."""
        for task, units in zip(tasks, sought, strict=True):
            if self.highest[task] >= outputs:
                raise InputError(
                    f"task {self.names[task]} has the label {self.highest[task]}, but the network has "
                    f"{_counted(outputs)}, for labels 0 to {outputs - 1}: "
                    "give it one output per class, or number the classes from 0"
                )
            if units is not None and units[-1] >= outputs:
                raise InputError(
                    f"the answers of task {self.names[task]} are sought among output unit {units[-1]} and "
                    f"others, but the network has {_counted(outputs)}, 0 to {outputs - 1}: change `units`"
                )


def _counted(outputs: int) -> str:
    return f"{outputs} output{'s' * (outputs != 1)}"
