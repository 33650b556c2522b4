"""Build what runs an experiment: network, method, evaluator, and the `TaskInfo` of every task."""

from __future__ import annotations

import math
import warnings

import torch

from engram.core.errors import InputError
from engram.core.seeds import Seeds
from engram.core.values import TaskInfo
from engram.datasets.accounting import WatchedTask
from engram.datasets.stream import Stream
from engram.engine.start import weights_file
from engram.evaluation.evaluator import Evaluator
from engram.methods import METHODS
from engram.methods.augment import Crops
from engram.methods.base import Method, as_learner
from engram.methods.fields import build_method
from engram.models import build
from engram.models.network import Network
from engram.models.weights import load_weights
from engram.record.experiment import Experiment
from engram.record.half_checked import Precision
from engram.record.parallel import ParallelPlan
from engram.scenarios.values import TaskSetting


def make_network(experiment: Experiment, stream: Stream, seeds: Seeds) -> Network:
    """The initial network, seeded."""
    network = build(
        experiment.model, shape=stream.shape, n_units=stream.scenario.n_units, seed=seeds.initialisation
    )
    if (start := experiment.start) is not None:
        load_weights(network, weights_file(start), sha256=start.sha256)
    if not any(weight.requires_grad for weight in network.parameters()):
        raise InputError(
            f"model {experiment.model.name} has no weight that learns, all are frozen: "
            "call requires_grad_(True) on its head at least"
        )
    return network.to(stream.device)


def make_method(experiment: Experiment, network: Network, seeds: Seeds, stream: Stream) -> Method:
    """The method with its network, seeded; it is told what black is in the stream if it crops images."""
    method = build_method(
        METHODS[experiment.method],
        experiment.settings,
        network=network,
        optimizer_spec=experiment.optimizer,
        generator=torch.Generator().manual_seed(seeds.method),
    )
    if (learner := as_learner(method)) is not None:
        learner.split_gradients = experiment.evaluation.gradients
        if experiment.augment:
            learner.augmentation = torch.Generator().manual_seed(seeds.augmentation)
    augments = experiment.augment or experiment.settings.get("augment") is True
    if augments and isinstance(method, Crops) and len(stream.shape) == 3:
        method.black = stream.black()
    return method


def make_evaluator(
    experiment: Experiment,
    stream: Stream,
    seeds: Seeds,
    *,
    precision: Precision = "full",
    parallel: str = "off",
) -> Evaluator:
    """The evaluator of the run."""
    spec, scenario = experiment.evaluation, experiment.scenario
    part = {"test": stream.test, "train": stream.train, "validation": stream.validation}[spec.on]
    test_sets = [part(task) for task in range(len(scenario.tasks))]
    # All samples cannot be drawn anew.
    redraw = spec.redraw and any(len(test_set) > (spec.subset or math.inf) for test_set in test_sets)
    with warnings.catch_warnings():
        # Whoever plans an experiment is warned, once; see `engram.engine.check.warn_redrawn`.
        warnings.filterwarnings("ignore", message="redraw ")
        return Evaluator(
            test_sets,
            every=spec.every,
            per_epoch=spec.per_epoch,
            subset=spec.subset,
            samples=spec.samples,
            redraw=redraw,
            seed=seeds.evaluation,
            tasks=spec.tasks,
            full_ends=spec.full_ends,
            losses=spec.losses,
            answers=spec.answers,
            # Positions in the data set, so that runs with other splits of it can be joined.
            ids=[test_set.index.tolist() for test_set in test_sets],
            classes=scenario.classes_seen,
            shuffle=not isinstance(scenario.setting, TaskSetting),
            precision=precision,
            parallel=str(ParallelPlan.of(parallel).for_run(skips=spec.skips)),
        )


def task_infos(experiment: Experiment, stream: Stream) -> list[TaskInfo]:
    """What a learner may know of each task."""
    scenario = experiment.scenario
    identity = isinstance(scenario.setting, TaskSetting)
    infos: list[TaskInfo] = []
    for number, tasks in enumerate(scenario.phases):
        samples = sum(len(stream.train(task)) for task in tasks)
        infos.append(
            WatchedTask(
                index=number,
                identity=tasks[0] if identity and len(tasks) == 1 else None,
                classes=tuple(sorted({unit for task in tasks for unit in scenario.tasks[task].units})),
                samples=samples,
                steps=experiment.steps(samples, phase=number),
                epochs=-(-experiment.steps(samples, phase=number) * experiment.batch_size // samples),
                batch_size=experiment.batch_size,
            )
        )
    return infos


def whole_stream(infos: list[TaskInfo]) -> TaskInfo:
    """The stream as one task, for a learner that sees no boundaries."""
    return WatchedTask(
        index=0,
        identity=None,
        classes=tuple(sorted({unit for info in infos for unit in info.classes})),
        samples=sum(info.samples for info in infos),
        steps=sum(info.steps for info in infos),
        epochs=infos[0].epochs,
        batch_size=infos[0].batch_size,
    )
