"""Dark experience replay: the memory also holds the scores of the network."""

from dataclasses import dataclass
from typing import Annotated, final

import torch
from pydantic import Field
from torch.nn import functional

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.losses import cross_entropy
from engram.methods.memory import Reservoir


@method("der++", family="rehearsal", paper="Buzzega et al. (2020)", needs=("stored data",))
@final
@dataclass(kw_only=True, eq=False)
class DERPP(Learner):
    """Minimise L(new) + logit_weight · ‖z − z₀‖² + label_weight · L(remembered).

    z are the scores of remembered samples now, z₀ their scores when they were stored; the square is a mean
    over samples and over all output units. The loss of the labels is computed on a second draw from the same
    memory, a reservoir of the stream that is filled after every update with the scores from before it.

    Source: Buzzega et al. (2020), Eq. 6 (α = `logit_weight`, β = `label_weight`; β = 0 is plain DER). The
    defaults are those that they use most for CIFAR-10. As in their code, the three batches pass through the
    network one by one.
    """

    memory: Annotated[int, Field(gt=0, description="samples kept in total")] = 2000
    memory_batch: Annotated[
        int | None,
        Field(gt=0, description="remembered samples in each draw (default: as many as new ones)"),
    ] = None
    logit_weight: Annotated[float, Field(ge=0, description="weight of the remembered scores (α)")] = 0.1
    label_weight: Annotated[float, Field(ge=0, description="weight of the remembered labels (β)")] = 0.5

    def setup(self) -> None:
        """Make an empty memory, and a table of the scores of its samples."""
        self.store = Reservoir(self.memory, self.generator)
        self.scores = torch.empty(0, self.network.head.out_features)
        self.answers = torch.empty(0)

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples, and the losses on the scores and the labels of remembered ones."""
        logits = self.network(batch.x)
        self.answers = logits.detach()
        terms = Terms(cross_entropy(logits, batch))
        if len(self.store) == 0:
            return terms
        size = self.memory_batch or len(batch)
        places = self.store.draw(size)
        again = self.network(self.augmented(self.store.samples.batch(places, batch.heads)).x)
        drift = functional.mse_loss(again, self.scores[places])
        second = self.augmented(self.store.sample(size, batch.heads))
        label_loss = cross_entropy(self.network(second.x), second)
        return terms.plus(self.logit_weight * drift + self.label_weight * label_loss)

    def after_step(self, batch: Batch) -> None:
        """Offer the new samples to the reservoir, with their scores from before the update."""
        chosen = self.store.add(batch)
        missing = len(self.store) - len(self.scores)
        self.scores = torch.cat(
            [self.scores.to(self.answers), self.answers.new_zeros(missing, self.answers.shape[1])]
        )
        if chosen:
            self.scores[list(chosen)] = self.answers[list(chosen.values())]
        self.answers = torch.empty(0)
