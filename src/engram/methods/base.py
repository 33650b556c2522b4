"""What a method is, and `Learner`, the base class that most methods change in one or two places."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, final, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from engram.core.errors import InputError
from engram.core.registries import METHODS
from engram.core.values import Batch, OptimizerSpec, TaskInfo
from engram.methods.augment import BLACK, Black, black_of, crop_and_flip
from engram.methods.losses import Terms, batch_loss, cross_entropy
from engram.methods.optimizers import build_optimizer, cosine_factor
from engram.methods.state import State, capture, kept_bytes, restore
from engram.methods.traits import declare
from engram.models.network import Network

__all__ = ["Learner", "Method", "Terms", "as_learner", "batch_loss", "cross_entropy"]


@runtime_checkable
class Method(Protocol):
    """What an experiment needs of a method: four verbs, and a state that can be saved and restored."""

    def begin_task(self, task: TaskInfo) -> None:
        """A task begins; called once at the start, and later only where the setting shows boundaries."""

    def observe(self, batch: Batch) -> float:
        """Learn from one batch of new samples in one update, and return its loss."""

    def end_task(self, batches: Iterable[Batch]) -> None:
        """A task ended; its data may be read once more."""

    def predictor(self) -> nn.Module:
        """The network that answers at this point: from inputs to the scores of all output units."""

    def state_dict(self) -> State:
        """Everything that the next update depends on, as tensors and plain values."""

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""

    def kept_bytes(self) -> int:
        """Bytes held beyond the weights and the optimiser's state."""


