"""Multitask learning: tasks come one by one, but all earlier data are kept."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, final

import torch
from pydantic import Field
from torch import Tensor

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner
from engram.methods.memory import Samples, join
from engram.models.heads import head_of_each


@method("multitask", family="baseline", paper="Chen et al. (2023)", needs=("boundaries", "stored data"))
@final
@dataclass(kw_only=True, eq=False)
class Multitask(Learner):
    """Minimise L(new) + weight · the mean over all previous tasks of L(task), each on its whole data.

    Every update estimates the losses of the previous tasks on samples drawn with replacement: `memory_batch`
    of every task (`previous=each`, costly after many tasks), or as many in total, the task of each drawn
    first (`previous=union`). Either way every task has the same weight, whatever its number of samples.

    Source: Chen et al. (2023), Appendix A.2, Eq. 6 (MT), where the weight λ is 1, 0.1 or 0.01, whichever has
    the best average learning accuracy on validation data.
    Deviations: none; the paper does not say which samples an update draws, or how many.
    """

    weight: Annotated[float, Field(ge=0, description="weight of the previous tasks' loss (λ)")] = 1.0
    memory_batch: Annotated[int, Field(gt=0, description="samples of previous tasks in each update")] = 64
    previous: Annotated[
        Literal["union", "each"],
        Field(description="whether these samples are of all previous tasks together, or of each"),
    ] = "union"

    def setup(self) -> None:
        """Nothing is stored yet."""
        self.store = Samples()
        self.sizes: list[int] = []

    def rehearse(self, batch: Batch) -> Batch:
        """Join the new samples with some of the previous tasks."""
        if not self.sizes:
            return batch
        remembered = self.store.batch(self._draw(), batch.heads)
        return join(batch, remembered, weight=1.0, remembered_weight=self.weight)

    def _draw(self) -> Tensor:
        sizes = torch.tensor(self.sizes)
        if self.previous == "each":
            task = torch.arange(len(sizes)).repeat_interleave(self.memory_batch)
        else:
            task = torch.randint(len(sizes), (self.memory_batch,), generator=self.generator)
        place = torch.rand(len(task), generator=self.generator, dtype=torch.float64)
        return (sizes.cumsum(0) - sizes)[task] + (place * sizes[task]).long()

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Store the whole task."""
        pieces = list(batches)
        whole = Batch(
            torch.cat([piece.x for piece in pieces]),
            torch.cat([piece.y for piece in pieces]),
            heads=pieces[0].heads,
            head=torch.cat([head_of_each(piece) for piece in pieces]),
        )
        self.store.append(whole)
        self.sizes.append(len(whole))
