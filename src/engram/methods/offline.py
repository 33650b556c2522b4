"""Offline training: all tasks at once, as if nothing ever came later."""

from dataclasses import dataclass
from typing import ClassVar, final

from engram.methods.base import Learner


@final
@dataclass(kw_only=True, eq=False)
class Offline(Learner):
    """Minimise the loss of all tasks' samples together, in one phase.

    The upper bound of 002 ("offline") and 004 (joint baseline). The union of all tasks is shuffled, and
    passed over as often as a single task is otherwise: the same number of epochs, hence about as many
    updates in all. Where updates are counted instead, it gets those of all tasks together.
    """

    family: ClassVar[str] = "baseline"
    paper: ClassVar[str] = "002, 004"
    joint: ClassVar[bool] = True
