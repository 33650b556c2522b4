"""From a benchmark's name to an experiment: its paper's set-up, and what somebody wants otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from engram.core.errors import InputError
from engram.engine.start import check_start, sample_shape, start_from
from engram.methods import traits_of
from engram.models import MODELS, PRETRAINED
from engram.models.spec import ModelSpec, Pretrained, check_used
from engram.record.experiment import EvaluationSpec, Experiment
from engram.scenarios import SettingName, benchmark
from engram.scenarios.values import ClassSetting, Colour, Normalise, Scenario, Setting, Transform


def experiment(
    scenario: str,
    method: str,
    *,
    setting: SettingName | None = None,
    classes_known: bool | None = None,
    model: str | None = None,
    hidden: tuple[int, ...] | None = None,
    dropout_input: float | None = None,
    dropout_hidden: float | None = None,
    block: int | None = None,
    stem: Literal["32", "224"] | None = None,
    weights: Path | str | None = None,
    optimizer: str | None = None,
    lr: float | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    updates: int | None = None,
    augment: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    evaluation: Mapping[str, Any] | None = None,
    budget_bytes: int | None = None,
    seed: int = 0,
) -> Experiment:
    """The experiment that `engram run` would run: the benchmark's own defaults for what is left open.

    Args:
        scenario: A benchmark's name.
        method: A method's name.
        setting: What learner and evaluator may know.
        classes_known: In the class setting, whether all classes compete from the start.
        model: A network's name.
        hidden: Its hidden widths.
        dropout_input: The share of inputs that it drops while training.
        dropout_hidden: The share of hidden units that it drops while training.
        block: How many units compete in each block of `lwta`.
        stem: The first layers of a residual network: see `ModelSpec`.
        weights: A file of weights to start from: a state dict of `torch.save`, or safetensors. What is in it
            is part of the experiment, where it lies is not.
        optimizer: An optimiser's name.
        lr: Its learning rate.
        momentum: Its momentum.
        weight_decay: Its weight decay.
        batch_size: New samples in each update.
        epochs: Passes over each task's data.
        updates: Updates of each task, instead of passes.
        augment: Whether images are cropped and mirrored at random whenever they are learned.
        settings: Hyper-parameters of the method.
        evaluation: Fields of `EvaluationSpec`.
        budget_bytes: How many bytes the method may keep beyond the weights; a memory of samples gets as many
            as fit, and cannot be given as well; a method that is known to keep more is refused, and a run
            that does is stopped.
        seed: The run's seed.

    Example:
        >>> experiment("split-digits", "er", lr=0.1).optimizer.lr
        0.1
    """
    from engram.engine.budget import check_budget
    from engram.engine.check import complete

    found = benchmark(scenario)
    recipe = found.recipe
    stream = found.scenario(_with_classes(found.settings, setting, classes_known), seed=seed)
    network = ModelSpec(model or recipe.model, hidden=recipe.hidden, stem=recipe.stem, init=recipe.init)
    shape: dict[str, Any] = {
        "hidden": hidden,
        "dropout_input": dropout_input,
        "dropout_hidden": dropout_hidden,
        "block": block,
        "stem": stem,
    }
    given = {name: value for name, value in shape.items() if value is not None}
    # What a user's own network has a use for is not known.
    if network.name in MODELS and MODELS.is_ours(network.name):
        check_used(network.name, given)
    # What a method has otherwise is said of the benchmark's own network.
    own: dict[str, Any] = recipe.network(method) if network.name == recipe.model else {}
    network = replace(network, **{**own, **given})
    if network.name in PRETRAINED:
        network = replace(network, init="default")
        stream = _as_pretrained(stream, PRETRAINED[network.name])
    steps = recipe.optimizer(method, optimizer)
    steps = replace(
        steps,
        lr=steps.lr if lr is None else lr,
        momentum=steps.momentum if momentum is None else momentum,
        weight_decay=steps.weight_decay if weight_decay is None else weight_decay,
    )
    itself = augments_itself(method)
    own_fields = {"augment": augment} if itself and augment is not None else {}
    # Only learners take images that are changed for them; a method of another kind is asked for nothing.
    usual = recipe.augments(method) and traits_of(method).learner
    chosen = {**recipe.fields(method, stream.setting.kind), **own_fields, **(settings or {})}
    planned = complete(
        Experiment(
            stream,
            method,
            settings=chosen,
            model=network,
            optimizer=steps,
            batch_size=batch_size if batch_size is not None else recipe.batch(method),
            epochs=epochs if epochs is not None else recipe.passes(method),
            updates=recipe.updates if updates is None and epochs is None else updates,
            augment=not itself and (usual if augment is None else augment),
            evaluation=EvaluationSpec(**{"subset": recipe.subset, **(evaluation or {})}),
            budget_bytes=budget_bytes,
            start=None if weights is None else start_from(Path(weights)),
            seed=seed,
        )
    )
    if budget_bytes is not None:
        sized = memory_within(planned, given=settings or {})
        planned = complete(replace(planned, settings={**planned.settings, **sized}))
    check_start(planned)
    check_budget(planned)
    return planned


def augments_itself(method: str) -> bool:
    """Whether a method changes images in a way of its own, which its field `augment` switches on.

    Example:
        >>> augments_itself("gdumb"), augments_itself("er")
        (True, False)
    """
    return traits_of(method).own_augmentation


def memory_within(planned: Experiment, *, given: Mapping[str, Any]) -> dict[str, int]:
    """The memory that fits into a budget, for methods that store samples; nothing for the others.

    002 compares methods at equal memory: the importance and the older weights of a prior take as much as so
    many images. A memory that is counted for each class of each task (`policy=per-class`) gets its share.
    What a method keeps besides, such as weights to start from, comes first.

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
        raise InputError(f"budget_bytes={budget} cannot be used: give 1 or more")
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
            task, transforms=(*(each for each in task.transforms if not isinstance(each, Normalise)), *own)
        )
        for task in scenario.tasks
    )
    return replace(scenario, tasks=tasks)


def _with_classes(
    settings: tuple[Setting, ...], name: SettingName | None, classes_known: bool | None
) -> Setting | SettingName | None:
    if classes_known is None:
        return name
    own = settings[0] if name is None else next((s for s in settings if s.kind == name), None)
    if own is None:
        return name
    if not isinstance(own, ClassSetting):
        raise InputError(f"whether classes are known means nothing in the {own.kind} setting: leave it out")
    return replace(own, classes_known=classes_known)
