"""Check whether an experiment can be run, before anything is trained."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace

from engram.core.errors import InputError
from engram.engine.composed import infos_of
from engram.engine.probing import check_probes
from engram.evaluation.schedule import Schedule
from engram.methods import METHODS, traits_of
from engram.methods.fields import validate_fields
from engram.methods.optimizers import check_optimizer
from engram.methods.traits import Traits
from engram.metrics.extremes import REDRAW_WARNING
from engram.models import MODELS
from engram.record.experiment import Experiment
from engram.scenarios import joint
from engram.scenarios.values import Permute, TaskSetting


def complete(experiment: Experiment) -> Experiment:
    """The experiment with every hyper-parameter of its method filled in and checked.

    Done before hashing, so that a default and the same value set explicitly are the same experiment.
    """
    method, traits = METHODS[experiment.method], traits_of(experiment.method)
    # Raises where the name is unknown.
    _ = experiment.model.model
    Schedule(experiment.evaluation.every, experiment.evaluation.per_epoch)
    check_optimizer(experiment.optimizer)
    check_probes(experiment)
    for rate in [phase.lr for phase in experiment.by_phase if phase.lr is not None]:
        check_optimizer(replace(experiment.optimizer, lr=rate))
        if not traits.learner:
            raise InputError(
                f"method {experiment.method} has no learning rate per phase: use one for all phases"
            )
    if experiment.augment and not traits.learner:
        raise InputError(f"method {experiment.method} does not support augmented images: leave augment out")
    steps = [step for task in experiment.scenario.tasks for step in task.transforms]
    if experiment.augment and any(isinstance(step, Permute) for step in steps):
        raise InputError(
            f"{experiment.scenario.name} permutes pixels, so images cannot be cropped and mirrored: "
            "leave augment out"
        )
    _check_inputs(experiment, traits)
    settings = validate_fields(experiment.method, method, experiment.settings)
    check_needs(experiment, traits.needed(settings))
    scenario = experiment.scenario
    if traits.joint and len(scenario.phases) > 1:
        scenario = joint(scenario)
    return replace(experiment, settings=settings, scenario=scenario)


def _check_inputs(experiment: Experiment, traits: Traits) -> None:
    """Refuse a network or a method that cannot use the inputs, as far as they are known."""
    kinds = {info.inputs for info in infos_of(experiment.scenario)}
    name, model = experiment.scenario.name, experiment.model
    if experiment.augment and kinds - {"image"}:
        raise InputError(f"{name} has no images to crop and mirror: leave augment out")
    embeds = model.value is not None or not MODELS.is_ours(model.name) or model.name == "embedding-mlp"
    if "tokens" not in kinds:
        return
    if not embeds:
        raise InputError(
            f"model {model.name} needs numbers, and {name} has tokens: use embedding-mlp, or a model of "
            "yours that embeds them"
        )
    if not traits.takes_tokens:
        raise InputError(
            f"method {experiment.method} computes with the values of inputs, and {name} has tokens: use a "
            "method that stores or ignores inputs, such as er"
        )


def warn_redrawn(experiments: Iterable[Experiment]) -> None:
    """Warn, once, where subsets are redrawn for every evaluation; tables of papers are planned without it."""
    if any(experiment.evaluation.redraw for experiment in experiments):
        warnings.warn(REDRAW_WARNING, stacklevel=2)


def check_needs(experiment: Experiment, needs: tuple[str, ...]) -> None:
    """Refuse a method that needs to know what the setting hides."""
    setting = experiment.scenario.setting
    if "task identity" in needs and not isinstance(setting, TaskSetting):
        raise InputError(
            f"method {experiment.method} needs task identity, which the {setting.kind} setting hides: "
            "use the task setting"
        )
    if "boundaries" in needs and not setting.shows_boundaries:
        raise InputError(
            f"method {experiment.method} needs to know where tasks begin, which {experiment.scenario.name} "
            "hides: use a stream with visible boundaries"
        )
