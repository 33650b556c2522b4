"""PackNet: every task gets its own weights by pruning, and also uses those of earlier tasks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, final

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner, Terms, identity_of
from engram.models.network import Network


@method(
    "packnet",
    family="architecture",
    paper="Mallya & Lazebnik (2018)",
    needs=("task identity", "boundaries"),
    plans_updates=True,
    one_network=False,
)
@final
@dataclass(kw_only=True, eq=False)
class PackNet(Learner):
    """Train the free weights, free the smallest of them again, train the others once more, then fix them.

    A task is learned with the weights of earlier tasks, which are fixed, and all free ones. After a share 1 −
    `retrain` of the task's updates, a fraction `prune` of the free weights of each layer, those of smallest
    magnitude, is set to 0 and stays free for later tasks; the others become the task's own and continue to
    learn. An earlier task is answered with its own weights and those of the tasks before it, so its answers
    never change, to the bit. Biases and batch norm are learned with the first task and then fixed; the output
    units of a task are its own and are not pruned. A layer that is frozen (`requires_grad=False`) is used by
    all tasks as it is.

    Source: Mallya & Lazebnik (2018), who prune .5 to .75 and retrain for half as many epochs as they train.
    Deviations: pruning and retraining take place within the updates of the task, of which there are as many
    as for any other method.
    """

    prune: Annotated[
        float, Field(gt=0, lt=1, description="fraction of the free weights that a task leaves to later ones")
    ] = 0.75
    retrain: Annotated[
        float, Field(ge=0, lt=1, description="fraction of a task's updates that come after pruning")
    ] = 1 / 3

    def setup(self) -> None:
        """All weights that learn are free (0); an owned weight has its owner's number, from 1."""
        features = self.network.features.named_parameters(prefix="features")
        self.owner = {
            name: torch.zeros_like(weight, dtype=torch.int16)
            for name, weight in features
            if weight.dim() > 1 and weight.requires_grad
        }
        self.number_of: dict[int, int] = {}
        self.pruned = False
        self.before: list[Tensor] = []

    def begin_task(self, task: TaskInfo) -> None:
        """Number the task; it may use all free weights."""
        identity = identity_of(task, "packnet")
        super().begin_task(task)
        self.pruned = False
        self.number_of[identity] = task.index + 1

    def loss(self, batch: Batch) -> Terms:
        """The loss of the new samples; batch norm is held after the first task."""
        if self._number > 1:
            for part in self.network.modules():
                if isinstance(part, nn.modules.batchnorm._BatchNorm):
                    part.eval()
        return super().loss(batch)

    def edit_gradients(self, batch: Batch) -> None:
        """Set the gradients of weights that are not open to the task to 0."""
        for parameter, is_open in self._open():
            if parameter.grad is not None:
                parameter.grad *= is_open
        self.before = [parameter.detach().clone() for parameter in self.network.parameters()]

    def after_step(self, batch: Batch) -> None:
        """Restore weights that are not open, which momentum or weight decay may change; prune when due."""
        with torch.no_grad():
            for (parameter, is_open), before in zip(self._open(), self.before, strict=True):
                parameter.copy_(torch.where(is_open, parameter, before))
        self.before = []
        assert self.task is not None
        if not self.pruned and self.step_in_task >= round(self.task.steps * (1 - self.retrain)):
            self._prune()

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Prune, if the task ended before its planned number of updates."""
        if not self.pruned:
            self._prune()

    def predictor(self) -> nn.Module:
        """The network, which answers every task with the weights of that task."""
        return Packed(
            self.network, self.owner, dict(self.number_of), current=None if self.pruned else self._number
        )

    @property
    def _number(self) -> int:
        return 1 if self.task is None else self.task.index + 1

    def _open(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Every parameter, with a mask of the values that the task may change."""
        units = torch.zeros(self.network.head.out_features, dtype=torch.bool)
        units[list(self.task.classes if self.task is not None else ())] = True
        for name, parameter in self.network.named_parameters():
            if name in self.owner:
                yield parameter, self.owner[name] == (self._number if self.pruned else 0)
            elif name.startswith("head."):
                rows = units.to(parameter.device).view(-1, *[1] * (parameter.dim() - 1))
                yield parameter, rows.expand_as(parameter)
            else:
                yield parameter, torch.full_like(parameter, self._number == 1, dtype=torch.bool)

    def _prune(self) -> None:
        weights = dict(self.network.named_parameters())
        with torch.no_grad():
            for name, owner in self.owner.items():
                weight, holders = weights[name].view(-1), owner.view(-1)
                free = torch.nonzero(holders == 0).squeeze(1)
                kept = round(len(free) * (1 - self.prune))
                order = weight[free].abs().argsort(descending=True, stable=True)
                holders[free[order[:kept]]] = self._number
                weight[free[order[kept:]]] = 0.0
        self.pruned = True


class Packed(nn.Module):
    """A network that answers every task with the task's own weights and those of the tasks before it.

    Attributes:
        network: All weights.
        owner: For each weight, the number of the task that owns it, from 1; 0 if it is free.
        number_of: From a task's identity to its number.
        current: The task that still uses all free weights, if one does.
    """

    def __init__(
        self, network: Network, owner: dict[str, Tensor], number_of: dict[int, int], *, current: int | None
    ) -> None:
        super().__init__()
        self.network = network
        self.owner = owner
        self.number_of = number_of
        self.current = current

    def forward(self, x: Tensor) -> Tensor:
        """The scores that all weights together give."""
        scores: Tensor = self.network(x)
        return scores

    def route(self, task: int) -> nn.Module:
        """The network that answers a task; a task that was not learned yet is answered with all weights."""
        number = self.number_of.get(task)
        if number is None or number == self.current:
            return self.network
        masks = {name: (owner > 0) & (owner <= number) for name, owner in self.owner.items()}
        return Masked(self.network, masks)


class Masked(nn.Module):
    """A network with some of its weights masked to 0."""

    def __init__(self, network: nn.Module, masks: dict[str, Tensor]) -> None:
        super().__init__()
        self.network = network
        self.masks = masks

    def forward(self, x: Tensor) -> Tensor:
        """The scores of all output units."""
        weights = dict(self.network.named_parameters())
        held = {name: weights[name] * mask for name, mask in self.masks.items()}
        scores: Tensor = functional_call(self.network, held, (x,))
        return scores
