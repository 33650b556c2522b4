"""An executor that never trains: results in the shape that real runs leave, made up from the experiment."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal
from zlib import crc32

import numpy as np

from engram.core.folder import Reading
from engram.core.trace import Trace
from engram.engine.probing import UPSTREAM, UPSTREAM_START, balance_name, probe_name, tuned_name
from engram.metrics.summary import Measurement, summarise
from engram.papers.values import AT_ENDS
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run
from engram.record.tables import Tables
from engram.scenarios.values import Scenario

LOOKS = 3
"""Evaluations in each phase, unless it is evaluated only at its end."""
SAMPLES = 20


def execute(experiments: Sequence[Experiment]) -> list[Run]:
    """A result for every experiment; the same experiment has the same result."""
    return [result(planned) for planned in experiments]


def failed(experiment: Experiment, reason: str = "diverged") -> Run:
    """A run that diverged."""
    return Run(planned=experiment, failure=Failure(FailureKind.DIVERGED, reason))


def result(experiment: Experiment) -> Run:
    """What a run with few evaluations might leave."""
    draw = np.random.default_rng(crc32(repr(_told_apart(experiment)).encode()))
    scenario, trace, step = experiment.scenario, Trace(), 0
    evaluation, readings, seen = experiment.evaluation, list[Reading](), list[int]()
    last = len(scenario.phases) - 1
    looks = 1 if evaluation.every == AT_ENDS["every"] else LOOKS
    for number, tasks in enumerate(scenario.phases):
        learning = tasks[-1]
        seen += [task for task in tasks if task not in seen]
        evaluated = range(len(scenario.tasks)) if evaluation.tasks == "all" else seen
        for look in range(0 if number == 0 and evaluation.before else 1, looks + 1):
            step += look > 0
            for task in evaluated:
                right = draw.random(SAMPLES) < (0.9 if task in tasks else 0.5)
                trace.add(step=step, learning=learning, task=task, right=right)
                if evaluation.losses:
                    readings.append((step, learning, task, "loss", draw.random()))
            if evaluation.gradients and look:
                readings += [
                    (step, learning, None, f"{part}-{what}", draw.random())
                    for part in ("plasticity", "stability")
                    for what in ("gradient", "loss")
                ]
        if number < last:
            for task in scenario.phases[number + 1]:
                names = transfer_names(experiment)
                readings += [(step, learning, task, name, draw.random()) for name in names]
        readings += _upstream(experiment, number, step, draw)
    if evaluation.balances:
        readings += [
            (step, scenario.phases[-1][-1], None, balance_name(place / 100), draw.random())
            for place in range(101)
        ]
    measured = cache(lambda: measurement(trace, scenario))
    return Run(
        planned=experiment,
        updates=step,
        stored=Measured(measured, "final"),
        by_task=Measured(measured, "by_task"),
        tables=Tables(trace, readings=tuple(readings)),
    )


def _upstream(experiment: Experiment, phase: int, step: int, draw: np.random.Generator) -> Iterator[Reading]:
    if experiment.start is not None:
        learning = experiment.scenario.phases[phase][-1]
        if phase == 0:
            yield 0, learning, None, UPSTREAM_START, draw.random()
        yield step, learning, None, UPSTREAM, draw.random()


def _told_apart(experiment: Experiment) -> tuple[object, ...]:
    stream = experiment.scenario
    what = (experiment.method, experiment.settings, experiment.model, experiment.optimizer, experiment.seed)
    return (stream.name, stream.setting, len(stream.phases), experiment.by_phase, *what)


def measurement(trace: Trace, scenario: Scenario) -> Measurement:
    """All metrics of a made-up run."""
    phases = {tasks[-1]: tasks for tasks in scenario.phases}
    return summarise(
        trace,
        classes_seen=scenario.classes_seen,
        phases=[phases.get(task, (task,)) for task in range(len(scenario.tasks))],
    )


class Measured(Mapping[str, Any]):
    """Metrics, or what they were after each task, computed on demand."""

    def __init__(self, measured: Callable[[], Measurement], what: Literal["final", "by_task"]) -> None:
        self.measured, self.what = measured, what

    @property
    def values_by_name(self) -> Mapping[str, Any]:
        measured = self.measured()
        return measured.final if self.what == "final" else measured.by_task

    def __getitem__(self, name: str) -> Any:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)


def transfer_names(experiment: Experiment) -> Iterator[str]:
    """The readings of probes on the next task."""
    spec = experiment.evaluation.transfer
    if spec is None:
        return
    yield "FDiv"
    for shots in spec.shots:
        yield probe_name(shots)
        for lr in spec.tuned_lrs:
            for epochs in spec.tuned_epochs:
                yield tuned_name(shots, lr=lr, epochs=epochs, on="test")
                yield tuned_name(shots, lr=lr, epochs=epochs, on="validation")
