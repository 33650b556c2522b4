"""Asymmetric replay: new samples do not lower the scores of old classes."""

from dataclasses import dataclass
from typing import Annotated, final

import torch
from pydantic import Field
from torch.nn import functional

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.losses import cross_entropy
from engram.methods.memory import Reservoir, join, select
from engram.models.heads import head_masks, head_of_each, mask_scores


@method(
    "er-ace",
    family="rehearsal",
    paper="Caccia et al. (2022)",
    needs=("stored data",),
    bytes_per_value=4,
)
@final
@dataclass(kw_only=True, eq=False)
class ERACE(Learner):
    """Minimise L(new), with only the classes of the new batch, plus L(remembered), with all classes.

    So a new sample never lowers the scores of classes that are not in its batch; old and new classes are told
    apart by means of the memory alone. Both losses are means over their own samples. The memory is a
    reservoir of the whole stream, filled after every update.

    Source: Caccia et al. (2022), Eq. 3 (ER-ACE). In their code classes that were never seen compete as well;
    here the setting determines which units compete. New and remembered samples pass through the network
    together, which matters to batch norm only.
    """

    memory: Annotated[int, Field(gt=0, description="samples kept in total")] = 2000
    memory_batch: Annotated[
        int | None,
        Field(gt=0, description="remembered samples in each update (default: as many as new ones)"),
    ] = None

    def setup(self) -> None:
        """Make an empty memory."""
        self.store = Reservoir(self.memory, self.generator)

    def rehearse(self, batch: Batch) -> Batch:
        """Join the new samples with remembered ones."""
        if len(self.store) == 0:
            return batch
        remembered = self.store.sample(self.memory_batch or len(batch), batch.heads)
        return join(batch, remembered, weight=1.0, remembered_weight=1.0)

    def loss(self, batch: Batch) -> Terms:
        """The losses of new and of remembered samples, in which different units compete."""
        logits = self.network(batch.x)
        fresh = len(batch) if batch.fresh is None else batch.fresh
        y = batch.y[:fresh]
        present = torch.zeros(logits.shape[1], dtype=torch.bool, device=logits.device)
        present[y] = True
        heads = head_masks(batch.heads, logits.shape[1], logits.device)[head_of_each(batch)[:fresh]]
        terms = Terms(functional.cross_entropy(mask_scores(logits[:fresh], heads & present), y))
        if fresh == len(batch):
            return terms
        return terms.plus(cross_entropy(logits[fresh:], select(batch, slice(fresh, None))))

    def after_step(self, batch: Batch) -> None:
        """Offer the new samples to the reservoir."""
        self.store.add(batch)
