"""Naive rehearsal with compressed samples: four times as many in the same bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, final

from pydantic import Field

from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.base import Learner
from engram.methods.memory import CodedSamples, Sections, Turns
from engram.methods.naive_rehearsal import Mode, accompanied


@method(
    "naive-rehearsal-c",
    family="rehearsal",
    paper="Hsu et al. (2018)",
    needs=("boundaries", "stored data"),
    bytes_per_value=1,
    bytes_beside=16,
    takes_tokens=False,
)
@final
@dataclass(kw_only=True, eq=False)
class NaiveRehearsalC(Learner):
    """Naive rehearsal with samples in 8 bits per value: four times as many samples in the same bytes.

    The rule is that of `naive-rehearsal`. Values are coded in 256 levels between the lowest and the highest
    value of the task's samples, which loses nothing for images that were bytes, and decoded when they are
    rehearsed.

    Source: Hsu et al. (2018), Section 3 (Naive rehearsal-C; 4,400 images) and Appendix A (16,000), and their
    code.
    Deviations: those of `naive-rehearsal`; their code keeps as many images in 32 bits, which are the same
    images.
    """

    memory: Annotated[int, Field(gt=0, description="samples kept in total")] = 4400
    mode: Mode = "half"

    def setup(self) -> None:
        """Nothing is remembered yet."""
        self.store = Sections(CodedSamples)
        self.turns = Turns(self.generator)

    def begin_task(self, task: TaskInfo) -> None:
        """Start a new order of rehearsal over the current memory."""
        super().begin_task(task)
        self.turns.restart()

    def rehearse(self, batch: Batch) -> Batch:
        """Join the new samples with remembered ones, decoded."""
        assert self.task is not None
        return accompanied(batch, self.store, self.turns, mode=self.mode, samples=self.task.samples)

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Share the memory equally between all tasks so far; the new samples are coded."""
        self.store.add_share(batches, capacity=self.memory, generator=self.generator)
