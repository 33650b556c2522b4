"""The size of an experiment, and the same experiment with few updates."""

from __future__ import annotations

from dataclasses import replace

from engram.core.dataset_info import DATASETS
from engram.record.experiment import Experiment
from engram.scenarios.values import Source

QUICK_UPDATES = 20
QUICK_SUBSET = 200
QUICK_PASSES = 1


def training_samples(source: Source) -> float:
    """The approximate number of training samples of a source, from the size of the complete data set.

    Example:
        >>> training_samples(Source("mnist", classes=(0, 1)))
        12000.0
    """
    info = DATASETS[source.dataset]
    share = len(source.classes) / info.classes if source.classes else 1.0
    return (info.train - source.unused) * share


def updates_of(planned: Experiment) -> int:
    """The approximate number of updates of an experiment, from the sizes of complete data sets.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> updates_of(experiment("split-mnist-002", "ewc"))
        1880
    """
    scenario, total = planned.scenario, 0
    for number, phase in enumerate(scenario.phases):
        sources = [scenario.tasks[place].source for place in phase]
        samples = sum(training_samples(source) * (1 - scenario.held_out) for source in sources)
        stop = planned.of_phase(number).stop
        steps = planned.steps(max(1, round(samples)), phase=number)
        total += steps if stop is None else min(stop, steps)
    return total


def scaled_down(planned: Experiment) -> Experiment:
    """An experiment with few updates per task, evaluated on few samples.

    Models that a method or a probe fits are trained for few passes as well, except fine-tuned probes, which
    are distinguished by their number of passes.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> short = scaled_down(experiment("split-cifar100", "gdumb"))
        >>> updates_of(short), short.settings["epochs"], short.evaluation.subset
        (200, 1, 200)
    """
    spec = planned.evaluation
    evaluation = replace(
        spec,
        subset=min(spec.subset or QUICK_SUBSET, QUICK_SUBSET),
        full_ends=False,
        transfer=replace(spec.transfer, epochs=QUICK_PASSES) if spec.transfer else None,
    )
    phases = tuple(
        replace(phase, updates=None if phase.updates is None else min(phase.updates, QUICK_UPDATES))
        for phase in planned.by_phase
    )
    fits = {"epochs": QUICK_PASSES} if "epochs" in planned.settings else {}
    return replace(
        planned,
        # In a stream with a fixed number of passes, `updates` would have no effect.
        scenario=replace(planned.scenario, passes=None),
        settings={**planned.settings, **fits},
        updates=QUICK_UPDATES,
        evaluation=evaluation,
        by_phase=phases,
    )