@dataclass(kw_only=True, eq=False)
class Learner(ABC):
    """Fine-tuning that can be changed in four places: `rehearse`, `loss`, `edit_gradients`, `after_step`.

    A method is a dataclass below this one that overrides those in which it differs from fine-tuning. The
    experiment sets the fields below. The fields that a method adds are its hyper-parameters, each
    `Annotated` with its bounds and its description. Its family and its needs are declared in the decorator
    `engram.method`.

    Attributes:
        network: The network that learns.
        optimizer_spec: How it is updated.
        generator: The source of the method's randomness, for memories and the like.
    """

    network: Network
    optimizer_spec: OptimizerSpec = field(default_factory=OptimizerSpec)
    generator: torch.Generator = field(default_factory=torch.Generator)

    def __post_init__(self) -> None:
        self.optimizer = build_optimizer(self.optimizer_spec, self.network.parameters())
        self.task: TaskInfo | None = None
        self.step_in_task = 0
        self.split_gradients = False
        self.augmentation: torch.Generator | None = None
        self.black: Black = BLACK
        self.gradient_norms: dict[str, float] = {}
        self.loss_parts: dict[str, float] = {}
        self.setup()

    # What a method overrides ------------------------------------------------------------------------

    def setup(self) -> None:
        """Create what the method holds besides the network; called once."""

    def rehearse(self, batch: Batch) -> Batch:
        """The samples of this update: the new ones, and remembered ones where a method adds them."""
        return batch

    def loss(self, batch: Batch) -> Terms:
        """What the update minimises."""
        return batch_loss(self.network(batch.x), batch)

    def edit_gradients(self, batch: Batch) -> None:
        """Change the gradients before the step."""

    def after_step(self, batch: Batch) -> None:
        """Record what was learned; `batch` holds the new samples only."""

    # The four verbs -------------------------------------------------------------------------------

    def begin_task(self, task: TaskInfo) -> None:
        """Record the task; clear the optimiser's state if the experiment resets optimisers."""
        self.task = task
        self.step_in_task = 0
        if self.optimizer_spec.reset and task.index > 0:
            self.optimizer = build_optimizer(self.optimizer_spec, self.network.parameters())

    @final
    def observe(self, batch: Batch) -> float:
        """One update."""
        self._follow_schedule()
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        rehearsed = self.rehearse(batch)
        if not isinstance(rehearsed, Batch):
            raise _wrong_return(self, "rehearse", "a Batch", rehearsed, "return the samples of this update")
        joined = self.augmented(rehearsed)
        terms = self.loss(joined)
        if not isinstance(terms, Terms):
            raise _wrong_return(self, "loss", "Terms", terms, "return engram.Terms(loss)")
        loss = terms.total()
        new = self._gradient_of(terms.new) if self.split_gradients else None
        loss.backward()
        self.edit_gradients(joined)
        if new is not None:
            self._note_norms(new)
            self._note_parts(terms)
        self.optimizer.step()
        self.step_in_task += 1
        self.after_step(batch)
        return float(loss.detach())

    @final
    def augmented(self, batch: Batch) -> Batch:
        """The samples as the network sees them: images cropped and mirrored if the experiment augments.

        What `rehearse` returns is augmented by `observe`; samples that a method draws elsewhere go through
        here. Memories store samples without augmentation, so that each rehearsal augments them differently.
        """
        if self.augmentation is None:
            return batch
        return replace(batch, x=crop_and_flip(batch.x, self.augmentation, black=black_of(batch, self.black)))

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Nothing to keep."""

    def predictor(self) -> nn.Module:
        """The network itself."""
        return self.network

    # State and measurement ------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything that the next update depends on, as tensors and plain values."""
        return capture(self)

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned: the learner continues with the same bits."""
        restore(self, state)

    def kept_bytes(self) -> int:
        """Bytes held beyond the weights and the optimiser's state."""
        return kept_bytes(self)

    def _follow_schedule(self) -> None:
        if self.optimizer_spec.schedule == "cosine" and self.task is not None:
            factor = cosine_factor(self.step_in_task, self.task.steps)
            for group in self.optimizer.param_groups:
                group["lr"] = self.optimizer_spec.lr * factor

    def _gradient_of(self, loss: Tensor) -> list[Tensor]:
        # On the graph of the update and before its backward pass, so that its bits do not change.
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        with _disable_current_modes():  # Watching is no work of the method: see `engram.engine.work`.
            gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]

    def _note_norms(self, new: list[Tensor]) -> None:
        """Split the update's gradient into that of the new samples (plasticity) and the rest (stability)."""
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        with _disable_current_modes():
            rest = [(-g if p.grad is None else p.grad - g) for p, g in zip(parameters, new, strict=True)]
            self.gradient_norms = {"plasticity-gradient": _norm(new), "stability-gradient": _norm(rest)}

    def _note_parts(self, terms: Terms) -> None:
        """Split the update's loss in the same way; each part includes its weight."""
        old = 0.0 if terms.old is None else float(terms.old.detach())
        self.loss_parts = {"plasticity-loss": float(terms.new.detach()), "stability-loss": old}


def _wrong_return(method: Learner, function: str, wanted: str, got: object, remedy: str) -> InputError:
    name = METHODS.name_of(type(method)) or type(method).__name__
    return InputError(f"method {name}: {function} must return {wanted}, got {type(got).__name__}: {remedy}")


def _norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))


declare(Learner, learner=True)


def identity_of(task: TaskInfo, method: str) -> int:
    """The identity of a task; an error if several are learned at once or if the setting hides it.

    Example:
        >>> identity_of(TaskInfo(0, 3, (6, 7), samples=1, steps=1, epochs=1, batch_size=1), "independent")
        3
    """
    if task.identity is None:
        raise InputError(
            f"method {method} learns one task at a time and must know which: use the task setting, with one "
            "task per phase"
        )
    return task.identity


def as_learner(method: Method) -> Learner | None:
    """The method as a `Learner` if it is one, else None.

    Example:
        >>> from torch import nn
        >>> net = Network(nn.Flatten(1), nn.Linear(2, 2))
        >>> as_learner(Learner(network=net)) is not None
        True
    """
    return method if isinstance(method, Learner) else None
