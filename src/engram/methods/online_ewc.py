"""Online elastic weight consolidation: one anchor, whose importance adds up over the tasks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, final

from pydantic import Field

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.importance import Anchors, FisherGradients, FisherLabel, Strength, fisher_information


@method("online-ewc", family="prior", paper="Schwarz et al. (2018)", needs=("boundaries",))
@final
@dataclass(kw_only=True, eq=False)
class OnlineEWC(Learner):
    """Minimise L(new) + strength · Σ_i Ω_i (θ_i − θ*_i)², θ* being the weights at the end of the latest task.

    When a task ends, Ω ← decay · Ω + F, where F is the diagonal Fisher information of that task. Unlike
    `ewc`, the weights at the ends of older tasks are not kept.

    Source: Schwarz et al. (2018; online EWC, their γ is `decay`), as in Hsu et al. (2018), Section 3, and
    their code, which sums without decay and uses the network's own answers as labels and single samples, and
    whole mini-batches times their size (`fisher=batch-scaled`) in the permuted domain runs.
    Deviations: no factor ½, as in the code of Hsu et al.; the penalty has Ω where Schwarz et al. have γ·Ω,
    which only rescales the strength, and makes no difference with the default decay of 1. Mini-batches have
    as many samples as an update; those of Hsu et al. have 128.
    """

    strength: Strength = 100.0
    decay: Annotated[
        float, Field(ge=0, le=1, description="what is left of the earlier importance when a task ends (γ)")
    ] = 1.0
    label: FisherLabel = "predicted"
    fisher: FisherGradients = "sample"

    def setup(self) -> None:
        """There is no anchor yet."""
        self.anchors = Anchors()

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples plus the penalty of the anchor."""
        return self.anchors.added_to(super().loss(batch), self.network, strength=self.strength)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Move the anchor to the current weights, and add the importance of the task."""
        fisher = fisher_information(
            self.network, batches, kind=self.fisher, label=self.label, generator=self.generator
        )
        self.anchors.move(fisher, self.network.parameters(), decay=self.decay)
