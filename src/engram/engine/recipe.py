"""From a benchmark's name to an experiment: the recipe of its paper, with the user's changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engram.core.errors import InputError
from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.core.values import OptimizerSpec
from engram.engine.composed import find_benchmark, infos_of, is_composed, refuse_data_options, usual_model
from engram.engine.data_options import DATA_OPTIONS
from engram.engine.effects import refuse_ignored
from engram.engine.options import all_options, checked, of_part
from engram.engine.start import check_start, sample_shape, start_from
from engram.methods import METHODS, traits_of
from engram.methods import method as register_method
from engram.methods.fields import fields_of
from engram.models.from_file import model_from_file, names_a_file
from engram.models.spec import ModelSpec, Pretrained, check_used, option_of, own_options
from engram.record.experiment import EvaluationSpec, Experiment, whole_seed
from engram.scenarios.catalogue import benchmark
from engram.scenarios.named import BENCHMARKS, Benchmark
from engram.scenarios.recipe import Recipe
from engram.scenarios.values import (
    ClassSetting,
    Colour,
    Normalise,
    Scenario,
    Setting,
    SettingName,
    TaskSetting,
    Transform,
)

if TYPE_CHECKING:
    from torch import nn


def experiment(
    scenario: str | Scenario,
    method: str | type,
    *,
    model: str | nn.Module | Callable[..., nn.Module] | None = None,
    settings: JsonMapping | None = None,
    evaluation: JsonMapping | None = None,
    classes_known: bool | None = None,
    seed: int = 0,
    **options: Json,
) -> Experiment:
    """The experiment that `engram run` would run; the scenario's recipe fills in what is not specified.

    Args:
        scenario: A name, or a `Scenario`. A `Scenario` uses the recipe of the registered scenario with the
            same name, if there is one (so `prefix(…)` of a benchmark is trained like the benchmark), and the
            default recipe otherwise: see `engram.scenarios.Recipe`.
        method: A name, or a method class. A class that is not registered is registered under its own name,
            and the hash of its source file is part of the experiment's identity.
        model: A network's name, any `nn.Module`, or a function `(shape, n_units) -> nn.Module`. The identity
            includes structure and source and, for a module, its weights, which every run starts from: see
            `engram.models.values`.
        settings: Hyper-parameters of the method.
        evaluation: Fields of `EvaluationSpec`; those that are options may also be passed as keywords.
        classes_known: The same as `classes="known"` or `"unknown"`.
        seed: The run's seed.
        **options: Any of `engram.engine.options.all_options()`: `setting`, `classes`, `boundaries` (False
            hides where tasks begin), the network's (`hidden`, `block`, `stem`, those of your own models,
            `weights`: a file to start from), `optimizer`, `lr`, `momentum`, `weight_decay`, `batch_size`,
            `epochs` or `updates` per task, `augment`, `budget_bytes`, `every`, `subset` and so on; an option
            that is None is left to the recipe.

    Raises:
        InputError: A name is unknown, a value is invalid, or options contradict each other.

    Example:
        >>> experiment("split-digits", "er", lr=0.1).optimizer.lr
        0.1
        >>> experiment("split-digits", "er", learning_rate=0.1)
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown option 'learning_rate'; ...
    """
    from engram.engine.check import complete

    seed = whole_seed(seed)
    method_name = _method_name(method)
    if classes_known is not None:
        options["classes"] = "known" if classes_known else "unknown"
    chosen = _checked(method_name, options, composed=isinstance(scenario, str) and is_composed(scenario))
    named = _named(scenario, chosen)
    recipe = named.recipe
    stream = named.scenario(_setting(named, chosen), seed=seed)
    network = _for_tokens(_network(recipe, method_name, model, chosen), stream)
    if (pretrained := network.model.pretrained) is not None:
        network = replace(network, init="default")
        stream = _as_pretrained(stream, pretrained)
    planned = complete(
        Experiment(
            stream,
            method_name,
            settings=_settings(recipe, method_name, stream, chosen) | dict(settings or {}),
            model=network,
            optimizer=_optimizer(recipe, method_name, chosen),
            evaluation=EvaluationSpec(
                **{"subset": recipe.subset, **(evaluation or {}), **of_part("evaluation", chosen)}
            ),
            start=start_from(Path(chosen["weights"])) if "weights" in chosen else None,
            seed=seed,
            **_training(recipe, method_name, chosen),
        )
    )
    refuse_ignored(planned, chosen)
    return _within_budget(planned, settings or {})


def _within_budget(planned: Experiment, settings: JsonMapping) -> Experiment:
    """The experiment with its memory sized by its budget, if it has one, and its start checked."""
    from engram.engine.budget import check_budget
    from engram.engine.check import complete

    if planned.budget_bytes is not None:
        sized = memory_within(planned, settings=settings)
        planned = complete(replace(planned, settings={**planned.settings, **sized}))
    check_start(planned)
    check_budget(planned)
    return planned


def _method_name(method: str | type) -> str:
    """The name of a method; a class that is not registered is registered under its own name."""
    if isinstance(method, str):
        METHODS[method]
        return method
    registered = METHODS.name_of(method)
    if registered is not None:
        return registered
    if not isinstance(method, type):
        raise InputError(f"{method!r} is not a method: give a name or a class")
    register_method(method.__name__)(method)
    return method.__name__


def _checked(method: str, options: JsonMapping, *, composed: bool) -> JsonObject:
    """The options, checked; for a hyper-parameter of the method, the error says where it belongs."""
    hyper_parameters = {item.name for item in fields_of(METHODS[method])}
    for name in options:
        own = name not in all_options() or (name in DATA_OPTIONS and not composed)
        if name in hyper_parameters and own:
            raise InputError(f"{name} is a hyper-parameter of {method}: give settings={{{name!r}: …}}")
    return checked(options)


def _named(scenario: str | Scenario, chosen: JsonMapping) -> Benchmark:
    """A scenario with its recipe."""
    if isinstance(scenario, str):
        return find_benchmark(scenario, chosen)
    if not isinstance(scenario, Scenario):
        raise InputError(f"{scenario!r} is not a scenario: give a name or a Scenario")
    stream, setting = scenario, scenario.setting
    refuse_data_options(chosen, stream.name)
    known = stream.name in BENCHMARKS
    recipe = benchmark(stream.name).recipe if known else Recipe(model=usual_model(stream))
    return Benchmark(
        stream.name, "", "", (setting,), lambda setting, _seed: replace(stream, setting=setting), recipe
    )


def _setting(named: Benchmark, chosen: JsonMapping) -> Setting | SettingName | None:
    """The setting, with what may be known of classes and boundaries."""
    name: SettingName | None = chosen.get("setting")
    if not {"classes", "boundaries"} & set(chosen):
        return name
    setting = next((setting for setting in named.settings if name in (None, setting.kind)), None)
    if setting is None:
        return name
    if "classes" in chosen:
        if not isinstance(setting, ClassSetting):
            raise InputError(
                f"classes are known or unknown only in the class setting, not in {setting.kind}: leave it out"
            )
        setting = replace(setting, classes_known=chosen["classes"] == "known")
    if "boundaries" in chosen:
        if isinstance(setting, TaskSetting):
            raise InputError("the task setting tells which task it is: use the domain or class setting")
        setting = replace(setting, boundaries=chosen["boundaries"])
    return setting


def _network(
    recipe: Recipe,
    method: str,
    model: str | nn.Module | Callable[..., nn.Module] | None,
    chosen: JsonMapping,
) -> ModelSpec:
    """The network: the recipe's, with the recipe's changes for the method, or the user's."""
    network_options = {name: value for name, value in chosen.items() if option_of(name) is not None}
    common = {name: chosen[name] for name in ("init", "zero_head") if name in chosen}
    if model is not None and not isinstance(model, str):
        from engram.models.values import spec_of

        if network_options:
            raise InputError(f"{next(iter(network_options))} is an option of named networks: leave it out")
        return replace(spec_of(model), **common)
    if model is not None and names_a_file(model):
        model = model_from_file(model)
    name = model or recipe.model
    check_used(name, network_options)
    # A user's own network has its own defaults for the options that it declares.
    usual = {key: value for key, value in recipe.model_options.items() if key not in own_options(name)}
    # The recipe's changes for a method apply to the recipe's network only.
    for_method = recipe.network(method) if name == recipe.model else {}
    return ModelSpec(name, **{**usual, **for_method, **network_options, **common})


