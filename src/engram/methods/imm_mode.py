"""Mode-IMM: one network per task, each started from the previous one, merged by importance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, final

import torch
from pydantic import Field
from torch import nn

from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.importance import batch_fisher, diagonal_fisher
from engram.methods.memory import Samples
from engram.methods.merging import (
    Balance,
    DropTransfer,
    L2Transfer,
    LatestShare,
    Weights,
    WeightTransfer,
    balance_curve,
    merge_modes,
    shares,
    transferred_loss,
    weights_of,
    with_frozen,
    with_weights,
)


@method("imm-mode", family="merging", paper="Lee et al. (2017)", needs=("boundaries",), merges=True)
@final
@dataclass(kw_only=True, eq=False)
class IMMMode(Learner):
    """Answer with Σ α_k F_k θ_k / Σ α_k F_k: the networks of all tasks so far, weighted by importance.

    θ_k is the network at the end of a task, F_k the diagonal Fisher information of the task's data there,
    with labels drawn from the network's own answers: the sum over samples, plus 10⁻⁸. While a task is
    learned, the current network stands for it, with F estimated from the `recent` samples that were seen
    last. With two tasks and balance α the result is ((1 − α)·F_1·θ_1 + α·F_2·θ_2) / ((1 − α)·F_1 + α·F_2).
    Each task starts from the weights of the previous one (weight-transfer), is pulled towards them by
    l2_transfer·‖θ − θ_before‖² (L2-transfer), and dropout replaces units by their previous values instead of
    by 0 (drop-transfer).

    Source: Lee et al. (2017); Pfülb & Gepperth (2019), Sections 2.1 and 3, Figure 6 and Table 4:
    weight-transfer with L2-transfer 0 or .01 and the best α on test data, which `curve` gives. Both squared
    the gradients of whole mini-batches (`fisher=batch`).
    Deviations: in the text of Pfülb & Gepperth the second network starts afresh, in their code from the
    first, as here; the statistics of batch norm are averaged, since they have no Fisher information;
    drop-transfer drops no inputs.
    """

    balance: LatestShare = "equal"
    weight_transfer: WeightTransfer = True
    l2_transfer: L2Transfer = 0.0
    drop_transfer: DropTransfer = 0.0
    fisher: Annotated[
        Literal["sample", "batch"], Field(description="squared gradients of samples, or of mini-batches")
    ] = "sample"
    recent: Annotated[int, Field(gt=0, description="samples that stand for the task being learned")] = 256

    def setup(self) -> None:
        """There are no finished networks yet; without weight-transfer, keep the initial weights."""
        self.ends: list[Weights] = []
        self.importances: list[Weights] = []
        self.start: Weights = {} if self.weight_transfer else weights_of(self.network)
        self.latest = Samples()
        self.heads: list[list[int]] = []
        self.learning = False

    def begin_task(self, task: TaskInfo) -> None:
        """Start from the weights of the previous task, or from the initial ones."""
        if not self.weight_transfer:
            self.network.load_state_dict(self.start)
        super().begin_task(task)
        self.latest = Samples()
        self.learning = True

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples, with L2-transfer and drop-transfer from the previous network."""
        return transferred_loss(self, partial(super().loss, batch))

    def after_step(self, batch: Batch) -> None:
        """Keep the samples that were seen last."""
        self.latest.append(batch)
        self.heads = [list(units) for units in batch.heads]
        extra = len(self.latest) - self.recent
        if extra > 0:
            self.latest.keep(torch.arange(extra, len(self.latest)))

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Keep the network of the task that ended, and the importance of its weights."""
        self.ends.append(weights_of(self.network))
        self.importances.append(self._importance(batches, self.generator))
        self.latest = Samples()
        self.learning = False

    def _importance(self, batches: Iterable[Batch], generator: torch.Generator) -> Weights:
        """The Fisher information of all samples of the task, estimated from these batches."""
        assert self.task is not None
        measure = diagonal_fisher if self.fisher == "sample" else batch_fisher
        means = measure(self.network, batches, label="sampled", generator=generator)
        names = [name for name, _ in self.network.named_parameters()]
        return {name: self.task.samples * mean for name, mean in zip(names, means, strict=True)}

    def predictor(self) -> nn.Module:
        """The merged network of all tasks so far."""
        if len(self.ends) + self.learning <= 1:
            return self.network
        return with_weights(self.network, self.merged(self.balance))

    def merged(self, balance: Balance) -> Weights:
        """The weights and buffers, merged with a given balance."""
        networks, importances = list(self.ends), list(self.importances)
        if len(self.latest):
            networks.append(weights_of(self.network))
            importances.append(self._importance(self._recent_batches(), self._same_draws()))
        merged = merge_modes(networks, importances, shares(len(networks), balance))
        return with_frozen(merged, self.network)

    def _recent_batches(self) -> list[Batch]:
        assert self.task is not None
        heads = tuple(tuple(units) for units in self.heads)
        rows = torch.arange(len(self.latest)).split(self.task.batch_size)
        return [self.latest.batch(chunk, heads) for chunk in rows]

    def _same_draws(self) -> torch.Generator:
        """A copy of the method's generator, so that an evaluation does not advance it."""
        copied = torch.Generator()
        copied.set_state(self.generator.get_state())
        return copied

    def curve(
        self, batches: Iterable[Batch], balances: Sequence[float] | None = None
    ) -> list[tuple[float, float]]:
        """The accuracy over the balance: see `engram.methods.merging.balance_curve`."""
        return balance_curve(self.network, self.merged, batches, balances=balances)
