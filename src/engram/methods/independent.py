"""Independent networks: nothing is shared or transferred between tasks."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, final

from pydantic import Field
from torch import Tensor, nn

from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner, identity_of
from engram.methods.optimizers import build_optimizer
from engram.methods.traits import Settings


def needs_with(settings: Settings) -> tuple[str, ...]:
    """Task identity is needed only to select the network of a task."""
    return ("task identity", "boundaries") if settings["keep"] else ("boundaries",)


@method(
    "independent",
    family="baseline",
    paper="Chen et al. (2023)",
    needs=("task identity", "boundaries"),
    needs_with=needs_with,
    fresh=True,
    one_network=False,
)
@final
@dataclass(kw_only=True, eq=False)
class Independent(Learner):
    """Start every task from the initial weights, and keep one network per task.

    Samples are answered by the network of their own task, those of a task that was not learned yet by the
    initial one: nothing is forgotten. The optimiser is reset as well. Memory grows with the number of tasks.
    Without `keep` the newest network answers for all tasks, including those that it never saw: everything is
    forgotten, and only the initial weights are kept.

    Source: Chen et al. (2023), Section 3.1 and Appendix A.2, Eq. 4 (IND), who do not say which network
    answers for earlier tasks; their correlations (Table 1) are only obtained without `keep`.
    Deviations: none.
    """

    keep: Annotated[
        bool, Field(description="keep a network for every task; otherwise the newest answers for all")
    ] = True

    def setup(self) -> None:
        """Remember the initial weights."""
        self.initial = copy.deepcopy(self.network).requires_grad_(False)
        self.learned: dict[int, nn.Module] = {}

    def begin_task(self, task: TaskInfo) -> None:
        """Go back to the initial weights."""
        if self.keep:
            identity_of(task, "independent")
        super().begin_task(task)
        self.network.load_state_dict(self.initial.state_dict())
        self.optimizer = build_optimizer(self.optimizer_spec, self.network.parameters())

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Keep the network of this task."""
        assert self.task is not None
        if self.keep:
            number = identity_of(self.task, "independent")
            self.learned[number] = copy.deepcopy(self.network).requires_grad_(False)

    def predictor(self) -> nn.Module:
        """All networks, each for its own task; the newest where they are not kept."""
        if self.task is None or not self.keep:
            return self.network
        current = identity_of(self.task, "independent")
        return Routed({**self.learned, current: self.network}, current=current, otherwise=self.initial)


@final
class Routed(nn.Module):
    """One network per task; where the task is unknown, the current one answers.

    Args:
        networks: The networks by task.
        current: The task that is learned.
        otherwise: The network that answers for tasks without one.

    Example:
        >>> one, two, none = nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1)
        >>> routed = Routed({0: one, 1: two}, current=1, otherwise=none)
        >>> routed.route(0) is one, routed.route(7) is none
        (True, True)
    """

    def __init__(self, networks: dict[int, nn.Module], *, current: int, otherwise: nn.Module) -> None:
        super().__init__()
        self.networks = nn.ModuleList([*networks.values(), otherwise])
        self.by_task = networks
        self.current = current
        self.otherwise = otherwise

    def route(self, task: int) -> nn.Module:
        """The network that answers for a task."""
        return self.by_task.get(task, self.otherwise)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of all output units, by the current network."""
        scores: Tensor = self.route(self.current)(x)
        return scores
