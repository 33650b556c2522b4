"""Offline training: all tasks at once."""

from dataclasses import dataclass
from typing import final

from engram.methods import method
from engram.methods.base import Learner


@method("offline", family="baseline", joint=True)
@final
@dataclass(kw_only=True, eq=False)
class Offline(Learner):
    """Minimise the loss of all tasks' samples together, in one phase.

    The union of all tasks is shuffled, and passed over as often as a single task would be: the same number of
    epochs, hence about as many updates in total. Where updates are counted instead, it gets those of all
    tasks together. On the small digits benchmarks, where that is not enough to converge, it makes five times
    the passes of a task (`--epochs` sets another number).

    Source: Hsu et al. (2018), Tables 2 and 3 (offline, upper bound), with the number of epochs of their code;
    Pfülb & Gepperth (2019), Section 3 (the training on D1 ∪ D2 that gives the baseline accuracy).
    Deviations: none.
    """
