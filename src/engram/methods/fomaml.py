"""First-order MAML: weights from which a few steps on any task so far help that task's other samples."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, final

import torch
from pydantic import Field
from torch import Tensor

from engram.core.values import Batch, Heads, TaskInfo
from engram.methods import method
from engram.methods.base import Learner
from engram.methods.losses import cross_entropy
from engram.methods.memory import PerClass, Samples, gather


@method("fomaml", family="representation", paper="Chen et al. (2023)", needs=("boundaries", "stored data"))
@final
@dataclass(kw_only=True, eq=False)
class FOMAML(Learner):
    """Follow the gradient of the new samples plus gradients taken a few steps ahead on tasks so far.

    In every update G = ∇L(new). Then, for the current task and `previous` earlier ones, drawn at random
    without replacement, each separately: take `inner_steps` plain gradient steps from the weights θ on random
    batches of that task, and add to G the gradient of one more batch at the weights reached. θ is updated
    with G, a sum without averaging. Second derivatives are left out, hence first-order.

    Source: Chen et al. (2023), Eq. 12-14 and Algorithm 1; 2 inner steps (1 on ImageNet), 1 earlier task, the
    inner learning rate equal to the outer one. The sum is that of Algorithm 1; Eq. 12 has a mean and a weight
    λ.
    Deviations: as printed, G is computed once before the loop and never reset; here it is computed in every
    update. In the first task there are no earlier tasks to draw from. The paper keeps all data of earlier
    tasks; `memory` keeps a few samples of each class instead. Batches of the current task are drawn from what
    it has shown so far, which is all of it after one pass. The running statistics of batch norm are those of
    the new samples alone.
    """

    inner_steps: Annotated[int, Field(gt=0, description="steps ahead (b)")] = 2
    previous: Annotated[int, Field(ge=0, description="earlier tasks in each update (c)")] = 1
    inner_lr: Annotated[
        float | None,
        Field(gt=0, description="learning rate of the inner steps (α) (default: that of the update)"),
    ] = None
    memory: Annotated[
        int | None, Field(gt=0, description="samples kept of each class of each task (default: all)")
    ] = None

    def setup(self) -> None:
        """There are no data yet, neither of earlier tasks (stored in order) nor of the current one."""
        self.earlier = Samples()
        self.sizes: list[int] = []
        self.current = Samples()

    def begin_task(self, task: TaskInfo) -> None:
        """No samples of the new task were seen yet."""
        super().begin_task(task)
        self.current = Samples()

    def rehearse(self, batch: Batch) -> Batch:
        """Store the new samples in the first pass; the update itself uses no remembered ones."""
        assert self.task is not None
        if len(self.current) < self.task.samples:
            self.current.append(batch)
        return batch

    def edit_gradients(self, batch: Batch) -> None:
        """Add the gradients at weights that are a few steps ahead."""
        drawn = torch.randperm(len(self.sizes), generator=self.generator)[: self.previous].tolist()
        places = torch.arange(len(self.earlier)).split(self.sizes)
        tasks = [(self.earlier, places[number]) for number in drawn]
        for store, rows in [*tasks, (self.current, torch.arange(len(self.current)))]:
            for name, gradient in self._gradient_ahead(store, rows, heads=batch.heads).items():
                parameter = self.network.get_parameter(name)
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def _gradient_ahead(self, store: Samples, rows: Tensor, *, heads: Heads) -> dict[str, Tensor]:
        """The gradient of a random batch, after some steps on others of the same task."""

        def drawn() -> Batch:
            assert self.task is not None
            chosen = torch.randperm(len(rows), generator=self.generator)[: self.task.batch_size]
            return self.augmented(store.batch(rows[chosen], heads))

        rate = self.optimizer.param_groups[0]["lr"] if self.inner_lr is None else self.inner_lr
        weights = {name: p.detach() for name, p in self.network.named_parameters() if p.requires_grad}
        for _ in range(self.inner_steps):
            gradients = self._gradients(weights, drawn())
            weights = {name: weight - rate * gradients[name] for name, weight in weights.items()}
        return self._gradients(weights, drawn())

    def _gradients(self, weights: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """The gradient of a batch at some weights; the network itself is not changed."""
        leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        buffers = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        logits = torch.func.functional_call(self.network, (leaves, buffers), (batch.x,))
        loss = cross_entropy(logits, batch)
        gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        return dict(zip(weights, gradients, strict=True))

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Keep the task's data, or some of each class."""
        if self.memory is None:
            kept = gather(batches)
        else:
            chosen = PerClass(self.memory, self.generator)
            chosen.fill(batches)
            kept = chosen.samples
        self.earlier.extend(kept)
        self.sizes.append(len(kept))
        self.current = Samples()
