"""Memory aware synapses: weights that the outputs depend on are held where they were."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, final

from pydantic import Field
from torch import Tensor

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.importance import Anchors, output_sensitivity


@method("mas", family="prior", paper="Aljundi et al. (2018)", needs=("boundaries",))
@final
@dataclass(kw_only=True, eq=False)
class MAS(Learner):
    """Minimise L(new) + strength · Σ_i Ω_i (θ_i − θ*_i)², θ* being the weights at the end of the latest task.

    When a task ends, Ω ← Ω + the mean absolute gradient of the squared scores, over the units that compete;
    labels play no part. No factor ½.

    Source: Aljundi et al., 2018, Section 4, who take the gradient of each sample's summed squares
    (`gradients=sample`); 002, Section 3, and its code, which takes that of whole mini-batches, of the mean
    over samples and units (`gradients=batch`).
    Deviations: Ω adds up over tasks, as in 002's code; the original's code keeps a running mean over all
    samples. Mini-batches have as many samples as an update, in 002's code 128.
    """

    strength: Annotated[float, Field(ge=0, description="weight of the penalty (λ)")] = 1.0
    gradients: Annotated[
        Literal["batch", "sample"],
        Field(description="absolute gradients of mini-batches (002), or of samples (the original)"),
    ] = "batch"

    def setup(self) -> None:
        """There is no anchor yet."""
        self.anchors = Anchors()

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples, and the pull of the anchor."""
        terms = super().loss(batch)
        return terms.plus(self.strength * self.penalty()) if self.anchors else terms

    def penalty(self) -> Tensor:
        """The pull of the anchor, before it is multiplied by the strength."""
        return self.anchors.penalty(self.network.parameters())

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Move the anchor here, and make it stronger."""
        sensitivity = output_sensitivity(self.network, batches, kind=self.gradients)
        self.anchors.move(sensitivity, self.network.parameters())
