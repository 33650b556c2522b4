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
    follows g − (g·r / r·r) r instead of g, which has no part against r any more. `policy` says which samples
    of every class of a task are kept: random ones, or those seen last. The samples of a task are used once it
    has ended.

    Source: Chaudhry et al. (2019), Eq. 11, whose code keeps the last 25 samples of each MNIST class and 13 of
    each CIFAR class (`policy=ring`) and uses 256 of them in each update; Chen et al. (2023), Appendix A.2,
    Eq. 8-11, with m samples of each class.
    Deviations: Chen et al. state neither how the m samples are chosen (here: at random) nor the size of the
    memory's batch (here: the same as the new batch unless `memory_batch` is given).
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
        """No sample of the task was seen yet."""
        super().begin_task(task)
        self.recent = Latest(self.memory)

    def edit_gradients(self, batch: Batch) -> None:
        """Replace the gradient by the nearest one that the memory agrees with."""
        if len(self.store) == 0:
            return
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        own = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        remembered = self.augmented(self.store.sample(self.memory_batch or len(batch), batch.heads))
        loss = cross_entropy(self.network(remembered.x), remembered)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        theirs = [torch.zeros_like(p) if r is None else r for p, r in zip(parameters, gradients, strict=True)]
        projected = project(torch.cat([g.flatten() for g in own]), torch.cat([r.flatten() for r in theirs]))
        pieces = projected.split([p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)

    def after_step(self, batch: Batch) -> None:
        """A ring sees every sample."""
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
    """A-GEM's projection of a gradient; the same object comes back where the reference does not disagree.

    Example:
        >>> project(torch.tensor([1.0, -2.0, 0.5]), torch.tensor([-0.25, 0.5, 0.5]))
        tensor([ 0.5556, -1.1111,  1.3889])
    """
    ours, theirs = gradient.detach().double(), reference.detach().double()
    if ours @ theirs >= 0:
        return gradient
    # Only its direction matters; scaled first, the square of a tiny gradient is not lost.
    direction = torch.nn.functional.normalize(theirs / theirs.abs().max(), dim=0)
    return (ours - (ours @ direction) * direction).to(gradient.dtype)
