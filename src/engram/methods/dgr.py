"""Deep generative replay: a generator imitates earlier inputs, and the older network labels them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, final

import torch
from pydantic import Field
from torch import Tensor, nn

from engram.core.errors import NonFinite
from engram.core.schema import Since
from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner
from engram.methods.distil import Learned
from engram.methods.generative import GenerativeMemory, High, Inputs, Latent, Low, check_limits
from engram.methods.memory import join
from engram.methods.state import kept_bytes
from engram.models.heads import head_masks, mask_scores
from engram.models.network import frozen_copy
from engram.models.vae import VAE

ROUNDS = 10


@method("dgr", family="generative", paper="Shin et al. (2017)", needs=("boundaries",), takes_tokens=False)
@final
@dataclass(kw_only=True, eq=False)
class DGR(Learner):
    """Minimise (1/k)·L(new) + (1 − 1/k)·L(replayed) in the k-th task; the replayed inputs are generated.

    A separate variational autoencoder with two hidden layers each way generates as many inputs as a batch
    has. Their labels are the answers of the network at the end of the previous task (hard targets), among the
    units learned by then. In the task setting every earlier head labels an equal share of them, rounded up.
    The autoencoder is trained alongside the network, with the same optimiser, learning rate and number of
    updates: its loss on the new inputs has weight 1/k, that on inputs from its own previous version 1 − 1/k.

    An autoencoder also generates blends of two digits, which belong to no class, and more of them from task
    to task. With `sure`, an input whose label has a lower probability than that (by the older network; in the
    task setting by the head that labels it) is drawn again, at most ten times; then the surest of the eleven
    is used. Network and autoencoder both rehearse the result. On Split MNIST in the class setting, in the
    set-up of Hsu et al., over three paired seeds with `sure=0.9999`: 98 % of the images replayed in the
    second task and 95 % of those in the fifth look like the class of their label (without it 93 and 69 %),
    and ACC is .932 (.917). Classes that the network is seldom sure of are replayed less often: the rarest
    digit in the fifth task has .40 of its equal share (.51).

    Source: Shin et al. (2017), as in the code of van de Ven & Tolias (2018), with which Hsu et al. (2018;
    Section 3, Tables 2 and 3) obtained their numbers.
    Deviations: the autoencoder is updated after each update of the network instead of after all of them,
    which is equivalent, because both learn from the previous versions only; a network with batch norm sees
    new and replayed inputs in one batch; `sure` is not in the paper, and off by default.
    """

    latent: Latent = 100
    width: Annotated[
        int | None,
        Field(
            gt=0,
            description="units in each of its hidden layers (default: as many as the network has features)",
        ),
    ] = None
    low: Low = None
    high: High = None
    sure: Annotated[
        float,
        Since("2"),
        Field(
            ge=0,
            lt=1,
            description="least probability of the older network's label; other inputs are drawn again",
        ),
    ] = 0.0

    def setup(self) -> None:
        """There is no generator before the first batch, and no older network."""
        check_limits(self.low, self.high)
        self.dreams = GenerativeMemory(self._autoencoder, self.optimizer_spec, self.generator)
        self.learned = Learned()
        self.teacher: nn.Module | None = None

    def _autoencoder(self, inputs: Inputs) -> nn.Module:
        width = self.network.width if self.width is None else self.width
        return VAE(inputs.shape, hidden=(width, width), latent=self.latent, limits=inputs.limits)

    def rehearse(self, batch: Batch) -> Batch:
        """Join the new samples with generated ones, labelled by the older network."""
        if self.dreams.model is None:
            self.dreams.meet(Inputs.of(batch.x, low=self.low, high=self.high), batch.x.device)
        if self.teacher is None:
            return batch
        return join(batch, self.replayed(batch), weight=self.share, remembered_weight=1 - self.share)

    @property
    def share(self) -> float:
        """The weight of the new samples: 1/k in the k-th task."""
        assert self.task is not None
        return 1 / (1 + self.task.index)

    def replayed(self, batch: Batch) -> Batch:
        """Generated samples of all earlier tasks, as many as a full batch has."""
        assert self.task is not None
        heads = list(self.learned.before)
        size = self.task.batch_size
        x, y = self.imagined(size + -size % len(heads))
        head: int | Tensor = 0
        if len(batch.heads) > 1:
            head = torch.tensor(heads, device=x.device)[self._turns(len(x), x.device)]
        return Batch(x, y, heads=batch.heads, head=head)

    def imagined(self, size: int) -> tuple[Tensor, Tensor]:
        """Inputs of the previous generator, and their labels by the older network.

        An input whose label is not sure enough is drawn again, at most `ROUNDS` times, and replaced by any
        whose label is surer.
        """
        x = self.dreams.imagine(size)
        turns = self._turns(size, x.device)
        surety, y = self._answers(x, turns)
        for _ in range(ROUNDS):
            unsure = (surety < self.sure).nonzero()[:, 0]
            if len(unsure) == 0:
                break
            other = self.dreams.imagine(len(unsure))
            other_surety, other_y = self._answers(other, turns[unsure])
            better = other_surety > surety[unsure]
            places = unsure[better]
            x[places], surety[places], y[places] = other[better], other_surety[better], other_y[better]
        return x, y

    def _turns(self, size: int, device: torch.device) -> Tensor:
        """Which of the earlier heads labels each of `size` inputs: equal shares in the order of the heads."""
        return torch.arange(size, device=device) * len(self.learned.before) // size

    def _answers(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        """The probability and the label that the older network gives each input, among the learned units."""
        assert self.teacher is not None
        with torch.no_grad():
            scores = self.teacher(x)
        learned = tuple(tuple(units) for units in self.learned.before.values())
        scores = mask_scores(scores, head_masks(learned, scores.shape[1], x.device)[turns])
        return scores.softmax(dim=1).amax(dim=1), scores.argmax(dim=1)

    def after_step(self, batch: Batch) -> None:
        """Train the generator on the new inputs, and on inputs from its previous version."""
        self.learned.note(batch)
        model = self.dreams.model
        assert isinstance(model, VAE) and self.task is not None
        loss = self.share * model.loss(batch.x, self.dreams.noise(len(batch)))
        if self.dreams.previous is not None:
            size = self.task.batch_size
            older = self.imagined(size)[0] if self.sure else self.dreams.imagine(size)
            old = model.loss(older, self.dreams.noise(size))
            loss = loss + (1 - self.share) * old
        if not bool(loss.isfinite()):
            raise NonFinite("loss of the generator", loss.item())
        loss.backward()
        self.dreams.step(lr=self.optimizer.param_groups[0]["lr"])

    def begin_task(self, task: TaskInfo) -> None:
        """Reset the generator's optimiser together with the network's."""
        super().begin_task(task)
        self.dreams.begin_task(task)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Keep copies of the generator and the network, which are rehearsed from now on."""
        self.learned.end_task()
        self.dreams.end_task()
        self.teacher = frozen_copy(self.network)

    def kept_bytes(self) -> int:
        """The generator, its previous version, and the older network."""
        return kept_bytes(self, beside=("network", "optimizer", "dreams")) + self.dreams.bytes
