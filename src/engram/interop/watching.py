"""What the callbacks for other people's training loops share: an evaluator, and the task being learned."""

from __future__ import annotations

import base64
import binascii
import io
import pickle
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from engram.core.errors import Damaged, InputError
from engram.evaluation.evaluator import Evaluator
from engram.evaluation.state import EvaluatorState
from engram.metrics.arrays import Label
from engram.record.run import Run

Task = Label | Callable[[int], Label]
TestSets = Sequence[object] | Mapping[str, object] | Evaluator


class Watching:
    """An evaluator that is told what happens in a training loop that is not ours.

    Args:
        test_sets: One per task, as `Evaluator` takes them; or an `Evaluator`.
        task: The task being learned, by its name or its number, from 0. Set the attribute `task` before the
            next one is trained. If one call of the trainer learns several tasks, give a function instead: it
            is called with the number of updates done so far, and returns the task of the next update.
        stop_below: Stop training as soon as an earlier task is evaluated with an accuracy below this.
        save: The folder to save the run in, whenever the trainer has finished.
        options: The options of `Evaluator`: `every`, `subset`, `right`, `forward`, …

    Attributes:
        evaluator: What measures and records.
        stopped: Why training was stopped; empty if it was not.

    Example:
        >>> watch = Watching([(torch.eye(2), torch.tensor([0, 1]))] * 2, task=lambda step: step // 2)
        >>> net = nn.Linear(2, 2)
        >>> watch.began(net)
        >>> for _ in range(4):
        ...     watch.updated(net)
        >>> watch.ended(net)
        >>> watch.evaluator.trace.learning
        [0, 0, 0, 1, 1, 1, 1]
    """

    def __init__(
        self,
        test_sets: TestSets,
        *,
        task: Task = 0,
        stop_below: float | None = None,
        save: str | Path | None = None,
        **options: Any,
    ) -> None:
        # The callbacks of some libraries have a constructor of their own.
        super().__init__()
        if stop_below is not None and not 0 < stop_below <= 1:
            raise InputError(f"stop_below must be an accuracy above 0 and at most 1, got {stop_below}")
        if isinstance(test_sets, Evaluator):
            if options:
                raise InputError(f"give {', '.join(options)} to the Evaluator, or test sets to the callback")
            self.evaluator = test_sets
        else:
            self.evaluator = Evaluator(test_sets, **options)
        if self.evaluator.schedule.per_epoch:
            raise InputError("per_epoch needs a loop of your own: leave it out, or call an Evaluator in it")
        if stop_below is not None and not self.evaluator.ways.answered:
            raise InputError("stop_below needs accuracies, and only scores are recorded: give right= as well")
        self.task: Task = task
        self.stop_below = stop_below
        self.folder = None if save is None else Path(save)
        self.stopped = ""

    def metrics(self) -> dict[str, float]:
        """All metrics so far, by name; NaN where one is undefined."""
        return self.evaluator.metrics()

    def accuracies(self) -> dict[Label, float]:
        """The latest accuracy of each task, by its name, or by its number where tasks have no names."""
        return self.evaluator.accuracies()

    def save(self, folder: str | Path) -> Run:
        """Write the same files as `engram run`, which `engram report` and other commands read."""
        return self.evaluator.save(folder)

    def state_dict(self) -> dict[str, Any]:
        """Everything recorded so far, as tensors and plain values."""
        return dict(self.evaluator.state_dict())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a recorded state.

        Raises:
            InputError: It was recorded on other test sets.
        """
        self.evaluator.load_state_dict(cast("EvaluatorState", state_dict))

    def within(self, context: Callable[[], AbstractContextManager[object]]) -> None:
        """Answer within a context from now on, such as the trainer's mixed precision."""
        self.evaluator.asker.answering = context

    def began(self, model: nn.Module) -> None:
        """Training begins, for the first time or again: evaluates before the very first update."""
        self.stopped = ""
        if not self.evaluator.step and not self.evaluator.evaluations:
            self.evaluator.before(model, learning=self._learning(0))

    def updated(self, model: nn.Module) -> None:
        """An update was made: evaluates if an evaluation is due; `stopped` says whether to go on."""
        step = self.evaluator.step
        learning = self._learning(step)
        last = callable(self.task) and self.task(step + 1) != learning
        if self.evaluator(model, learning=learning, last=last):
            self._check_limit()

    def ended(self, model: nn.Module) -> None:
        """Training ended: evaluates if the last update was not, and saves the run if that was wanted."""
        step, ends = self.evaluator.step, self.evaluator.ends
        if not (len(ends) and ends.step[-1] == step):
            self.evaluator.end(model, learning=self._learning(max(0, step - 1)))
        if self.folder is not None:
            self.save(self.folder)

    def _learning(self, step: int) -> Label:
        return self.task(step) if callable(self.task) else self.task

    def _check_limit(self) -> None:
        if self.stop_below is None or self.stopped:
            return
        updated = self.evaluator.updated
        for (task, accuracy), name in zip(self.evaluator.latest.items(), self.accuracies(), strict=True):
            earlier = updated.get(task, self.evaluator.step) < self.evaluator.step
            if earlier and accuracy < self.stop_below:
                self.stopped = (
                    f"task {name} fell to an accuracy of {accuracy:.3f}, below {self.stop_below:g}, "
                    f"at update {self.evaluator.step}"
                )
                warnings.warn(f"training is stopped: {self.stopped}", stacklevel=2)
                return


def as_text(state: Mapping[str, Any]) -> str:
    """A state of tensors and plain values as text, for files that hold JSON only.

    Example:
        >>> of_text(as_text({"step": 3, "bits": torch.tensor([1, 0])}))
        {'step': 3, 'bits': tensor([1, 0])}
    """
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return base64.b64encode(zlib.compress(buffer.getvalue())).decode("ascii")


def of_text(text: str) -> dict[str, Any]:
    """The state that `as_text` wrote; only tensors and plain values are read.

    Raises:
        Damaged: It is not what was written.
    """
    try:
        content = zlib.decompress(base64.b64decode(text, validate=True))
        state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
    except (
        binascii.Error,
        zlib.error,
        pickle.UnpicklingError,
        RuntimeError,
        ValueError,
        TypeError,
        EOFError,
    ) as error:
        raise Damaged(f"the record of the evaluations in the checkpoint cannot be read: {error}") from error
    return state
