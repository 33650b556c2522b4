"""The evaluator in the loop of Hugging Face's `Trainer`.

from engram.interop.transformers import Watch

watch = Watch({"news": news_test, "reviews": reviews_test}, every=10)
trainer = Trainer(model, args, train_dataset=news, callbacks=[watch])
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from engram.core.errors import InputError
from engram.interop.libraries import library
from engram.interop.watching import Task, TestSets, Watching, as_text, of_text

if TYPE_CHECKING:

    class TrainerCallback:
        """The parent of the Trainer's callbacks."""

    class ExportableState:
        """What the Trainer saves in its checkpoints."""

else:
    _callbacks = library(
        "transformers.trainer_callback",
        user="engram.interop.transformers",
        install="engram-eval[transformers]",
    )
    TrainerCallback, ExportableState = _callbacks.TrainerCallback, _callbacks.ExportableState

_KEY = "evaluator"


class Watch(Watching, TrainerCallback, ExportableState):
    """A callback that evaluates after optimiser steps, and changes nothing in training.

    Batches whose gradients are only accumulated do not count. What was recorded is saved in the Trainer's
    checkpoints, as text in `trainer_state.json`, and continued by `trainer.train(resume_from_checkpoint=…)`.

    Args:
        test_sets: One per task, as `Evaluator` takes them: data sets of mappings, a `DataLoader` with the
            collator of the Trainer, pairs of tensors, or a mapping from names to these; or an `Evaluator`.
        task: The task being learned, by its name or its number, from 0. Set the attribute `task` before the
            next one is trained. If one `train()` learns several tasks, give a function instead: it is called
            with the number of updates done so far, and returns the task of the next update.
        stop_below: Stop training as soon as an earlier task is evaluated with an accuracy below this.
        save: The folder to save the run in, at the end of every `train()`.
        options: The options of `Evaluator`: `every`, `subset`, `right`, `forward`, …

    Example:
        >>> import torch
        >>> watch = Watch([(torch.eye(2), torch.tensor([0, 1]))], every=10)
        >>> watch.evaluator.schedule.every
        10
    """

    def __init__(
        self,
        test_sets: TestSets | None,
        *,
        task: Task = 0,
        stop_below: float | None = None,
        save: str | Path | None = None,
        **options: Any,
    ) -> None:
        if test_sets is None:
            # The Trainer makes callbacks again from what they saved, which cannot be whole test sets.
            raise InputError(
                "a Watch restores itself when training resumes: leave out "
                "restore_callback_states_from_checkpoint, or give it test sets"
            )
        super().__init__(test_sets, task=task, stop_below=stop_below, save=save, **options)

    def on_train_begin(
        self, args: object, state: Any, control: object, *, model: nn.Module, **_: object
    ) -> None:
        """Continue what a checkpoint recorded, or evaluate before the very first update."""
        if state.global_step:
            self._resume(state.stateful_callbacks.get(type(self).__name__))
        # Checkpoints without it cannot be resumed from and saved again: the Trainer looks for this entry.
        state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        self.began(model)

    def on_step_end(
        self, args: object, state: object, control: Any, *, model: nn.Module, **_: object
    ) -> None:
        """Count an update, and evaluate if it is time."""
        self.updated(model)
        if self.stopped:
            control.should_training_stop = True

    def on_train_end(
        self, args: object, state: Any, control: object, *, model: nn.Module, **_: object
    ) -> None:
        """Evaluate the last update, and save the run if that was wanted."""
        self.ended(model)

    def state(self) -> dict[str, dict[str, str | None]]:
        """What a checkpoint records: everything so far, as text."""
        return {"args": {"test_sets": None}, "attributes": {_KEY: as_text(self.state_dict())}}

    def _resume(self, saved: object) -> None:
        """Continue from the latest state that was recorded on the same test sets."""
        entries = saved if isinstance(saved, list) else [saved]
        texts = [entry["attributes"][_KEY] for entry in entries if isinstance(entry, Mapping)]
        if not texts:
            warnings.warn(
                "the checkpoint was made without this Watch: the evaluations before it are missing",
                stacklevel=2,
            )
            return
        # Several callbacks of one class are saved as a list, to which every checkpoint appends.
        states = [of_text(text) for text in reversed(texts)]
        own = self.state_dict()["test_data"]
        self.load_state_dict(next((state for state in states if state["test_data"] == own), states[0]))
