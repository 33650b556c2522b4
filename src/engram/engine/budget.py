"""How many bytes a method will keep, predicted before it is trained."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.core.values import Batch, TaskInfo
from engram.datasets.accounting import Ledger
from engram.datasets.outside import watch_outside
from engram.engine.start import sample_shape
from engram.evaluation.guard import same_randomness
from engram.methods import METHODS, traits_of
from engram.methods.base import Method
from engram.methods.fields import build_method
from engram.models import build
from engram.record.experiment import Experiment
from engram.scenarios.values import TaskSetting


def check_budget(experiment: Experiment) -> None:
    """Refuse a method that will keep more than the experiment's budget, before anything is loaded or trained.

    Methods that store samples are not checked here: their memory is sized by the budget or given with it, how
    much they keep depends on the data, and a run that keeps too much is stopped.

    Example:
        >>> from engram.scenarios import split
        >>> digits = split("digits", setting="class")
        >>> check_budget(Experiment(digits, "l2", budget_bytes=10_000))
        Traceback (most recent call last):
        engram.core.errors.InputError: method l2 will keep ... bytes after phase 1, over ...
    """
    budget = experiment.budget_bytes
    if budget is None or traits_of(experiment.method).stores_data:
        return
    for phase, kept in enumerate(predicted_bytes(experiment), start=1):
        if kept > budget:
            raise InputError(
                f"method {experiment.method} will keep {kept} bytes after phase {phase}, "
                f"over the budget of {budget}: raise the budget, or use a smaller network"
            )


def initial_bytes(experiment: Experiment) -> int:
    """The bytes that a method keeps before it has learned anything.

    Example:
        >>> from engram.models import ModelSpec
        >>> from engram.scenarios import split
        >>> plan = Experiment(split("digits", setting="class"), "gdumb", model=ModelSpec(hidden=()))
        >>> initial_bytes(plan)  # the weights that every fit starts from: (64 · 10 + 10) · 4
        2600
    """
    with same_randomness(), _watched(experiment):
        return _new(experiment).kept_bytes()


def predicted_bytes(experiment: Experiment) -> list[int]:
    """The bytes that a method which stores no samples will keep after each phase.

    Importance, anchors, older networks and generators are as large after one update as after many, so the
    method goes through the phases with a single batch of noise in each. Global random states are left
    unchanged.

    Example:
        >>> from engram.models import ModelSpec
        >>> from engram.scenarios import prefix, split
        >>> digits = prefix(split("digits", setting="class"), 2)
        >>> small = ModelSpec(hidden=())  # 64 · 4 + 4 weights
        >>> predicted_bytes(Experiment(digits, "mas", model=small))  # importance and anchor: 2 · 260 · 4
        [2080, 2080]
    """
    with same_randomness(), _watched(experiment):
        return _kept_with_noise(experiment)


def _watched(experiment: Experiment) -> AbstractContextManager[None]:
    """Within, no data may be read: there is no run yet that could record it, so that it is refused."""
    watch_outside()
    return Ledger(experiment.scenario, method=experiment.method, strict=True).reading("method")


def _new(experiment: Experiment) -> Method:
    scenario = experiment.scenario
    return build_method(
        METHODS[experiment.method],
        experiment.settings,
        network=build(experiment.model, shape=sample_shape(scenario), n_units=scenario.n_units, seed=0),
        optimizer_spec=experiment.optimizer,
        generator=torch.Generator().manual_seed(0),
    )


def _kept_with_noise(experiment: Experiment) -> list[int]:
    scenario = experiment.scenario
    shape = sample_shape(scenario)
    method = _new(experiment)
    visible = scenario.setting.shows_boundaries
    kept = []
    for number, tasks in enumerate(scenario.phases):
        batch = _noise(experiment, number, shape)
        if number == 0 or visible:
            known = isinstance(scenario.setting, TaskSetting) and len(tasks) == 1
            method.begin_task(
                TaskInfo(
                    index=number,
                    identity=tasks[0] if known else None,
                    classes=tuple(sorted({unit for task in tasks for unit in scenario.tasks[task].units})),
                    samples=len(batch),
                    steps=1,
                    epochs=1,
                    batch_size=len(batch),
                )
            )
        method.observe(batch)
        before = method.kept_bytes()
        if visible or number == len(scenario.phases) - 1:
            method.end_task([batch])
        kept.append(max(before, method.kept_bytes()))
    return kept


def _noise(experiment: Experiment, phase: int, shape: tuple[int, ...]) -> Batch:
    """One sample of every class of a phase, at least two for batch norm."""
    scenario = experiment.scenario
    labelled = [(unit, task) for task in scenario.phases[phase] for unit in scenario.tasks[task].units]
    labelled = labelled * 2 if len(labelled) == 1 else labelled
    y, tasks = torch.tensor(labelled).T
    noise = torch.Generator().manual_seed(phase)
    x = torch.randn(len(y), *shape, generator=noise)
    if vocabulary := DATASETS[scenario.tasks[0].source.dataset].vocabulary:
        x = torch.randint(vocabulary, (len(y), *shape), generator=noise)
    identity = isinstance(scenario.setting, TaskSetting)
    return Batch(x, y, heads=scenario.heads(phase), head=tasks if identity else 0)
