"""Linear probing, then fine-tuning: the head is trained before the features."""

from dataclasses import dataclass
from typing import Annotated, final

import torch
from pydantic import Field
from torch import nn

from engram.core.errors import InputError
from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.losses import batch_loss


@method(
    "lp-ft",
    family="representation",
    paper="Kumar et al. (2022)",
    needs=("boundaries",),
    plans_updates=True,
)
@final
@dataclass(kw_only=True, eq=False)
class LPFT(Learner):
    """Minimise the loss of the new samples over the head alone at first, then over all weights.

    An untrained head sends back large gradients that distort good features. So the first `probe_epochs`
    passes over the data of each task train the head on fixed features, which are in evaluation mode (batch
    norm and dropout too), and the remaining updates train everything.

    Source: Kumar et al. (2022), in the continual version of Chen et al. (2023), Appendix A.2, Eq. 5 (the
    head), then Eq. 4 (all weights), where it follows pretraining; Appendix A.3: 10 epochs of linear probing
    per task, learning rate .001.
    Deviations: Chen et al. do not say whether these 10 are among the 20 epochs per task after pretraining.
    Here they are: probing takes its updates from those of the task, under one learning rate schedule. Where a
    task has fewer than twice `probe_epochs` passes, half of its updates are for the head, so that all weights
    are always trained too. The evaluation mode of the features is a choice made here.
    """

    probe_epochs: Annotated[int, Field(ge=0, description="passes that train the head alone")] = 10

    def setup(self) -> None:
        """Refuse a network without features and a trainable head; features may be frozen."""
        parts = [getattr(self.network, name, None) for name in ("features", "head")]
        if not all(isinstance(part, nn.Module) and list(part.parameters()) for part in parts) or not any(
            weight.requires_grad for weight in self.network.head.parameters()
        ):
            raise InputError(
                "method lp-ft needs a network with trainable features and a separate head: "
                "give the model hidden layers, or wrap it with engram.models.network.Network.wrap"
            )
        self.probe_steps = 0

    def begin_task(self, task: TaskInfo) -> None:
        """Compute how many updates train the head alone."""
        super().begin_task(task)
        steps_in_pass = -(-task.samples // task.batch_size)
        self.probe_steps = min(self.probe_epochs * steps_in_pass, task.steps // 2)

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples; while probing, no gradient reaches the features."""
        if self.step_in_task >= self.probe_steps:
            return super().loss(batch)
        self.network.features.eval()
        with torch.no_grad():
            features = self.network.features(batch.x)
        return batch_loss(self.network.head(features), batch)
