"""Elastic weight consolidation: important weights are held where they were."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, final

from pydantic import Field

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.importance import Anchors, FisherGradients, FisherLabel, Strength, fisher_information


@method("ewc", family="prior", paper="Kirkpatrick et al. (2017)", needs=("boundaries",))
@final
@dataclass(kw_only=True, eq=False)
class EWC(Learner):
    """Minimise L(new) + strength · Σ_k Σ_i F_k,i (θ_i − θ*_k,i)², one anchor for every task k.

    F is the diagonal Fisher information at the end of a task, a mean over its samples, and θ* the weights at
    that time. The anchors are summed in closed form: a sum of parabolas is a parabola.

    Source: Kirkpatrick et al. (2017), Eq. 3, who do not say with which labels F is computed. The code of Hsu
    et al. (2018; Section 3) uses the network's own answers as labels and single samples, and in the permuted
    domain runs whole mini-batches times their size (`fisher=batch-scaled`). The code of De Lange et al.
    (2023; Section 4.2, Appendices B and C.4, λ = 1) uses true labels and whole mini-batches (`label=true`,
    `fisher=batch`), and one anchor at the latest weights with the mean importance of all tasks
    (`slots=average`). Chen et al. (2023; Appendix B.7, Table 6, λ = 100) do not specify F. The code of Pfülb
    & Gepperth (2019; Section 2.1, λ = 1/ε2) uses true labels (`label=true`).
    Deviations: no factor ½, as in the code of Hsu et al. and De Lange et al.; Eq. 3 and the code of Pfülb &
    Gepperth have λ/2, so halve the strength. Mini-batches have as many samples as an update; those two use
    128.
    """

    strength: Strength = 100.0
    label: FisherLabel = "predicted"
    fisher: FisherGradients = "sample"
    slots: Annotated[
        Literal["separate", "average"],
        Field(description="one anchor per task, or one with the running mean of importance"),
    ] = "separate"

    def setup(self) -> None:
        """There are no anchors yet."""
        self.anchors = Anchors()
        self.tasks_ended = 0

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples plus the penalty of the anchors."""
        return self.anchors.added_to(super().loss(batch), self.network, strength=self.strength)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Add an anchor at the current weights."""
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
