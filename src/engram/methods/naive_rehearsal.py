"""Naive rehearsal: every update is half new samples, half remembered ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, final

from pydantic import Field

from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner
from engram.methods.memory import Sections, Turns, pool

Mode = Annotated[
    Literal["half", "concat"],
    Field(description="as many remembered samples as new ones (half), or the memory mixed in (concat)"),
]


@method(
    "naive-rehearsal",
    family="rehearsal",
    paper="Hsu et al. (2018)",
    needs=("boundaries", "stored data"),
    bytes_per_value=4,
)
@final
@dataclass(kw_only=True, eq=False)
class NaiveRehearsal(Learner):
    """Minimise the mean loss of new and remembered samples together, with equally many of both.

    When a task ends, each of the k tasks so far keeps ⌊memory / k⌋ random samples, in 32 bits per value; a
    task always gives up its latest picks first, so what remains is a uniform sample. `mode` says which
    samples are added to the new ones:

    - `half` is what Hsu et al. describe: as many as there are new ones, so that with a batch size of 64 an
      update sees 64 new and 64 remembered samples.
    - `concat` is what their code does: the memory, repeated ⌊new samples / memory⌋ times (at least once), is
      mixed into the new data, so a pass over the task shows each remembered sample that often. With 1,100
      places that is about half, with 4,400 two fifths.

    A batch size of 64 therefore corresponds to the mini-batches of 128 of Hsu et al., with twice as many
    updates per pass as methods without memory have.

    Source: Hsu et al. (2018), Section 3 (naive rehearsal strategy; 1,100 images) and Appendix A (4,000), and
    their code.
    Deviations: in the first task, when nothing is remembered, updates in the paper have 128 new samples, here
    64. With `concat`, batches in their code vary by chance around their shares, here the shares are even; and
    ⌊new samples / memory⌋ counts the samples in the memory, in their code its places.
    """

    memory: Annotated[int, Field(gt=0, description="samples kept in total")] = 1100
    mode: Mode = "half"

    def setup(self) -> None:
        """Nothing is remembered yet."""
        self.store = Sections()
        self.turns = Turns(self.generator)

    def begin_task(self, task: TaskInfo) -> None:
        """Start a new order of rehearsal over the current memory."""
        super().begin_task(task)
        self.turns.restart()

    def rehearse(self, batch: Batch) -> Batch:
        """Join the new samples with remembered ones."""
        assert self.task is not None
        return accompanied(batch, self.store, self.turns, mode=self.mode, samples=self.task.samples)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Share the memory equally between all tasks so far."""
        self.store.add_share(batches, capacity=self.memory, generator=self.generator)


def accompanied(batch: Batch, store: Sections, turns: Turns, *, mode: Mode, samples: int) -> Batch:
    """The new samples joined by the next remembered ones; an epoch of the task has `samples` samples."""
    remembered = len(store)
    if remembered == 0:
        return batch
    if mode == "half":
        index = turns.deal(len(batch), remembered)
    else:
        times = max(samples // remembered, 1)
        index = turns.accompany(len(batch), remembered, times=times, samples=samples)
    return pool(batch, store.batch(index, batch.heads)) if len(index) else batch
