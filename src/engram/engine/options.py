"""The options of an experiment, collected from the dataclasses that declare them.

`engram.experiment` takes them as keywords, `engram run` as options, sweep files as keys, grids as fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from engram.core.errors import InputError, unknown_name
from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.core.schema import Flag, Option, options_of
from engram.core.values import OptimizerSpec
from engram.engine.data_options import OwnDataOptions
from engram.models.spec import ModelSpec, option_of, shared_options
from engram.record.experiment import Experiment
from engram.record.specs import EvaluationSpec
from engram.scenarios.values import SettingName


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of a scenario that is chosen by name."""

    setting: Annotated[SettingName | None, Field(description="What learner and evaluator may know")] = None
    classes: Annotated[
        Literal["known", "unknown"] | None,
        Field(description="Number of classes in the class setting"),
    ] = None
    boundaries: Annotated[
        bool | None,
        Flag("--show-boundaries/--hide-boundaries"),
        Field(description="Whether the learner is told when a new task begins"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """Options for a start other than random weights."""

    weights: Annotated[
        Path | None, Field(description="Weights to start from: a state dict (.pt, .safetensors) or a run")
    ] = None


_LENGTHS = ("epochs", "updates")


@cache
def parts() -> dict[str, dict[str, Option]]:
    """The options by the part of the experiment that they belong to, and by name.

    Example:
        >>> list(parts()), list(parts()["network"])[:3]
        (['scenario', 'network', 'optimizer', 'training', 'evaluation'], ['model', 'hidden', 'dropout_input'])
    """
    name, *others = options_of(ModelSpec)
    network = (name, *shared_options().values(), *others, *options_of(StartOptions))
    gathered = {
        "scenario": (*options_of(StreamOptions), *options_of(OwnDataOptions)),
        "network": network,
        "optimizer": options_of(OptimizerSpec),
        "training": options_of(Experiment),
        "evaluation": options_of(EvaluationSpec),
    }
    return {part: {option.name: option for option in options} for part, options in gathered.items()}


@cache
def all_options() -> dict[str, Option]:
    """All options by name.

    Example:
        >>> all_options()["block"].help
        'Units that compete in each block (lwta).'
    """
    return {name: option for options in parts().values() for name, option in options.items()}


def find_option(name: str) -> Option:
    """The option with this name: one of the above, or one of a user's own network.

    Raises:
        InputError: There is none; the message has the nearest names.

    Example:
        >>> find_option("learning_rat")
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown option 'learning_rat'; ...
    """
    option = all_options().get(name) or option_of(name)
    if option is None:
        raise unknown_name("option", name, all_options())
    return option


def checked(options: JsonMapping, *, text: bool = False) -> JsonObject:
    """Options with their values checked and converted; options that are None are left out.

    Args:
        options: Values by name.
        text: Whether the values are text from the command line.

    Raises:
        InputError: A name is unknown or a value is invalid.

    Example:
        >>> checked({"hidden": "64,64", "lr": None}, text=True)
        {'hidden': (64, 64)}
    """
    known = {}
    for name, value in options.items():
        option = find_option(name)
        if value is not None or option.zero_means_all:
            known[name] = option.check(value, text=text)
    return known


def of_part(part: str, chosen: JsonMapping) -> JsonObject:
    """The chosen options of a part, by the names of its fields.

    Example:
        >>> of_part("optimizer", {"optimizer": "adam", "lr": 0.1, "epochs": 3})
        {'name': 'adam', 'lr': 0.1}
    """
    return {option.field: chosen[name] for name, option in parts()[part].items() if name in chosen}


def changed(base: Experiment, chosen: JsonMapping) -> Experiment:
    """An experiment with some options of its network, optimiser, training or evaluation changed.

    If `epochs` is among them, a number of updates that the experiment already had no longer applies.

    Raises:
        InputError: An option cannot be changed in an existing experiment, or the network does not have it.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> changed(experiment("split-digits", "er"), {"lr": 0.1, "epochs": 3})
        Experiment(er on split-digits, class setting, 5 tasks, mlp, seed 0,
                   id split-digits-class-er-s0-...)
    """
    fixed = [*parts()["scenario"], "model", "weights"]
    if wrong := [name for name in chosen if name in fixed]:
        raise InputError(f"{wrong[0]} cannot be changed in an existing experiment: create another one")
    network = {name: value for name, value in chosen.items() if option_of(name) is not None}
    network |= {name: chosen[name] for name in ("init", "zero_head") if name in chosen}
    training = of_part("training", chosen)
    if base.scenario.passes is not None and (wrong := [name for name in _LENGTHS if name in training]):
        raise InputError(
            f"{base.scenario.name} has its own number of passes, so {wrong[0]} would be ignored: "
            f"leave {wrong[0]} out"
        )
    if "epochs" in training:
        training.setdefault("updates", None)
    changes: JsonObject = dict(training)
    for part, value, fields in (
        ("model", base.model, network),
        ("optimizer", base.optimizer, of_part("optimizer", chosen)),
        ("evaluation", base.evaluation, of_part("evaluation", chosen)),
    ):
        if fields:
            changes[part] = replace(value, **fields)
    return replace(base, **changes) if changes else base


def value_of(experiment: Experiment, name: str) -> Json:
    """The value that an experiment has for an option.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> value_of(experiment("split-digits", "er"), "lr")
        0.05
    """
    for part, holder in (
        ("optimizer", experiment.optimizer),
        ("training", experiment),
        ("evaluation", experiment.evaluation),
    ):
        if name in parts()[part]:
            return getattr(holder, parts()[part][name].field)
    return experiment.model.options[name]
