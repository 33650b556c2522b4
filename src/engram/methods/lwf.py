"""Learning without forgetting: the older network is the teacher for its own classes."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.distil import Form, Learned, Softmax, head_distillation
from engram.methods.losses import cross_entropy


@method("lwf", family="distillation", paper="Li & Hoiem (2016)", needs=("boundaries",))
@final
@dataclass(kw_only=True, eq=False)
class LwF(Learner):
    """Minimise L(new) + weight · D, where D compares the answers to the new samples before and now.

    The teacher is a copy of the network from the end of the previous task. Its answers are compared on the
    units of classes learned before, per head where there are several (then averaged), with the
    Kullback-Leibler divergence at `temperature`.

    Source: Li & Hoiem (2016), Section 3 (temperature 2). The defaults are those of De Lange et al. (2023;
    Section 4.2, distillation-based methods; Appendix B, temperature 2) and their code (weight 1, no T²
    factor). Hsu et al. (2018; Section 3) obtained their numbers with the code of van de Ven & Tolias (2018):
    (1/k)·L(new) + (1 − 1/k)·D in the k-th task (`weight=share`), D = T²·mean of −q·log p over samples and
    units (`form=cross-entropy`, `squared=true`, `mean_over_units=true`), new classes in the softmax with the
    target 0 (`softmax=padded`).
    Deviations: Li & Hoiem train the new head alone at first, and sum over earlier tasks. The code of De Lange
    et al. differs in three ways: its softmax is over all units (`softmax=all`, here all that compete), its
    teacher stays in training mode (`teacher_mode=train`, which matters with batch norm), and it distils the
    classes of the latest task only, which is not offered. It also sets D to 0 in the first update of a task,
    when it is 0 anyway.
    """

    temperature: Annotated[float, Field(gt=0, description="softens the answers")] = 2.0
    weight: Annotated[
        Annotated[float, Field(ge=0)] | Literal["share"],
        Field(
            description="weight of the distillation loss; share: 1 − 1/k in the k-th task, 1/k for the new"
        ),
    ] = 1.0
    squared: Annotated[bool, Field(description="multiply by temperature²")] = False
    form: Annotated[Form, Field(description="which divergence is computed; the gradients are the same")] = (
        "kl"
    )
    mean_over_units: Annotated[bool, Field(description="divide by the number of units")] = False
    softmax: Annotated[
        Softmax,
        Field(description="over the known units; over all, new ones with target 0 (padded); or over all"),
    ] = "known"
    teacher_mode: Annotated[Literal["eval", "train"], Field(description="mode of the older network")] = "eval"

    def setup(self) -> None:
        """There is no teacher during the first task."""
        self.teacher: nn.Module | None = None
        self.learned = Learned()

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples, and the distillation loss on them."""
        logits = self.network(batch.x)
        new = cross_entropy(logits, batch)
        if self.teacher is None:
            return Terms(new)
        kept = self._distillation(logits, batch)
        if not isinstance(self.weight, str):
            return Terms(new, self.weight * kept)
        assert self.task is not None
        share = 1 / (1 + self.task.index)
        return Terms(share * new, (1 - share) * kept)

    def _distillation(self, logits: Tensor, batch: Batch) -> Tensor:
        assert self.teacher is not None
        self.teacher.train(self.teacher_mode == "train")
        with torch.no_grad():
            before = self.teacher(batch.x)
        heads = [
            head_distillation(
                logits,
                before,
                known=units,
                active=batch.heads[head],
                temperature=self.temperature,
                softmax=self.softmax,
                squared=self.squared,
                form=self.form,
                mean_over_units=self.mean_over_units,
            )
            for head, units in self.learned.before.items()
        ]
        return torch.stack(heads).mean()

    def after_step(self, batch: Batch) -> None:
        """Record which units of which head are being learned."""
        self.learned.note(batch)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Keep a copy of the network as the teacher."""
        self.learned.end_task()
        self.teacher = copy.deepcopy(self.network).requires_grad_(False)
