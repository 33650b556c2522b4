"""Gradient episodic memory: a step must not raise the loss on any earlier task's memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from engram.core.errors import NonFinite
from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner
from engram.methods.flat_gradients import assign_gradient, gradient_of, held_gradient
from engram.methods.losses import cross_entropy
from engram.methods.memory import Samples


@method(
    "gem",
    family="gradient constraint",
    paper="Lopez-Paz & Ranzato (2017)",
    needs=("boundaries", "stored data"),
)
@final
@dataclass(kw_only=True, eq=False)
class GEM(Learner):
    """Project the gradient so that it agrees with the gradient on every earlier task's memory.

    With g the gradient of the new samples and the rows of G those of the memories: if every product G·g is at
    least 0, g is used. Otherwise g + Gᵀv, where v solves min ½ vᵀ(GGᵀ + ridge·I)v + (Gg)ᵀv with v ≥ margin.

    Source: Lopez-Paz & Ranzato (2017), Section 3, and their code (ridge, margin 0.5, the last 256 samples of
    each task: `policy=ring`); De Lange et al. (2023), Section 4.2, Eq. 9, and Appendix B, with margin 0.5.
    Deviations: the code of De Lange et al. keeps the first samples of each task (`policy=first`); here they
    are drawn at random by default.
    """

    memory: Annotated[int, Field(gt=0, description="samples kept of each task")] = 400
    margin: Annotated[float, Field(ge=0, description="lower bound of v: pulls towards the old tasks")] = 0.5
    policy: Annotated[
        Literal["random", "first", "ring"],
        Field(description="which samples of a task: a uniform sample, the first, or the last seen"),
    ] = "random"
    ridge: Annotated[float, Field(gt=0, description="added to the diagonal of GGᵀ")] = 1e-3

    def setup(self) -> None:
        """There are no memories yet."""
        self.store = Samples()
        self.sizes: list[int] = []
        self.recent = Samples()

    def edit_gradients(self, batch: Batch) -> None:
        """Replace the gradient by the nearest one that the memories agree with."""
        if not self.sizes:
            return
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        gradient = held_gradient(parameters)
        places = torch.arange(len(self.store)).split(self.sizes)
        memories = torch.stack([self._gradient_on(place, batch, parameters) for place in places])
        projected = project(gradient, memories, margin=self.margin, ridge=self.ridge)
        if projected is not gradient:
            assign_gradient(parameters, projected)

    def _gradient_on(self, place: Tensor, batch: Batch, parameters: list[torch.nn.Parameter]) -> Tensor:
        remembered = self.augmented(self.store.batch(place, batch.heads))
        loss = cross_entropy(self.network(remembered.x), remembered)
        return gradient_of(loss, parameters)

    def after_step(self, batch: Batch) -> None:
        """A ring memory holds the samples that were seen last."""
        if self.policy == "ring":
            self.recent.append(batch)
            extra = len(self.recent) - self.memory
            if extra > 0:
                self.recent.keep(torch.arange(extra, len(self.recent)))

    def begin_task(self, task: TaskInfo) -> None:
        """A ring memory starts empty."""
        super().begin_task(task)
        self.recent = Samples()

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Store samples of the task that ended."""
        chosen = self.recent if self.policy == "ring" else self._chosen(batches)
        self.sizes.append(len(chosen))
        self.store.extend(chosen)
        # Samples are held once: what is stored is no longer recent.
        self.recent = Samples()

    def _chosen(self, batches: Iterable[Batch]) -> Samples:
        """The first samples of a task, or a uniform sample: those with the largest random keys."""
        chosen, keys = Samples(), torch.empty(0, dtype=torch.float64)
        for batch in batches:
            if self.policy == "first" and len(chosen) >= self.memory:
                break
            chosen.append(batch)
            if self.policy == "random":
                fresh = torch.rand(len(batch), generator=self.generator, dtype=torch.float64)
                keys = torch.cat([keys, fresh])
                best = torch.argsort(keys, descending=True, stable=True)[: self.memory]
                keys = keys[best]
            else:
                best = torch.arange(min(len(chosen), self.memory))
            chosen.keep(best)
        return chosen


def project(gradient: Tensor, memories: Tensor, *, margin: float, ridge: float = 1e-3) -> Tensor:
    """GEM's projection of a gradient; returns the same object if no memory disagrees.

    The dual quadratic programme is a least-squares problem with bounds, min ‖Lᵀv + L⁻¹Gg‖² with
    GGᵀ + ridge·I = LLᵀ, solved in double precision.

    Example:
        >>> g, memory = torch.tensor([-1.0, 2.0, 0.0]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> project(g, memory, margin=0.0)
        tensor([-9.9897e-04,  2.0000e+00,  0.0000e+00])
    """
    rows = memories.detach().double()
    products = rows @ gradient.detach().double()
    if bool((products >= 0).all()):
        return gradient
    if not bool(products.isfinite().all()):
        raise NonFinite("gradients on the memories")
    gram = (rows @ rows.T).cpu().numpy()
    dual = torch.from_numpy(_solve(gram, products.cpu().numpy(), margin=margin, ridge=ridge))
    return gradient + (rows.T @ dual.to(rows.device)).to(gradient.dtype)


def _solve(
    gram: NDArray[np.float64], products: NDArray[np.float64], *, margin: float, ridge: float
) -> NDArray[np.float64]:
    from scipy.linalg import solve_triangular
    from scipy.optimize import lsq_linear

    lower = np.linalg.cholesky(gram + ridge * np.eye(len(gram)))
    target = -solve_triangular(lower, products, lower=True)
    solution = lsq_linear(lower.T, target, bounds=(margin, np.inf), method="bvls", tol=1e-12)
    return np.asarray(solution.x, dtype=np.float64)
