"""Experience replay: every update also uses remembered samples."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, final

from pydantic import Field

from engram.core.values import Batch
from engram.methods import method
from engram.methods.base import Learner
from engram.methods.memory import ClassBalanced, PerClass, Reservoir, join, pool
from engram.methods.traits import Settings


def needs_with(settings: Settings) -> tuple[str, ...]:
    """A reservoir is filled sample by sample; the other memories need to know when a task ends."""
    return ("stored data",) if settings["policy"] == "reservoir" else ("stored data", "boundaries")


@method(
    "er",
    family="rehearsal",
    paper="Chaudhry et al. (2019)",
    needs=("stored data", "boundaries"),
    needs_with=needs_with,
    bytes_per_value=4,
)
@final
@dataclass(kw_only=True, eq=False)
class ER(Learner):
    """Minimise weight · L(new) + (1 − weight) · L(remembered), each a mean over its own batch.

    `policy` says what is remembered: `class-balanced` is filled when a task ends, so that the samples of a
    task are never replayed while it is learned; `reservoir` is a uniform sample of the stream, filled after
    every update; `per-class` keeps `memory` samples of every class for good.

    Source: Chaudhry et al. (2019, tiny episodic memories) and Rolnick et al. (2019). The defaults are those
    of De Lange et al. (2023) on MNIST (Section 4.1, Eq. 8, α is `weight`; Appendix B, as many remembered
    samples as new ones); as in their code, the weight also scales the loss of the first task, when nothing is
    remembered yet. Michel et al. (2023; Section 5.2) use `policy=reservoir`, and in their code one mean over
    both (`weight=mean`). Chen et al. (2023; Appendix A.2, Eq. 7) use `policy=per-class` and `weight=sum`.
    Deviations: De Lange et al. name class-based reservoir sampling, but their code fills the memory when a
    task ends, as here. The code of Michel et al. makes no update while the reservoir is empty; here the very
    first batch is learned as well. Eq. 7 of Chen et al. is a mean over earlier tasks; here it is estimated on
    one batch from all memories together, in which a task with more stored samples counts more.
    """

    memory: Annotated[int, Field(gt=0, description="samples kept in total (per-class: of each class)")] = 2000
    memory_batch: Annotated[int, Field(gt=0, description="remembered samples in each update")] = 256
    weight: Annotated[
        Annotated[float, Field(gt=0, le=1)] | Literal["mean", "sum"],
        Field(
            description="weight of the loss of new samples, that of remembered ones is the rest; "
            "mean: one mean over both; sum: both with weight 1"
        ),
    ] = 0.3
    policy: Annotated[
        Literal["class-balanced", "reservoir", "per-class"], Field(description="what is remembered")
    ] = "class-balanced"

    def setup(self) -> None:
        """Make an empty memory."""
        kinds: dict[str, type[ClassBalanced | Reservoir | PerClass]]
        kinds = {"class-balanced": ClassBalanced, "reservoir": Reservoir, "per-class": PerClass}
        self.store = kinds[self.policy](self.memory, self.generator)

    def rehearse(self, batch: Batch) -> Batch:
        """Join the new samples with remembered ones."""
        if len(self.store) == 0:
            return weighted(batch, self.weight) if isinstance(self.weight, float) else batch
        remembered = self.store.sample(self.memory_batch, batch.heads)
        if self.weight == "mean":
            return pool(batch, remembered)
        if self.weight == "sum":
            return join(batch, remembered, weight=1.0, remembered_weight=1.0)
        assert isinstance(self.weight, float)
        return join(batch, remembered, weight=self.weight, remembered_weight=1 - self.weight)

    def after_step(self, batch: Batch) -> None:
        """Offer the new samples to a reservoir."""
        if isinstance(self.store, Reservoir):
            self.store.add(batch)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Fill the other memories from all samples of the task."""
        if not isinstance(self.store, Reservoir):
            self.store.fill(batches)


def weighted(batch: Batch, weight: float) -> Batch:
    """The batch with its mean loss multiplied by `weight`."""
    return replace(batch, weight=batch.x.new_full((len(batch),), weight / len(batch)), fresh=len(batch))