def _for_tokens(network: ModelSpec, stream: Scenario) -> ModelSpec:
    """The network with the number of different tokens, if it has such an option and the user left it open."""
    vocabulary = max((info.vocabulary for info in infos_of(stream)), default=0)
    if vocabulary and network.value is None and own_options(network.name).get("vocabulary") is not None:
        chosen = network.options["vocabulary"] or vocabulary
        if chosen < vocabulary:
            raise InputError(f"vocabulary must be at least {vocabulary} for {stream.name}, got {chosen}")
        return replace(network, options={**network.options, "vocabulary": chosen})
    return network


def _optimizer(recipe: Recipe, method: str, chosen: JsonMapping) -> OptimizerSpec:
    return replace(recipe.optimizer(method, chosen.get("optimizer")), **of_part("optimizer", chosen))


def _training(recipe: Recipe, method: str, chosen: JsonMapping) -> JsonObject:
    """The fields of the experiment that say how long it is trained, and on which batches."""
    training = of_part("training", chosen)
    augment = training.get("augment")
    itself = augments_itself(method)
    # Only learners can train on augmented images.
    usual = recipe.augments(method) and traits_of(method).learner
    return {
        "batch_size": recipe.batch(method),
        "epochs": recipe.passes(method),
        "updates": None if "epochs" in training else recipe.updates,
        **training,
        "augment": not itself and (usual if augment is None else augment),
    }


