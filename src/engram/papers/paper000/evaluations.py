"""The paper's evaluation periods and subsets, derived from runs that were evaluated completely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.seeds import Seeds
from engram.core.trace import Trace
from engram.metrics.curve import Curve, Mode
from engram.papers.plans import Run
from engram.papers.sizes import training_samples
from engram.record.experiment import Experiment

SUBSET = 1000
"""The number of samples per task on which the paper evaluates."""


@dataclass(frozen=True, slots=True)
class Interpretation:
    """How the paper's evaluations and metrics are interpreted where they are ambiguous.

    Attributes:
        redraw: Whether subsets are redrawn for every evaluation, or drawn once.
        per_epoch: Whether the period ρ restarts in every epoch, without special treatment of task ends;
            otherwise it is counted over the run, and task ends are always evaluated.
        mode: How WF and WP look for the largest change.
    """

    redraw: bool = True
    per_epoch: bool = True
    mode: Mode = "exact"


FOLLOWED = Interpretation()
SUBSETS_ONCE = replace(FOLLOWED, redraw=False)
OVER_THE_RUN = replace(FOLLOWED, per_epoch=False)
AS_CODED = replace(FOLLOWED, mode="refcode")


def subsampled(run: Run, subset: int | None, *, redraw: bool) -> Trace:
    """The trace that a run evaluated on all samples would have recorded on a subset.

    It equals the trace of the same experiment with this `subset` and `redraw`. The trace of a run that was
    evaluated on a subset is returned unchanged.
    """
    trace = run.trace
    if subset is None or run.experiment.evaluation.subset is not None:
        return trace
    import torch

    from engram.evaluation.samples import draw

    sizes = dict(zip(trace.task, trace.total, strict=True))
    if sorted(sizes) != list(range(len(sizes))):
        raise InputError(f"cannot draw a subset: run {run.experiment.id} did not evaluate all tasks")
    generator = torch.Generator().manual_seed(Seeds.of(run.experiment.seed).evaluation)

    def drawn() -> list[NDArray[np.int64]]:
        return [draw(sizes[task], subset, generator).numpy() for task in range(len(sizes))]

    chosen, at, part = drawn(), None, Trace()
    for row, (step, learning, task) in enumerate(zip(trace.step, trace.learning, trace.task, strict=True)):
        if redraw and step != at:
            chosen, at = drawn(), step
        part.add(step=step, learning=learning, task=task, right=trace.right(row)[chosen[task]])
    return part


def thinned(trace: Trace, planned: Experiment, every: int, *, per_epoch: bool) -> Trace:
    """The trace that a run evaluated after each update would have recorded with a longer period.

    It equals the trace of the same experiment with this `every` and `per_epoch`. The evaluation before the
    first update is kept.
    """
    if every == 1:
        return trace
    if per_epoch:
        kept = {step for step, place in _places_in_epochs(trace, planned).items() if place % every == 0}
    else:
        steps, learning = np.asarray(trace.step), np.asarray(trace.learning)
        ends = {int(steps[learning == task].max()) for task in np.unique(learning)}
        kept = {step for step in trace.step if step % every == 0} | ends
    return _rows_of(trace, [row for row, step in enumerate(trace.step) if step in kept or step == 0])


def _rows_of(trace: Trace, rows: Sequence[int]) -> Trace:
    """Some rows of a trace."""
    return Trace(
        step=[trace.step[row] for row in rows],
        learning=[trace.learning[row] for row in rows],
        task=[trace.task[row] for row in rows],
        correct=[trace.correct[row] for row in rows],
        total=[trace.total[row] for row in rows],
        bits=[trace.bits[row] for row in rows],
    )


def _places_in_epochs(trace: Trace, planned: Experiment) -> dict[int, int]:
    """The index of each update within its epoch."""
    learned = dict(zip(trace.step, trace.learning, strict=True))
    places: dict[int, int] = {}
    for learning in dict.fromkeys(trace.learning):
        steps = [step for step, task in learned.items() if task == learning and step]
        if planned.updates is None:
            epoch = len(steps) // planned.epochs
        else:
            samples = training_samples(planned.scenario.tasks[learning].source)
            epoch = -(-round(samples) // planned.batch_size)
        places |= {step: number % max(1, epoch) for number, step in enumerate(steps)}
    return places


def watched(
    run: Run, interpretation: Interpretation, *, subset: int | None = SUBSET, every: int = 1
) -> Trace:
    """The evaluations of a run with the subset and period of the paper."""
    trace = subsampled(run, subset, redraw=interpretation.redraw)
    return thinned(trace, run.experiment, every, per_epoch=interpretation.per_epoch)


def watched_curve(run: Run, *, every: int = 1) -> Curve:
    """The accuracy of each task at these evaluations."""
    return Curve.of_trace(watched(run, FOLLOWED, every=every))
