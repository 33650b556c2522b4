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

    The lower baseline. The optimiser is part of the experiment, and so is whether its state is cleared with
    every task (as in the code of De Lange et al.) or never (Hsu et al., Section 3).

    Source: De Lange et al. (2023), Section 4.1 and Appendix C.1 (finetuning); Michel et al. (2023), Section
    5.2 (finetune); Hsu et al. (2018), Section 3 (Adam, SGD, Adagrad); Chen et al. (2023), Appendix A.2, Eq. 4
    (FT); Pfülb & Gepperth (2019), Section 2 (FC, CONV).
    Deviations: none.
    """
