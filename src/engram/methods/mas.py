"""Memory aware synapses: weights that the outputs depend on are held where they were."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, final

from pydantic import Field

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.importance import Anchors, Strength, output_sensitivity


@method("mas", family="prior", paper="Aljundi et al. (2018)", needs=("boundaries",))
@final
@dataclass(kw_only=True, eq=False)
class MAS(Learner):
    """Minimise L(new) + strength · Σ_i Ω_i (θ_i − θ*_i)², θ* being the weights at the end of the latest task.

    When a task ends, the mean absolute gradient of the squared scores over the units that compete is added to
    Ω; labels are not used. No factor ½.

    Source: Aljundi et al. (2018), Section 4, who take the gradient of each sample's sum of squares
    (`gradients=sample`); Hsu et al. (2018), Section 3, and their code, which takes that of whole
    mini-batches, of the mean over samples and units (`gradients=batch`).
    Deviations: Ω is summed over tasks, as in the code of Hsu et al.; the original code keeps a running mean
    over all samples. Mini-batches have as many samples as an update; those of Hsu et al. have 128.
    """

    strength: Strength = 1.0
    gradients: Annotated[
        Literal["batch", "sample"],
        Field(description="absolute gradients of mini-batches, or of samples (as in the original)"),
    ] = "batch"

    def setup(self) -> None:
        """There is no anchor yet."""
        self.anchors = Anchors()

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples plus the penalty of the anchor."""
        return self.anchors.added_to(super().loss(batch), self.network, strength=self.strength)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Move the anchor to the current weights, and add the sensitivity of the outputs."""
        sensitivity = output_sensitivity(self.network, batches, kind=self.gradients)
        self.anchors.move(sensitivity, self.network.parameters())
