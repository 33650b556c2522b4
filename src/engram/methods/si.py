"""Synaptic intelligence: weights whose change reduced the loss are held where they were."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, final

import torch
from pydantic import Field
from torch import Tensor

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.importance import Anchors, Strength


@method("si", family="prior", paper="Zenke et al. (2017)", needs=("boundaries",))
@final
@dataclass(kw_only=True, eq=False)
class SI(Learner):
    """Minimise L(new) + strength · Σ_i Ω_i (θ_i − θ*_i)², θ* being the weights at the end of the latest task.

    With every update, w ← w − g · (θ_after − θ_before), where g is the gradient of the loss without the
    penalty, and the change of the weights is the one that the optimiser actually made. When a task ends,
    Ω ← Ω + w / ((θ_end − θ_start)² + damping), and w is reset to 0. No factor ½.

    Source: Zenke et al. (2017), Eq. 4 (the penalty, their c is `strength`) and Eq. 5 (Ω, their ξ is
    `damping`); Hsu et al. (2018), Section 3, and their code.
    Deviations: as in the code of Hsu et al., ξ is 0.1 everywhere and Ω may become negative; the original code
    clips Ω at 0 (`clip`), and uses 0.001 on split MNIST.
    """

    strength: Strength = 1.0
    damping: Annotated[
        float, Field(gt=0, description="keeps the importance of resting weights finite (ξ)")
    ] = 0.1
    clip: Annotated[bool, Field(description="raise negative importance to 0")] = False

    def setup(self) -> None:
        """An anchor of importance 0 marks where the first task starts."""
        here = list(self.network.parameters())
        self.anchors = Anchors()
        self.anchors.replace([torch.zeros_like(p) for p in here], here)
        self.path = [torch.zeros_like(p) for p in here]
        self.pulls: list[Tensor] = []
        self.before: list[Tensor] = []
        self.gradients: list[Tensor | None] = []

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples, and the value of the penalty; `edit_gradients` adds its gradient."""
        # Kept out of the graph, so that the backward pass yields the gradient of the new samples alone.
        value, self.pulls = self.anchors.pulls(self.network.parameters())
        return super().loss(batch).plus(self.strength * value)

    def edit_gradients(self, batch: Batch) -> None:
        """Keep the gradient of the new samples for `after_step`, and add that of the penalty."""
        here = list(self.network.parameters())
        self.before = [p.detach().clone() for p in here]
        self.gradients = [p.grad for p in here]
        factor = 2 * self.strength
        for parameter, gradient, pull in zip(here, self.gradients, self.pulls, strict=True):
            if parameter.requires_grad:
                parameter.grad = factor * pull if gradient is None else gradient.add(pull, alpha=factor)

    def after_step(self, batch: Batch) -> None:
        """Credit each weight with its share in the decrease of the loss."""
        moves = zip(self.path, self.gradients, self.before, self.network.parameters(), strict=True)
        for path, gradient, before, after in moves:
            if gradient is not None:
                path.addcmul_(gradient, before.sub_(after.detach()))
        self.pulls, self.before, self.gradients = [], [], []

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Move the anchor to the current weights, and add the importance of the task."""
        here = list(self.network.parameters())
        importance = [
            held + path_importance(path, p.detach() - start, damping=self.damping)
            for held, path, p, start in zip(
                self.anchors.importance, self.path, here, self.anchors.centre, strict=True
            )
        ]
        self.anchors.replace([omega.clamp(min=0) for omega in importance] if self.clip else importance, here)
        self.path = [torch.zeros_like(path) for path in self.path]


def path_importance(path: Tensor, change: Tensor, *, damping: float) -> Tensor:
    """What a task adds to the importance of each weight: w / (Δθ² + ξ).

    Args:
        path: By how much the weight's moves made the loss fall, w; below 0 where it rose.
        change: How far the weight is from where the task began, Δθ.
        damping: Keeps the result finite where a weight came back to its start, ξ.

    Example:
        >>> path_importance(torch.tensor([0.02, 0, -0.01]), torch.tensor([0.1, -0.3, 0]), damping=0.1)
        tensor([ 0.1818,  0.0000, -0.1000])
    """
    return path / (change.square() + damping)