def _settings(recipe: Recipe, method: str, stream: Scenario, chosen: JsonMapping) -> JsonObject:
    """The hyper-parameters that the recipe sets."""
    augment = {"augment": chosen["augment"]} if augments_itself(method) and "augment" in chosen else {}
    return {**recipe.fields(method, stream.setting.kind), **augment}


def augments_itself(method: str) -> bool:
    """Whether a method has its own augmentation, which its field `augment` switches on.

    Example:
        >>> augments_itself("gdumb"), augments_itself("er")
        (True, False)
    """
    return traits_of(method).own_augmentation


def memory_within(planned: Experiment, *, settings: JsonMapping) -> dict[str, int]:
    """The memory that fits into a budget, for methods that store samples; empty for the others.

    Hsu et al. (2018) compare methods at equal memory: a rehearsal memory may take as many bytes as the
    importance and older weights that a regularisation method keeps. Where memory is counted per class and
    task (`policy=per-class`), each gets an equal share. What a method keeps besides samples, such as initial
    weights, is subtracted first.

    Args:
        planned: The experiment, whose memory may have any size.
        settings: The hyper-parameters that the user set.

    Example:
        >>> plan = replace(experiment("split-digits", "er"), budget_bytes=100_000)
        >>> memory_within(plan, settings={})  # 64 · 4 + 32 bytes each
        {'memory': 347}
    """
    from engram.engine.budget import initial_bytes

    budget, traits = planned.budget_bytes, traits_of(planned.method)
    assert budget is not None
    if budget < 1:
        raise InputError(f"budget_bytes must be at least 1, got {budget}")
    if traits.bytes_per_value is None:
        if traits.stores_data and "memory" not in settings:
            raise InputError(
                f"a budget of {budget} bytes does not say how much {planned.method} remembers: "
                + ("give its memory as well" if "memory" in planned.settings else "it keeps all data")
            )
        return {}
    if "memory" in settings:
        raise InputError(
            f"a budget of {budget} bytes sets the size of the memory of {planned.method}: "
            "give either the budget or memory"
        )
    # Tokens are whole numbers of eight bytes, and all other values floats of four.
    wide = 2 if any(info.vocabulary for info in infos_of(planned.scenario)) else 1
    one = math.prod(sample_shape(planned.scenario)) * traits.bytes_per_value * wide + traits.bytes_beside
    memory = max(budget - initial_bytes(planned), 0) // one
    counted = "sample"
    if planned.settings.get("policy") == "per-class":
        memory //= sum(len(set(task.units)) for task in planned.scenario.tasks)
        counted += " of each class"
    if memory < 1:
        raise InputError(f"a budget of {budget} bytes does not hold a single {counted}: raise it")
    return {"memory": memory}


def _as_pretrained(scenario: Scenario, model: Pretrained) -> Scenario:
    """The stream with the inputs that a pretrained network expects: colour, and its normalisation."""
    if not model.mean:
        return scenario
    expected: tuple[Transform, ...] = (Normalise(model.mean, model.std),)
    if len(model.mean) == 3:
        expected = (Colour(), *expected)
    tasks = tuple(
        replace(
            task,
            transforms=(*(step for step in task.transforms if not isinstance(step, Normalise)), *expected),
        )
        for task in scenario.tasks
    )
    return replace(scenario, tasks=tasks)
