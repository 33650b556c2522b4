"""Fine-tuning: learn what comes, protect nothing."""

from dataclasses import dataclass
from typing import ClassVar, final

from engram.methods.base import Learner


@final
@dataclass(kw_only=True, eq=False)
class Finetune(Learner):
    """Minimise the loss of the new samples alone.

    The lower baseline of all five papers (000, 001 "finetune", 002 "Adam", "SGD", "Adagrad", 003 "FT",
    004 "FC", "CONV"); the optimiser is part of the experiment.
    """

    family: ClassVar[str] = "baseline"
    paper: ClassVar[str] = "000, 001, 002, 003, 004"
