"""When to evaluate."""

from dataclasses import dataclass
from numbers import Integral

from engram.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Schedule:
    """After every `every` updates, counted over the whole run, and always at the end of a task.

    With `per_epoch` the count restarts with every epoch and the first update of an epoch is evaluated; the
    end of a task is then not special. This is what the code of De Lange et al. (2023) does.

    Example:
        >>> [step for step in range(1, 8) if Schedule(3).due(step, last=step == 7)]
        [3, 6, 7]
        >>> [i for i in range(7) if Schedule(3, per_epoch=True).due(1, epoch_step=i)]
        [0, 3, 6]
    """

    every: int = 1
    per_epoch: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.every, Integral):
            raise InputError(f"every must be a whole number of updates, got {self.every!r}")
        if self.every < 1:
            raise InputError(f"every must be at least 1, got {self.every}")

    def __str__(self) -> str:
        """The schedule in words.

        Example:
            >>> print(Schedule(), Schedule(10), Schedule(10, per_epoch=True), sep=" | ")
            every update | every 10 updates | every 10 updates of an epoch
        """
        often = "every update" if self.every == 1 else f"every {self.every} updates"
        return f"{often} of an epoch" if self.per_epoch else often

    def due(self, step: int, *, epoch_step: int | None = None, last: bool = False) -> bool:
        """Whether to evaluate after update number `step`, the `epoch_step`-th (from 0) of its epoch."""
        if self.per_epoch:
            if epoch_step is None:
                raise InputError("per_epoch needs epoch_step: the number of the update in its epoch, from 0")
            return epoch_step % self.every == 0
        return last or step % self.every == 0
