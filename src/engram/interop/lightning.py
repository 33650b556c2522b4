"""The evaluator in Lightning's loop: `lightning` and `pytorch_lightning`, whichever is installed, or both.

from engram.interop.lightning import Watch

watch = Watch(test_sets, every=10)
trainer = Trainer(callbacks=[watch])
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import nn

from engram.interop.libraries import library
from engram.interop.watching import Watching

_MODULES = ("lightning.pytorch", "pytorch_lightning")

if TYPE_CHECKING:

    class Callback:
        """The parent of Lightning's callbacks."""

else:
    _installed = [name for name in _MODULES if find_spec(name.partition(".")[0])]
    _user, _extra = "engram.interop.lightning", "engram-eval[lightning]"
    # They have a Callback each, and a Trainer checks for its own.
    _classes = [library(name, user=_user, install=_extra).Callback for name in _installed or _MODULES[:1]]
    Callback = _classes[0] if len(_classes) == 1 else type("Callback", tuple(_classes), {})


class Watch(Watching, Callback):
    """A Lightning callback that evaluates after optimiser steps, and changes nothing in training.

    Steps are counted as `trainer.global_step` moves: batches whose gradients are only accumulated do not
    count, and a batch in which several optimisers step counts once. What was recorded is saved in Lightning's
    checkpoints, and continued by `trainer.fit(…, ckpt_path=…)`. Answers are computed in the trainer's
    precision. Give every task a Trainer of its own: one that has reached `max_epochs` trains nothing when it
    is used again, and a warning says so.

    The arguments are those of `Watching`: `test_sets`, `task`, `stop_below`, `save`, and the options of
    `Evaluator`.

    Example:
        >>> import torch
        >>> watch = Watch({"digits": (torch.eye(2), torch.tensor([0, 1]))}, every=10)
        >>> watch.evaluator.schedule.every
        10
    """

    _global_step = 0
    _trained = True

    def on_fit_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Note that training is about to begin."""
        self._trained = False

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Evaluate before the very first update."""
        self._trained, self._global_step = True, trainer.global_step
        self.within(trainer.precision_plugin.forward_context)
        self.began(pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: nn.Module, *_: object) -> None:
        """Count an update if an optimiser has stepped, and evaluate if it is time."""
        if trainer.global_step == self._global_step:
            return
        self._global_step = trainer.global_step
        self.updated(pl_module)
        if self.stopped:
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Evaluate the last update, and save the run if that was wanted."""
        self.ended(pl_module)

    def on_fit_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Warn if nothing was trained."""
        if not self._trained:
            self._trained = True
            warnings.warn(
                f"trainer.fit trained nothing: this Trainer has done {trainer.current_epoch} epochs and "
                f"{trainer.global_step} steps (max_epochs={trainer.max_epochs}, "
                f"max_steps={trainer.max_steps}); make a new Trainer for every task",
                stacklevel=2,
            )
