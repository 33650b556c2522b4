"""Loss of plasticity: how well each task is learned, against a fresh network (Dohare et al., 2024)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.jsons import JsonObject
from engram.metrics.arrays import row_means
from engram.metrics.intervals import over_seeds
from engram.protocols.drive import Plan, finished
from engram.record.experiment import Experiment
from engram.record.run import Run

FRESH: Final = "independent"
PROBES: Final = ("dormant units", "effective rank")


@dataclass(frozen=True, slots=True, eq=False)
class PlasticityOutcome:
    """How well each task was learned by the network and by a fresh one.

    Attributes:
        after: After how many updates of a task its accuracy was read; None is its end.
        learned: The accuracy of the task being learned, `[after, seed, task]`; NaN where it was not
            evaluated by then.
        fresh: The same for a network that started the task with its initial weights.
        probes: Dormant units and effective rank at the end of each task, as means over seeds: of the network
            and of the fresh one.
        runs: The ids of all runs.
    """

    after: tuple[int | None, ...]
    learned: NDArray[np.float64]
    fresh: NDArray[np.float64]
    probes: dict[str, tuple[list[float], list[float]]]
    runs: tuple[str, ...]

    @property
    def losses(self) -> NDArray[np.float64]:
        """Fresh minus learned, `[after, task]`: the mean over seeds. Above 0 is a loss of plasticity."""
        return np.array(
            [row_means((fresh - own).T) for fresh, own in zip(self.fresh, self.learned, strict=True)]
        )

    def as_json(self) -> JsonObject:
        """The curves over tasks, and the loss after the first task."""
        tables = []
        for place, updates in enumerate(self.after):
            later = row_means(self.fresh[place, :, 1:] - self.learned[place, :, 1:])
            over = over_seeds(later.tolist())
            tables.append(
                {
                    "updates": updates,
                    "learned": row_means(self.learned[place].T).tolist(),
                    "fresh": row_means(self.fresh[place].T).tolist(),
                    "loss": self.losses[place].tolist(),
                    "mean_loss": over.as_json(),
                }
            )
        probes = {name: {"learned": own, "fresh": other} for name, (own, other) in self.probes.items()}
        return {"plasticity": tables, "probes": probes, "ids": list(self.runs)}


def plasticity(bases: Sequence[Experiment], *, after: Sequence[int] = (10, 100)) -> Plan[PlasticityOutcome]:
    """Learn a stream, and every task of it with a fresh network too; compare how fast and how well.

    The fresh network starts every task from the weights that the other one had before its first task, with
    the same seed: the same batches in the same order (method `independent` without `keep`). On the first task
    fine-tuning and the fresh network are therefore the same. In the class setting the fresh network has seen
    no class of earlier tasks to confuse new ones with; the task and domain settings compare like with like.

    Args:
        bases: The experiment, once per seed.
        after: After how many updates of a task its accuracy is read, besides its end. The last evaluation
            until then counts, and there are evaluations often enough.

    Raises:
        InputError: There is no experiment, a number of updates is below 1, or the stream joins tasks or hides
            their boundaries.

    Source: Dohare et al. (2024), Loss of plasticity in deep continual learning, Nature.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> plan = plasticity([experiment("split-digits", "ewc", setting="task")])
        >>> [planned.method for planned in next(plan)]
        ['ewc', 'independent']
    """
    if not bases:
        raise InputError("the protocol needs at least one experiment, one per seed")
    wrong = [updates for updates in after if updates < 1]
    if wrong:
        raise InputError(f"after must be numbers of updates of at least 1, got {wrong[0]}")
    scenario = bases[0].scenario
    if any(len(tasks) > 1 for tasks in scenario.phases) or not scenario.setting.shows_boundaries:
        raise InputError(
            f"{scenario.name} joins tasks or hides their boundaries: a fresh network for every task needs "
            "to be told where one begins"
        )
    own = [_watched(base, after) for base in bases]
    fresh = [replace(base, method=FRESH, settings={"keep": False}, budget_bytes=None) for base in own]
    runs = [finished(run) for run in (yield [*own, *fresh])]
    learned, anew = runs[: len(own)], runs[len(own) :]
    moments = (*sorted(set(after)), None)
    return PlasticityOutcome(
        moments,
        np.array([[while_learned(run, updates) for run in learned] for updates in moments]),
        np.array([[while_learned(run, updates) for run in anew] for updates in moments]),
        {name: (_probed(learned, name), _probed(anew, name)) for name in PROBES},
        tuple(run.id for run in runs),
    )


def _watched(base: Experiment, after: Sequence[int]) -> Experiment:
    """The experiment, evaluated often enough, with the probes."""
    every = math.gcd(base.evaluation.every, *after)
    return replace(base, evaluation=replace(base.evaluation, every=every, points=0, plasticity=True))


def while_learned(run: Run, updates: int | None) -> NDArray[np.float64]:
    """The accuracy of each task after some updates of its own; NaN where it was not evaluated by then.

    Args:
        run: The run; one task is learned at a time.
        updates: How many; the last evaluation until then counts. None for the end of the task.
    """
    curve = run.curve
    values = np.full(curve.accuracy.shape[1], np.nan)
    start = 0
    for phase in range(int(curve.learning.max()) + 1):
        rows = np.flatnonzero(curve.learning == phase)
        (column,) = curve.phases[phase]
        end = int(curve.step[rows[-1]])
        limit = end if updates is None else start + updates
        rows = rows[(curve.step[rows] > start) & (curve.step[rows] <= limit)]
        if rows.size and limit <= end:
            values[column] = curve.accuracy[rows[-1], column]
        start = end
    return values


def _probed(runs: Sequence[Run], name: str) -> list[float]:
    """What a probe measured at the end of each task, as a mean over runs."""
    rows = [list(run.reading(name).values()) for run in runs]
    return [] if not rows or not rows[0] else row_means(np.array(rows).T).tolist()
