"""Executors that never train: results are made up from the experiment."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engram.core.folder import Reading
from engram.core.trace import Trace
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run
from engram.record.tables import Tables

SAMPLES = 100


class Recorder:
    """Makes results up, and records the experiments of every round."""

    def __init__(self, make: Callable[[Experiment], Run]) -> None:
        self.make = make
        self.rounds: list[list[Experiment]] = []

    def __call__(self, experiments: Sequence[Experiment]) -> list[Run]:
        self.rounds.append(list(experiments))
        return [self.make(experiment) for experiment in experiments]


def with_metrics(experiment: Experiment, metrics: Mapping[str, float]) -> Run:
    return Run(planned=experiment, finished=True, stored=dict(metrics))


def failed(
    experiment: Experiment,
    reason: str,
    *,
    kind: FailureKind = FailureKind.DIVERGED,
    trace: Trace | None = None,
) -> Run:
    return Run(planned=experiment, failure=Failure(kind, reason), tables=Tables(trace))


def with_curve(
    experiment: Experiment,
    curve: Sequence[tuple[int, int, Mapping[int, float]]],
    readings: tuple[Reading, ...] = (),
) -> Run:
    """Evaluations as (step, learning, accuracy of each task)."""
    trace = Trace()
    for step, learning, accuracies in curve:
        for task, accuracy in accuracies.items():
            right = np.arange(SAMPLES) < round(accuracy * SAMPLES)
            trace.add(step=step, learning=learning, task=task, right=right)
    return Run(planned=experiment, finished=True, tables=Tables(trace, readings=readings))
