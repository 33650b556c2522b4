"""Learning without forgetting: the older network is the teacher for its own classes."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, final

import torch
from pydantic import Field
from torch import nn

from engram.core.values import Batch, TaskInfo
from engram.methods.base import Learner, Terms, cross_entropy
from engram.methods.distil import distillation
from engram.methods.memory import head_of_each


@final
@dataclass(kw_only=True, eq=False)
class LwF(Learner):
    """Minimise L(new) + weight · D, where D compares the answers to the new samples before and now.

    The teacher is a copy of the network from the end of the previous task. Its answers are compared on
    the units of classes learned before, head by head where there are several (their mean), with the
    Kullback-Leibler divergence at `temperature` (000: 2, weight 1, no T² factor). Deviations of 000's code
    that are options here: a teacher left in training mode (it matters with batch norm).
    """

    family: ClassVar[str] = "distillation"
    paper: ClassVar[str] = "000, 002"
    needs: ClassVar[tuple[str, ...]] = ("boundaries",)

    temperature: Annotated[float, Field(gt=0, description="softens the answers")] = 2.0
    weight: Annotated[float, Field(ge=0, description="weight of the distillation loss")] = 1.0
    squared: Annotated[bool, Field(description="multiply by temperature²")] = False
    teacher_mode: Annotated[Literal["eval", "train"], Field(description="mode of the older network")] = "eval"

    def setup(self) -> None:
        """There is no teacher during the first task."""
        self.teacher: nn.Module | None = None
        self.known: dict[int, list[int]] = {}
        self.learned: dict[int, list[int]] = {}

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples, and the change of the older answers to them."""
        logits = self.network(batch.x)
        terms = Terms(cross_entropy(logits, batch))
        if self.teacher is None or not self.known:
            return terms
        self.teacher.train(self.teacher_mode == "train")
        with torch.no_grad():
            before = self.teacher(batch.x)
        heads = [
            distillation(
                logits[:, units], before[:, units], temperature=self.temperature, squared=self.squared
            )
            for units in self.known.values()
        ]
        return terms.plus(self.weight * torch.stack(heads).mean())

    def after_step(self, batch: Batch) -> None:
        """Note which units of which head have been learned."""
        for head in head_of_each(batch).unique().tolist():
            known = set(self.learned.get(head, []))
            rows = batch.y[head_of_each(batch) == head]
            self.learned[head] = sorted(known | set(rows.unique().tolist()))

    def begin_task(self, task: TaskInfo) -> None:
        """The network as it is now becomes the teacher."""
        super().begin_task(task)
        self.known = {head: list(units) for head, units in self.learned.items()}

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Keep a copy of the network."""
        self.teacher = copy.deepcopy(self.network).requires_grad_(False)
