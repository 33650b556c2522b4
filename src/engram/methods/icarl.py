"""iCaRL: exemplars of each class, and classification by the nearest mean of exemplars."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, final

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner, Terms
from engram.methods.memory import Latest, Samples, Sections, Turns, gather, pool
from engram.models.network import Network, frozen_copy

READ_AT_ONCE = 512


@method(
    "icarl",
    family="rehearsal",
    paper="Rebuffi et al. (2017)",
    needs=("boundaries", "stored data"),
    one_network=False,
)
@final
@dataclass(kw_only=True, eq=False)
class ICaRL(Learner):
    """Learn new classes while keeping the older network's answers; answer with the nearest mean of exemplars.

    - Every unit is a binary classifier (sigmoid, binary cross-entropy, summed over the units of all classes
      so far, mean over samples). The units of the task's classes learn the labels, those of older classes the
      answers that the network gave at the end of the last task.
    - The exemplars are mixed into the new data: a pass over the task shows each of them once.
    - When a task ends, ⌊memory / classes so far⌋ exemplars of each class are kept, chosen by herding: one
      after the other, so that the mean of their features (of unit length) is as close as possible to that of
      the class. Older classes give up those chosen last.
    - A sample is assigned to the class whose exemplars' mean feature is nearest to its own.

    Source: Rebuffi et al. (2017), Algorithms 1 to 5.
    Deviations: while a task is learned, its classes have no exemplars yet, and the latest samples of each (as
    many as a class will keep) stand in for them; where a class comes again in a later task (domain setting)
    it has exemplars of each task and one mean over all of them; images are not mirrored.
    """

    memory: Annotated[int, Field(gt=0, description="exemplars kept in total")] = 2000

    def setup(self) -> None:
        """There are no exemplars, and no older network."""
        self.store = Sections()
        self.turns = Turns(self.generator)
        self.recent = Latest(self.memory)
        self.teacher: nn.Module | None = None
        self.learned: list[int] = []

    def begin_task(self, task: TaskInfo) -> None:
        """Start a new order of rehearsal over the exemplars."""
        super().begin_task(task)
        self.turns.restart()
        self.recent = Latest(max(self.memory // (len(self.store.parts) + len(task.classes)), 1))

    def rehearse(self, batch: Batch) -> Batch:
        """Mix exemplars into the new samples."""
        assert self.task is not None
        if len(self.store) == 0:
            return batch
        index = self.turns.accompany(len(batch), len(self.store), times=1, samples=self.task.samples)
        return pool(batch, self.store.batch(index, batch.heads)) if len(index) else batch

    def loss(self, batch: Batch) -> Terms:
        """Labels for the units of this task, the older answers for the others."""
        assert self.task is not None
        logits = self.network(batch.x)
        current = sorted(self.task.classes)
        labels = functional.one_hot(batch.y, logits.shape[1]).to(logits.dtype)
        terms = Terms(_binary_losses(logits[:, current], labels[:, current]))
        older = sorted(set(self.learned) - set(current))
        if self.teacher is None or not older:
            return terms
        with torch.no_grad():
            before = torch.sigmoid(self.teacher(batch.x))
        return terms.plus(_binary_losses(logits[:, older], before[:, older]))

    def after_step(self, batch: Batch) -> None:
        """Keep the latest samples, which stand in for the class until it has exemplars."""
        self.recent.add(batch)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Choose exemplars of the task's classes, and keep a copy of the network."""
        network = frozen_copy(self.network)
        samples = gather(batches)
        classes = samples.y.unique().tolist()
        share = self.memory // (len(self.store.parts) + len(classes))
        self.store.trim(share)
        for name in classes:
            exemplars = samples.part(torch.nonzero(samples.y.cpu() == name).squeeze(1))
            exemplars.keep(herd(directions(network, exemplars), share))
            self.store.add(exemplars)
        self.learned = sorted({*self.learned, *classes})
        self.teacher = network
        self.recent = Latest(self.memory)

    def predictor(self) -> nn.Module:
        """The current nearest-mean classifier; the network itself before any sample was seen."""
        network = frozen_copy(self.network)
        parts = [part for part in (*self.store.parts, self.recent.samples) if len(part)]
        if not parts:
            return network
        batches = [part.batch(torch.arange(len(part)), ()) for part in parts]
        features = torch.cat([directions(network, batch) for batch in batches])
        labels = torch.cat([batch.y for batch in batches])
        units = labels.unique()
        means = torch.stack([features[labels == unit].mean(dim=0) for unit in units])
        return NearestMean(network, functional.normalize(means), units)


class NearestMean(nn.Module):
    """Scores each unit by minus the squared distance to the mean of its class, for features of length 1.

    Units without a mean score below all others (the largest squared distance is 4).
    """

    means: Tensor
    units: Tensor

    def __init__(self, network: Network, means: Tensor, units: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("means", means)
        self.register_buffer("units", units)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of all output units."""
        features = functional.normalize(self.network.features(x))
        scores = features.new_full((len(x), self.network.head.out_features), -5.0)
        scores[:, self.units] = -torch.cdist(features, self.means).square()
        return scores


def _binary_losses(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=1).mean()


def directions(network: Network, samples: Samples | Batch) -> Tensor:
    """The features of samples, scaled to unit length."""
    assert samples.x is not None
    with torch.no_grad():
        pieces = [functional.normalize(network.features(x)) for x in samples.x.split(READ_AT_ONCE)]
    return torch.cat(pieces)


def herd(features: Tensor, count: int) -> Tensor:
    """Up to `count` rows, chosen one by one so that their mean is as close as possible to the mean of all.

    The k-th row is the one, not yet taken, for which the mean of the k rows is nearest (Rebuffi et al. 2017,
    Algorithm 4).

    Example:
        >>> herd(torch.tensor([[0.0], [1.0], [2.0], [5.0]]), 3)  # the mean is 2
        tensor([2, 1, 3])
    """
    rows = features.double()
    mean = rows.mean(dim=0)
    lengths = rows.square().sum(dim=1)
    total = torch.zeros_like(mean)
    taken: list[int] = []
    for number in range(1, min(count, len(rows)) + 1):
        # ‖mean − (total + row) / number‖², without what is the same for all rows.
        distance = lengths - 2 * rows @ (number * mean - total)
        distance[taken] = torch.inf
        best = int(distance.argmin())
        taken.append(best)
        total = total + rows[best]
    return torch.tensor(taken, dtype=torch.int64)
