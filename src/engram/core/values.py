"""What a learner receives: batches, and what it may know about a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engram.core.schema import Called, Flag, OneOf

if TYPE_CHECKING:
    from torch import Tensor

Heads = tuple[tuple[int, ...], ...]
"""For every head, the output units that compete in it. One head where task identity is hidden."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples with their labels, and which output units compete for each.

    Attributes:
        x: The inputs, normalised, samples first.
        y: The output unit that is right for each sample (units are numbered over all heads).
        heads: The units of each head, as far as they are known at this moment.
        head: Which head the samples belong to: one number for all, or one per sample. Where task identity
            is hidden, there is only head 0.
        weight: What each sample's loss is multiplied by before summing; None stands for the plain mean.
        fresh: How many of the samples, from the first on, are new; the rest are remembered. None: all.
    """

    x: Tensor
    y: Tensor
    heads: Heads
    head: int | Tensor = 0
    weight: Tensor | None = None
    fresh: int | None = None

    def __len__(self) -> int:
        return int(self.y.shape[0])


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """What a learner may know about the task that begins.

    Attributes:
        index: How many tasks came before, as far as boundaries are visible.
        identity: The task's number in the task setting, else None.
        classes: The output units that this task's labels use.
        samples: How many training samples the task has.
        steps: How many updates it is learned for.
        epochs: How many passes over its data these are.
        batch_size: How many new samples an update brings.
    """

    index: int
    identity: int | None
    classes: tuple[int, ...]
    samples: int
    steps: int
    epochs: int
    batch_size: int


OPTIMIZERS = ("sgd", "adam", "adamw", "adagrad", "rmsprop")
"""The optimisers by name."""


@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """How weights are updated.

    Attributes:
        name: The optimiser.
        lr: Learning rate.
        momentum: Momentum of `sgd` and `rmsprop`.
        weight_decay: L2 weight decay; with `adamw` it is decoupled from the gradient.
        reset: Whether the optimiser's state is cleared when a task begins.
        schedule: `constant`, or `cosine`: from `lr` down a quarter cosine to 0 within each task (Chen et al.
            2023).
    """

    name: Annotated[str, Called("optimizer"), OneOf(OPTIMIZERS), Field(description="Optimiser")] = "sgd"
    lr: Annotated[float, Field(gt=0, description="Learning rate")] = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1, description="Momentum of sgd or rmsprop")] = 0.0
    weight_decay: Annotated[float, Field(ge=0, description="L2 weight decay; decoupled in adamw")] = 0.0
    reset: Annotated[
        bool,
        Flag("--reset/--no-reset"),
        Field(description="Clear the optimiser's state when a task begins"),
    ] = True
    schedule: Annotated[
        str, OneOf(("constant", "cosine")), Field(description="Learning rate within each task")
    ] = "constant"
