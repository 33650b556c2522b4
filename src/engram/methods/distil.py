"""Distillation losses, which preserve the answers of an older network, and the units they apply to."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from engram.core.values import Batch
from engram.methods.state import State
from engram.models.heads import copied_scores, head_of_each

Form = Literal["kl", "cross-entropy"]
Softmax = Literal["known", "padded", "all"]


def distillation(
    current: Tensor,
    previous: Tensor,
    *,
    temperature: float,
    squared: bool = False,
    form: Form = "kl",
    mean_over_units: bool = False,
    units: Sequence[int] | None = None,
) -> Tensor:
    """The distance of the current answers from the previous ones, both softened by the temperature.

    Per sample −Σ q·log p (`form="cross-entropy"`), or that minus the entropy of q (`form="kl"`, so equal
    answers cost nothing), q and p being the softmax of the previous and the current scores divided by the
    temperature; then the mean over samples. If there are more current units than previous ones, the
    further units get the target 0 (class setting of van de Ven's code).

    Args:
        current: Scores of the network that learns, samples × units.
        previous: Scores of the older network on the same samples, for the first of those units.
        temperature: Above 1 softens the answers.
        squared: Multiply by temperature², so that gradients keep their size.
        form: `kl` or `cross-entropy`.
        mean_over_units: Divide by the number of current units as well (van de Ven's code of 2018).
        units: Sum over these units only, although all share the softmax (as De Lange et al. (2023) do).

    Example:
        >>> now, then = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[2.0, 0.0, -1.0]])
        >>> float(distillation(now, then, temperature=2.0))
        0.0
    """
    target = functional.softmax(previous / temperature, dim=1)
    answer = functional.log_softmax(current / temperature, dim=1)[:, : target.shape[1]]
    if units is not None:
        target, answer = copied_scores(target, units), copied_scores(answer, units)
    loss = -(target * answer).sum(dim=1)
    if form == "kl":
        # Softmax may underflow to 0, and 0 · log 0 counts as 0.
        loss = loss + torch.special.xlogy(target, target).sum(dim=1)
    if mean_over_units:
        loss = loss / current.shape[1]
    scale = temperature**2 if squared else 1.0
    return scale * loss.mean()


def head_distillation(
    current: Tensor,
    previous: Tensor,
    *,
    known: Sequence[int],
    active: Sequence[int],
    temperature: float,
    softmax: Softmax = "known",
    squared: bool = False,
    form: Form = "kl",
    mean_over_units: bool = False,
) -> Tensor:
    """The `distillation` loss of one head, from the scores of all output units.

    Args:
        current: Scores of the network that learns, samples × all units.
        previous: Scores of the older network, likewise.
        known: The units that the older network has learned.
        active: The units that compete now; the known ones are among them.
        temperature: Above 1 softens the answers.
        softmax: Whose softmax is compared: that of the `known` units on both sides; on the side of the
            network that learns that of the active ones, new units having the target 0 (`padded`); or that of
            `all` active units on both sides, summed over the known ones.
        squared: Multiply by temperature².
        form: `kl` or `cross-entropy`.
        mean_over_units: Divide by the number of current units as well.

    Example:
        >>> now, then = torch.tensor([[2.0, 0.0, 5.0]]), torch.tensor([[2.0, 0.0, 9.0]])
        >>> float(head_distillation(now, then, known=[0, 1], active=[0, 1, 2], temperature=2.0))
        0.0
    """
    if softmax == "all":
        now, then = copied_scores(current, active), copied_scores(previous, active)
        compared: list[int] | None = [place for place, unit in enumerate(active) if unit in set(known)]
    else:
        further = [unit for unit in active if unit not in set(known)] if softmax == "padded" else []
        now, then = copied_scores(current, [*known, *further]), copied_scores(previous, known)
        compared = None
    return distillation(
        now,
        then,
        temperature=temperature,
        squared=squared,
        form=form,
        mean_over_units=mean_over_units,
        units=compared,
    )


class Learned:
    """Which output units of which head have been learned, now and when the last task ended.

    The units are taken from the labels, which works in every setting: with one head per task, and with a
    single head that is the same for all tasks or grows.

    Example:
        >>> learned = Learned()
        >>> learned.note(Batch(torch.zeros(2, 1), torch.tensor([3, 2]), heads=((0, 1), (2, 3)), head=1))
        >>> learned.before, learned.end_task(), learned.before
        ({}, None, {1: [2, 3]})
    """

    def __init__(self) -> None:
        self.now: dict[int, list[int]] = {}
        self.before: dict[int, list[int]] = {}

    def note(self, batch: Batch) -> None:
        """Add the units of a batch's labels to those being learned."""
        heads = head_of_each(batch)
        for head in heads.unique().tolist():
            units = set(batch.y[heads == head].unique().tolist())
            self.now[head] = sorted(units.union(self.now.get(head, [])))

    def end_task(self) -> None:
        """All units learned so far belong to earlier tasks from now on."""
        self.before = {head: list(units) for head, units in self.now.items()}

    def state_dict(self) -> State:
        """Both tables."""
        return {"now": self.now, "before": self.before}

    def load_state_dict(self, state: State) -> None:
        """Restore both tables."""
        self.now, self.before = dict(state["now"]), dict(state["before"])
