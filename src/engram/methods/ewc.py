"""Elastic weight consolidation: weights that mattered are held where they were."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, final

from pydantic import Field
from torch import Tensor

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.importance import Anchors, FisherKind, Label, fisher_information


@method("ewc", family="prior", paper="Kirkpatrick et al. (2017)", needs=("boundaries",))
@final
@dataclass(kw_only=True, eq=False)
class EWC(Learner):
    """Minimise L(new) + strength · Σ_k Σ_i F_k,i (θ_i − θ*_k,i)², one anchor for every task k.

    F is the diagonal Fisher information at the end of a task, the mean over its samples, θ* the weights
    there. The anchors are summed in closed form: a sum of parabolas is a parabola.

    Source: Kirkpatrick et al., 2017, Eq. 3, who do not say whose labels F is of. 002 (Section 3) takes in its
    code the network's own answers as labels and every sample on its own, in the permuted domain runs whole
    mini-batches times their size (`fisher=batch-scaled`). 000 (Section 4.2, Appendices B and C.4, λ = 1)
    takes in its code true labels and whole mini-batches (`label=true`, `fisher=batch`), and one anchor at the
    latest weights with the mean of all tasks' importance (`slots=average`). 003 (Appendix B.7, Table 6,
    λ = 100) says nothing of F. 004 (Section 2.1, λ = 1/ε2) takes in its code true labels (`label=true`).
    Deviations: no factor ½, as in 002's and 000's code; Eq. 3 and 004's code have λ/2, so halve the strength.
    Mini-batches have as many samples as an update, in 000's and 002's code 128.
    """

    strength: Annotated[float, Field(ge=0, description="weight of the penalty (λ)")] = 100.0
    label: Annotated[Label, Field(description="whose likelihood the Fisher information is of")] = "predicted"
    fisher: Annotated[
        FisherKind,
        Field(description="squared gradients of samples, of mini-batches (000), or those times their size"),
    ] = "sample"
    slots: Annotated[
        Literal["separate", "average"], Field(description="one anchor a task, or a running mean (000)")
    ] = "separate"

    def setup(self) -> None:
        """There are no anchors yet."""
        self.anchors = Anchors()
        self.tasks_ended = 0

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples, and the pull of the anchors."""
        terms = super().loss(batch)
        return terms.plus(self.strength * self.penalty()) if self.anchors else terms

    def penalty(self) -> Tensor:
        """The pull of the anchors, before it is multiplied by the strength."""
        return self.anchors.penalty(self.network.parameters())

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Drop an anchor."""
        fisher = fisher_information(
            self.network, batches, kind=self.fisher, label=self.label, generator=self.generator
        )
        here = [p.detach() for p in self.network.parameters()]
        if self.slots == "average":
            done = self.tasks_ended
            held = self.anchors.importance or [f * 0 for f in fisher]
            mean = [(done * old + new) / (done + 1) for old, new in zip(held, fisher, strict=True)]
            self.anchors.replace(mean, here)
        else:
            self.anchors.add(fisher, here)
        self.tasks_ended += 1
