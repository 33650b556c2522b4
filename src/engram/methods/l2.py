"""L2: all weights are held where they were, equally strongly."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.importance import Anchors, Strength


@method("l2", family="prior", paper="Hsu et al. (2018)", needs=("boundaries",))
@final
@dataclass(kw_only=True, eq=False)
class L2(Learner):
    """Minimise L(new) + strength · Σ_i (θ_i − θ*_i)², θ* being the weights at the end of the latest task.

    Elastic weight consolidation with the identity as Fisher information, and a single anchor. All weights and
    biases of all heads are penalised; there is no factor ½. Not to be confused with weight decay, which pulls
    towards 0.

    Source: Hsu et al. (2018), Section 3 (L2 regularization), who describe it in words, and their code, which
    has this form and one anchor; Chen et al. (2023), Appendix B.7 and Table 6 (vanilla L2, λ = .01), who
    leave the form open. It is a baseline in Kirkpatrick et al. (2017).
    Deviations: none.
    """

    strength: Strength = 0.01

    def setup(self) -> None:
        """There is no anchor yet."""
        self.anchors = Anchors()

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples plus the penalty of the anchor."""
        return self.anchors.added_to(super().loss(batch), self.network, strength=self.strength)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Move the anchor to the current weights."""
        here = list(self.network.parameters())
        self.anchors.replace([p.new_ones(()) for p in here], here)
