"""Fine-tuning: learn what comes, protect nothing."""

from dataclasses import dataclass
from typing import final

from engram.methods import method
from engram.methods.base import Learner


@method("finetune", family="baseline")
@final
@dataclass(kw_only=True, eq=False)
class Finetune(Learner):
    """Minimise the loss of the new samples alone.

    The lower baseline of all five papers; the optimiser is part of the experiment, and so is whether it
    starts anew with every task (000's code) or never (002, Section 3).

    Source: 000, Section 4.1 and Appendix C.1 (finetuning); 001, Section 5.2 (finetune); 002, Section 3
    (Adam, SGD, Adagrad); 003, Appendix A.2, Eq. 4 (FT); 004, Section 2 (FC, CONV).
    Deviations: none.
    """
