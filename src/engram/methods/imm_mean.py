"""Mean-IMM: one network per task, each started from the previous one, averaged into one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

from torch import nn

from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.merging import (
    Balance,
    DropTransfer,
    L2Transfer,
    LatestShare,
    Weights,
    WeightTransfer,
    balance_curve,
    merge_means,
    separate_units,
    shares,
    transferred_loss,
    weights_of,
    with_frozen,
    with_weights,
)


@method("imm-mean", family="merging", paper="Lee et al. (2017)", needs=("boundaries",), merges=True)
@final
@dataclass(kw_only=True, eq=False)
class IMMMean(Learner):
    """Answer with Σ α_k θ_k, the mean of the networks at the ends of the tasks so far.

    While a task is learned, the current network stands for that task. With two tasks and balance α the result
    is (1 − α)·θ_1 + α·θ_2. Where tasks have separate heads, the output units of a task are averaged among the
    networks that trained them, which are usually those of one task. Averaging only makes sense between
    networks that are close to each other, so each task starts from the weights of the previous one
    (weight-transfer), is pulled towards them by l2_transfer·‖θ − θ_before‖² (L2-transfer), and dropout
    replaces units by their previous values instead of by 0 (drop-transfer).

    Source: Lee et al. (2017); Pfülb & Gepperth (2019), Sections 2.1 and 3, Figure 6 and Table 4:
    weight-transfer with L2-transfer 0 or .01 and the best α on test data, which `curve` gives.
    Deviations: in the text of Pfülb & Gepperth the second network starts afresh, in their code from the
    first, as here; the statistics of batch norm are averaged as well; drop-transfer drops no inputs.
    """

    balance: LatestShare = "equal"
    weight_transfer: WeightTransfer = True
    l2_transfer: L2Transfer = 0.0
    drop_transfer: DropTransfer = 0.0

    def setup(self) -> None:
        """There are no finished networks yet; without weight-transfer, keep the initial weights."""
        self.ends: list[Weights] = []
        self.trained: list[set[int]] = []
        self.start: Weights = {} if self.weight_transfer else weights_of(self.network)
        self.learning = False

    def begin_task(self, task: TaskInfo) -> None:
        """Start from the weights of the previous task, or from the initial ones."""
        if not self.weight_transfer:
            self.network.load_state_dict(self.start)
        super().begin_task(task)
        self.trained.append(set())
        self.learning = True

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples, with L2-transfer and drop-transfer from the previous network."""
        return transferred_loss(self, partial(super().loss, batch))

    def after_step(self, batch: Batch) -> None:
        """Note the output units that this network trains, where heads are separate."""
        self.trained[-1] |= separate_units(batch)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Keep the network of the task that ended."""
        self.ends.append(weights_of(self.network))
        self.learning = False

    def predictor(self) -> nn.Module:
        """The merged network of all tasks so far."""
        if len(self.ends) + self.learning <= 1:
            return self.network
        return with_weights(self.network, self.merged(self.balance))

    def merged(self, balance: Balance) -> Weights:
        """The weights and buffers, merged with a given balance."""
        now = [weights_of(self.network)] if self.learning or not self.ends else []
        networks = [*self.ends, *now]
        trained = self.trained[: len(networks)]
        merged = merge_means(networks, shares(len(networks), balance), trained=trained)
        return with_frozen(merged, self.network)

    def curve(
        self, batches: Iterable[Batch], balances: Sequence[float] | None = None
    ) -> list[tuple[float, float]]:
        """The accuracy over the balance: see `engram.methods.merging.balance_curve`."""
        return balance_curve(self.network, self.merged, batches, balances=balances)
