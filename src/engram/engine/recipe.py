"""From a benchmark's name to an experiment: its paper's set-up, and what somebody wants otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram.core.errors import InputError
from engram.core.values import OptimizerSpec
from engram.engine.options import all_options, checked, of_part
from engram.engine.start import check_start, sample_shape, start_from
from engram.methods import METHODS, traits_of
from engram.methods import method as register_method
from engram.methods.fields import fields_of
from engram.models.spec import ModelSpec, Pretrained, check_used, option_of, own_options
from engram.record.experiment import EvaluationSpec, Experiment
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
    method: str | type[Any],
    *,
    model: str | nn.Module | Callable[..., nn.Module] | None = None,
    settings: Mapping[str, Any] | None = None,
    evaluation: Mapping[str, Any] | None = None,
    classes_known: bool | None = None,
    seed: int = 0,
    **options: Any,
) -> Experiment:
    """The experiment that `engram run` would run: the scenario's own recipe for what is left open.

    Args:
        scenario: A name, or a `Scenario`. The latter has the recipe of the registered scenario whose name it
            has, if there is one (so `prefix(…)` of a benchmark is trained like the benchmark), and else the
            default one: see `engram.scenarios.Recipe`.
        method: A name, or a method's class. A class that is not registered is registered under its own name,
            and the hash of the file that it is written in is part of the experiment's identity.
        model: A network's name, any `nn.Module`, or a function `(shape, n_units) -> nn.Module`. What is part
            of the identity of a module or function is said in `engram.models.values`: structure, source and,
            of a module, its weights, which every run starts from.
        settings: Hyper-parameters of the method.
        evaluation: Fields of `EvaluationSpec`; those that are options may also be given as keywords.
        classes_known: The same as `classes="known"` or `"unknown"`.
        seed: The run's seed.
        **options: Any of `engram.engine.options.all_options()`: `setting`, `classes`, `boundaries` (False
            hides where tasks begin), the network's (`hidden`, `block`, `stem`, those of your own models,
            `weights`: a file to start from), `optimizer`, `lr`, `momentum`, `weight_decay`, `batch_size`,
            `epochs` or `updates` per task, `augment`, `budget_bytes`, `every`, `subset` and so on; None
            leaves an option open.

    Raises:
        InputError: A name is unknown, a value cannot be used, or things do not go together.

    Example:
        >>> experiment("split-digits", "er", lr=0.1).optimizer.lr
        0.1
        >>> experiment("split-digits", "er", learning_rate=0.1)
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown option 'learning_rate'; ...
    """
    from engram.engine.check import complete

    called = _method_name(method)
    if classes_known is not None:
        options["classes"] = "known" if classes_known else "unknown"
    chosen = _checked(called, options)
    named = _named(scenario)
    recipe = named.recipe
    stream = named.scenario(_setting(named, chosen), seed=seed)
    network = _network(recipe, called, model, chosen)
    if (pretrained := network.model.pretrained) is not None:
        network = replace(network, init="default")
        stream = _as_pretrained(stream, pretrained)
    planned = complete(
        Experiment(
            stream,
            called,
            settings=_settings(recipe, called, stream, chosen) | dict(settings or {}),
            model=network,
            optimizer=_optimizer(recipe, called, chosen),
            evaluation=EvaluationSpec(
                **{"subset": recipe.subset, **(evaluation or {}), **of_part("evaluation", chosen)}
            ),
            start=start_from(Path(chosen["weights"])) if "weights" in chosen else None,
            seed=seed,
            **_training(recipe, called, chosen),
        )
    )
    return _within_budget(planned, settings or {})


def _within_budget(planned: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """The experiment with its memory sized by its budget, if it has one, and its start checked."""
    from engram.engine.budget import check_budget
    from engram.engine.check import complete

    if planned.budget_bytes is not None:
        sized = memory_within(planned, given=settings)
        planned = complete(replace(planned, settings={**planned.settings, **sized}))
    check_start(planned)
    check_budget(planned)
    return planned


def _method_name(method: str | type[Any]) -> str:
    """The name of a method; a class that has none is registered under its own."""
    if isinstance(method, str):
        METHODS[method]
        return method
    registered = METHODS.name_of(method)
    if registered is not None:
        return registered
    called = getattr(method, "__name__", "")
    if not isinstance(method, type):
        raise InputError(f"{method!r} is not a method: give a name or a class")
    register_method(called)(method)
    return called


def _checked(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, checked; a hyper-parameter of the method among them is told where it belongs."""
    own = {item.name for item in fields_of(METHODS[method])}
    for name in options:
        if name in own and name not in all_options():
            raise InputError(f"{name} is a hyper-parameter of {method}: give settings={{{name!r}: …}}")
    return checked(options)


def _named(scenario: str | Scenario) -> Benchmark:
    """A scenario with its recipe."""
    if isinstance(scenario, str):
        return benchmark(scenario)
    if not isinstance(scenario, Scenario):
        raise InputError(f"{scenario!r} is not a scenario: give a name or a Scenario")
    stream, setting = scenario, scenario.setting
    recipe = benchmark(stream.name).recipe if stream.name in BENCHMARKS else Recipe()
    return Benchmark(
        stream.name, "", "", (setting,), lambda setting, _seed: replace(stream, setting=setting), recipe
    )


