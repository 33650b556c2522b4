"""Replay through feedback: one network classifies and generates inputs like those of earlier tasks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, final

import torch
from pydantic import Field
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.distil import Learned, head_distillation
from engram.methods.generative import GenerativeMemory, High, Inputs, Latent, Low, check_limits
from engram.methods.losses import cross_entropy
from engram.methods.state import kept_bytes
from engram.models.network import frozen_copy
from engram.models.vae import Feedback


@method(
    "rtf",
    family="generative",
    paper="van de Ven & Tolias (2018)",
    needs=("boundaries",),
    takes_tokens=False,
)
@final
@dataclass(kw_only=True, eq=False)
class RtF(Learner):
    """Minimise (1/k)·L(new) + (1 − 1/k)·L(replayed) in the k-th task, with a generator inside the network.

    The features of the network are also the encoder of a variational autoencoder, whose code and decoder are
    added to the network ("feedback connections"). Each L is the sum, with all weights 1, of the
    reconstruction loss, the latent loss and the classification loss, which is the cross-entropy of new
    samples and the distillation loss of replayed ones: their targets are the softened answers of the previous
    version of the network, which also generated them (soft targets), and new units have the target 0. In the
    task setting every earlier head is compared on an equal share of them, rounded up; the losses of the heads
    are averaged.

    Source: van de Ven & Tolias (2018) and their code, with which Hsu et al. (2018; Section 3, Tables 2 and 3)
    obtained their numbers: temperature 2, T² factor, and the distillation loss divided by the number of units
    (`mean_over_units`, which later versions leave out).
    Deviations: none.
    """

    temperature: Annotated[float, Field(gt=0, description="softens the answers")] = 2.0
    mean_over_units: Annotated[bool, Field(description="divide distillation by the number of units")] = True
    latent: Latent = 100
    width: Annotated[
        int | None,
        Field(
            gt=0,
            description="units in the decoder's two hidden layers (default: as many as there are features)",
        ),
    ] = None
    low: Low = None
    high: High = None

    def setup(self) -> None:
        """There is no decoder before the first batch, and no older network."""
        if not any(True for _ in self.network.features.parameters()):
            raise InputError(
                "method rtf encodes with the network's features, and this one has none: give it hidden layers"
            )
        check_limits(self.low, self.high)
        self.dreams = GenerativeMemory(self._feedback, self.optimizer_spec, self.generator)
        self.learned = Learned()
        self.teacher: nn.Module | None = None

    def _feedback(self, inputs: Inputs) -> nn.Module:
        width = self.network.width if self.width is None else self.width
        hidden = (width, width)
        return Feedback(
            self.network.width, inputs.shape, hidden=hidden, latent=self.latent, limits=inputs.limits
        )

    def loss(self, batch: Batch) -> Terms:
        """The classification and reconstruction losses of new and replayed samples."""
        if self.dreams.model is None:
            self.dreams.meet(Inputs.of(batch.x, low=self.low, high=self.high), batch.x.device)
        logits, generative = self._both_ways(batch.x)
        new = cross_entropy(logits, batch) + generative
        if self.teacher is None:
            return Terms(new)
        assert self.task is not None
        share = 1 / (1 + self.task.index)
        return Terms(share * new, (1 - share) * self._replayed_loss(batch))

    def _both_ways(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of all units, and the generative loss."""
        model = self.dreams.model
        assert isinstance(model, Feedback)
        features = self.network.features(x)
        return self.network.head(features), model.loss(features, x, self.dreams.noise(len(x)))

    def _replayed_loss(self, batch: Batch) -> Tensor:
        assert self.task is not None and self.teacher is not None
        heads = self.learned.before
        share = -(-self.task.batch_size // len(heads))
        x = self.dreams.imagine(share * len(heads))
        with torch.no_grad():
            before = self.teacher(x)
        logits, generative = self._both_ways(x)
        kept = [
            head_distillation(
                now,
                then,
                known=units,
                active=batch.heads[head],
                temperature=self.temperature,
                softmax="padded",
                squared=True,
                form="cross-entropy",
                mean_over_units=self.mean_over_units,
            )
            for (head, units), now, then in zip(
                heads.items(), logits.split(share), before.split(share), strict=True
            )
        ]
        return generative + torch.stack(kept).mean()

    def after_step(self, batch: Batch) -> None:
        """Update the decoder with its gradients from the same backward pass."""
        self.dreams.step(lr=self.optimizer.param_groups[0]["lr"])
        self.learned.note(batch)

    def begin_task(self, task: TaskInfo) -> None:
        """Reset the decoder's optimiser together with the network's."""
        super().begin_task(task)
        self.dreams.begin_task(task)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Keep copies of the decoder and the network, which are rehearsed from now on."""
        self.learned.end_task()
        self.dreams.end_task()
        self.teacher = frozen_copy(self.network)

    def kept_bytes(self) -> int:
        """The decoder, its previous version, and the older network."""
        return kept_bytes(self, beside=("network", "optimizer", "dreams")) + self.dreams.bytes
