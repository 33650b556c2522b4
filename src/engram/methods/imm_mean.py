"""Mean-IMM: one network per task, each started from the previous one, averaged into one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, final

from pydantic import Field
from torch import nn

from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.merging import (
    Balance,
    Weights,
    balance_curve,
    merge_means,
    shares,
    squared_distance,
    transfer_dropout,
    weights_of,
    with_weights,
)


@method("imm-mean", family="merging", paper="Lee et al. (2017)", needs=("boundaries",), merges=True)
@final
@dataclass(kw_only=True, eq=False)
class IMMMean(Learner):
    """Answer with Σ α_k θ_k, the mean of the networks at the ends of the tasks so far.

    While a task is learned, the current network stands for that task. With two tasks and balance α the result
    is (1 − α)·θ_1 + α·θ_2. Averaging only makes sense between networks that are close to each other, so each
    task starts from the weights of the previous one (weight-transfer), is pulled towards them by
    l2_transfer·‖θ − θ_before‖² (L2-transfer), and dropout replaces units by their previous values instead of
    by 0 (drop-transfer).

    Source: Lee et al. (2017); Pfülb & Gepperth (2019), Sections 2.1 and 3, Figure 6 and Table 4:
    weight-transfer with L2-transfer 0 or .01 and the best α on test data, which `curve` gives.
    Deviations: in the text of Pfülb & Gepperth the second network starts afresh, in their code from the
    first, as here; the statistics of batch norm are averaged as well; drop-transfer drops no inputs.
    """

    balance: Annotated[
        Annotated[float, Field(ge=0, le=1)] | Literal["equal"],
        Field(description="weight of the latest network (α), the others sharing the rest; or all equal"),
    ] = "equal"
    weight_transfer: Annotated[bool, Field(description="start a task from the weights of the one before")] = (
        True
    )
    l2_transfer: Annotated[float, Field(ge=0, description="strength of the pull to those weights")] = 0.0
    drop_transfer: Annotated[float, Field(ge=0, lt=1, description="how often a unit falls back to them")] = (
        0.0
    )

    def setup(self) -> None:
        """There are no finished networks; without weight-transfer all tasks start alike."""
        self.ends: list[Weights] = []
        self.start: Weights = {} if self.weight_transfer else weights_of(self.network)
        self.learning = False

    def begin_task(self, task: TaskInfo) -> None:
        """Start from the weights of the task before, or from the first ones."""
        if not self.weight_transfer:
            self.network.load_state_dict(self.start)
        super().begin_task(task)
        self.learning = True

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples, near the network before."""
        before = self.ends[-1] if self.ends else None
        with transfer_dropout(self.network, before, rate=self.drop_transfer, generator=self.generator):
            terms = super().loss(batch)
        if before is None or self.l2_transfer == 0:
            return terms
        return terms.plus(self.l2_transfer * squared_distance(self.network, before))

    def end_task(self, batches: Iterable[Batch]) -> None:
        """One more network to merge."""
        self.ends.append(weights_of(self.network))
        self.learning = False

    def predictor(self) -> nn.Module:
        """The networks of all tasks so far in one."""
        if len(self.ends) + self.learning <= 1:
            return self.network
        return with_weights(self.network, self.merged(self.balance))

    def merged(self, balance: Balance) -> Weights:
        """Weights and buffers, merged with some balance."""
        now = [weights_of(self.network)] if self.learning or not self.ends else []
        networks = [*self.ends, *now]
        return merge_means(networks, shares(len(networks), balance))

    def curve(
        self, batches: Iterable[Batch], balances: Sequence[float] | None = None
    ) -> list[tuple[float, float]]:
        """Accuracy on some samples over the balance: see `engram.methods.merging.balance_curve`."""
        return balance_curve(self.network, self.merged, batches, balances=balances)