def _setting(named: Benchmark, chosen: Mapping[str, Any]) -> Setting | SettingName | None:
    """The setting, with what is to be known of classes and boundaries."""
    name: SettingName | None = chosen.get("setting")
    if not {"classes", "boundaries"} & set(chosen):
        return name
    own = next((s for s in named.settings if name in (None, s.kind)), None)
    if own is None:
        return name
    if "classes" in chosen:
        if not isinstance(own, ClassSetting):
            raise InputError(
                f"classes are known or unknown only in the class setting, not in {own.kind}: leave it out"
            )
        own = replace(own, classes_known=chosen["classes"] == "known")
    if "boundaries" in chosen:
        if isinstance(own, TaskSetting):
            raise InputError("the task setting tells which task it is: use the domain or class setting")
        own = replace(own, boundaries=chosen["boundaries"])
    return own


def _network(
    recipe: Recipe,
    method: str,
    model: str | nn.Module | Callable[..., nn.Module] | None,
    chosen: Mapping[str, Any],
) -> ModelSpec:
    """The network: the recipe's, with what the method has otherwise, or the one that is given."""
    network_options = {name: value for name, value in chosen.items() if option_of(name) is not None}
    written = {name: chosen[name] for name in ("init", "zero_head") if name in chosen}
    if model is not None and not isinstance(model, str):
        from engram.models.values import spec_of

        if network_options:
            raise InputError(f"{next(iter(network_options))} is an option of named networks: leave it out")
        return replace(spec_of(model), **written)
    name = model or recipe.model
    check_used(name, network_options)
    # A user's own network has its own defaults for what it declares itself.
    usual = {key: value for key, value in recipe.model_options.items() if key not in own_options(name)}
    # What a method has otherwise is said of the recipe's own network.
    own = recipe.network(method) if name == recipe.model else {}
    return ModelSpec(name, **{**usual, **own, **network_options, **written})


def _optimizer(recipe: Recipe, method: str, chosen: Mapping[str, Any]) -> OptimizerSpec:
    return replace(recipe.optimizer(method, chosen.get("optimizer")), **of_part("optimizer", chosen))


def _training(recipe: Recipe, method: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the experiment that say how long and on what it is trained."""
    training = of_part("training", chosen)
    augment = training.get("augment")
    itself = augments_itself(method)
    # Only learners take images that are changed for them; a method of another kind is asked for nothing.
    usual = recipe.augments(method) and traits_of(method).learner
    return {
        "batch_size": recipe.batch(method),
        "epochs": recipe.passes(method),
        "updates": None if "epochs" in training else recipe.updates,
        **training,
        "augment": not itself and (usual if augment is None else augment),
    }


def _settings(recipe: Recipe, method: str, stream: Scenario, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters that the recipe sets."""
    own = {"augment": chosen["augment"]} if augments_itself(method) and "augment" in chosen else {}
    return {**recipe.fields(method, stream.setting.kind), **own}


def augments_itself(method: str) -> bool:
    """Whether a method changes images in a way of its own, which its field `augment` switches on.

    Example:
        >>> augments_itself("gdumb"), augments_itself("er")
        (True, False)
    """
    return traits_of(method).own_augmentation


def memory_within(planned: Experiment, *, given: Mapping[str, Any]) -> dict[str, int]:
    """The memory that fits into a budget, for methods that store samples; nothing for the others.

    Hsu et al. (2018) compare methods at equal memory: the importance and the older weights of a prior take as
    much as so many images. A memory that is counted for each class of each task (`policy=per-class`) gets its
    share. What a method keeps besides, such as weights to start from, comes first.

    Args:
        planned: The experiment, whose memory may have any size.
        given: The hyper-parameters that were asked for.

    Example:
        >>> plan = replace(experiment("split-digits", "er"), budget_bytes=100_000)
        >>> memory_within(plan, given={})  # 64 · 4 + 32 bytes each
        {'memory': 347}
    """
    from engram.engine.budget import initial_bytes

    budget, traits = planned.budget_bytes, traits_of(planned.method)
    assert budget is not None
    if budget < 1:
        raise InputError(f"budget_bytes must be at least 1, got {budget}")
    if traits.bytes_per_value is None:
        if traits.stores_data and "memory" not in given:
            raise InputError(
                f"a budget of {budget} bytes does not say how much {planned.method} remembers: "
                + ("give its memory as well" if "memory" in planned.settings else "it keeps all data")
            )
        return {}
    if "memory" in given:
        raise InputError(
            f"a budget of {budget} bytes says how large the memory of {planned.method} is: "
            "give either the budget or memory"
        )
    one = math.prod(sample_shape(planned.scenario)) * traits.bytes_per_value + traits.bytes_beside
    memory = max(budget - initial_bytes(planned), 0) // one
    counted = "sample"
    if planned.settings.get("policy") == "per-class":
        memory //= sum(len(set(task.units)) for task in planned.scenario.tasks)
        counted += " of each class"
    if memory < 1:
        raise InputError(f"a budget of {budget} bytes holds not a single {counted}: give more")
    return {"memory": memory}


def _as_pretrained(scenario: Scenario, model: Pretrained) -> Scenario:
    """The stream with inputs as a pretrained network knows them: colour and normalised its own way."""
    if not model.mean:
        return scenario
    own: tuple[Transform, ...] = (Normalise(model.mean, model.std),)
    if len(model.mean) == 3:
        own = (Colour(), *own)
    tasks = tuple(
        replace(
            task, transforms=(*(step for step in task.transforms if not isinstance(step, Normalise)), *own)
        )
        for task in scenario.tasks
    )
    return replace(scenario, tasks=tasks)
