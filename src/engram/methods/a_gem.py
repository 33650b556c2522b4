"""Averaged gradient episodic memory: a step must not raise the loss on the memory as a whole."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, final

import torch
from pydantic import Field
from torch import Tensor

from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner
from engram.methods.flat_gradients import assign_gradient, gradient_of, held_gradient
from engram.methods.losses import cross_entropy
from engram.methods.memory import Latest, PerClass


@method(
    "a-gem",
    family="gradient constraint",
    paper="Chaudhry et al. (2019)",
    needs=("boundaries", "stored data"),
)
@final
@dataclass(kw_only=True, eq=False)
class AGEM(Learner):
    """Project the gradient so that it agrees with that of one batch from all earlier tasks' memories.

    With g the gradient of the new samples and r that of the remembered ones: if g·r is below 0, the update
    follows g − (g·r / r·r) r instead of g, which has no component against r. `policy` says which samples
    of every class of a task are kept: random ones, or those seen last. The samples of a task are used once it
    has ended.

    Source: Chaudhry et al. (2019), Eq. 11, whose code keeps the last 25 samples of each MNIST class and 13 of
    each CIFAR class (`policy=ring`) and uses 256 of them in each update; Chen et al. (2023), Appendix A.2,
    Eq. 8-11, with m samples of each class.
    Deviations: Chen et al. state neither how the m samples are chosen (here: at random) nor the size of the
    memory's batch (here: by default that of the new batch).
    """

    memory: Annotated[int, Field(gt=0, description="samples kept of each class of each task")] = 50
    memory_batch: Annotated[
        int | None,
        Field(gt=0, description="remembered samples in each update (default: as many as new ones)"),
    ] = None
    policy: Annotated[
        Literal["random", "ring"],
        Field(description="which samples of a class: random ones, or the last seen"),
    ] = "random"

    def setup(self) -> None:
        """Nothing is remembered yet."""
        self.store = PerClass(self.memory, self.generator)
        self.recent = Latest(self.memory)

    def begin_task(self, task: TaskInfo) -> None:
        """Start with an empty ring."""
        super().begin_task(task)
        self.recent = Latest(self.memory)

    def edit_gradients(self, batch: Batch) -> None:
        """Replace the gradient by the nearest one that the memory agrees with."""
        if len(self.store) == 0:
            return
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        remembered = self.augmented(self.store.sample(self.memory_batch or len(batch), batch.heads))
        loss = cross_entropy(self.network(remembered.x), remembered)
        projected = project(held_gradient(parameters), gradient_of(loss, parameters))
        assign_gradient(parameters, projected)

    def after_step(self, batch: Batch) -> None:
        """A ring takes every sample."""
        if self.policy == "ring":
            self.recent.add(batch)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Store samples of the task that ended."""
        if self.policy == "ring":
            self.store.samples.extend(self.recent.samples)
            self.recent = Latest(self.memory)
        else:
            self.store.fill(batches)


def project(gradient: Tensor, reference: Tensor) -> Tensor:
    """A-GEM's projection of a gradient; returns the same object if the reference does not disagree.

    Example:
        >>> project(torch.tensor([1.0, -2.0, 0.5]), torch.tensor([-0.25, 0.5, 0.5]))
        tensor([ 0.5556, -1.1111,  1.3889])
    """
    current, remembered = gradient.detach().double(), reference.detach().double()
    if current @ remembered >= 0:
        return gradient
    # Only the direction matters; scaling first keeps the square of a tiny gradient from underflowing.
    direction = torch.nn.functional.normalize(remembered / remembered.abs().max(), dim=0)
    return (current - (current @ direction) * direction).to(gradient.dtype)
