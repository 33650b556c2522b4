"""Options that cannot do what they say: refused, or said to have no effect, before anything is run."""

from __future__ import annotations

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.core.jsons import JsonMapping
from engram.engine.options import parts
from engram.methods import METHODS, traits_of
from engram.methods.fields import fields_of, uses_optimizer
from engram.record.experiment import Experiment
from engram.record.two_level import small_level, too_few
from engram.scenarios.values import Task


def refuse_ignored(planned: Experiment, chosen: JsonMapping) -> None:
    """Refuse options that would be ignored.

    Args:
        planned: The experiment.
        chosen: The options that were set, by name.

    Raises:
        InputError: An option would be ignored; the message says why.

    Example:
        >>> from engram.scenarios import online, split
        >>> planned = Experiment(online(split("digits", setting="class")), "er", updates=2)
        >>> refuse_ignored(planned, {"updates": 2})
        Traceback (most recent call last):
        engram.core.errors.InputError: split-digits shows every sample once, so updates=2 would be ignored...
    """
    _refuse_length(planned, chosen)
    _refuse_of_learners(planned, chosen)
    spec = planned.evaluation
    if chosen.get("per_epoch") and spec.every == 1 and not spec.points:
        raise InputError(
            "per_epoch counts the updates of `every` within each epoch, and every update is evaluated: "
            "set every above 1, or leave per_epoch out"
        )
    _refuse_levels(planned)
    if not chosen.get("redraw"):
        return
    if spec.subset is None:
        raise InputError(
            "redraw draws a new subset for every evaluation, and all samples are used: set subset"
        )
    sizes = [evaluated_samples(planned, task) for task in planned.scenario.tasks]
    if all(size is not None and size <= spec.subset for size in sizes):
        largest = max(size for size in sizes if size is not None)
        raise InputError(
            f"redraw draws a new subset of {spec.subset} samples for every evaluation, and no task has more "
            f"than {largest}: set subset below that"
        )


def _refuse_levels(planned: Experiment) -> None:
    """Refuse two levels of samples where no task has more samples than the small one."""
    small = small_level(planned.evaluation.samples)
    if small is None:
        return
    sizes = [evaluated_samples(planned, task) for task in planned.scenario.tasks]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes) and max(known) <= small:
        raise InputError(too_few(small, max(known)))


def _refuse_length(planned: Experiment, chosen: JsonMapping) -> None:
    """Refuse epochs beside updates, and either of them for a stream that has its own number of passes."""
    if "epochs" in chosen and "updates" in chosen:
        raise InputError("epochs and updates cannot be used together: use one of them")
    passes = planned.scenario.passes
    if passes is None:
        return
    shown = "once" if passes == 1 else f"{passes} times"
    for name in ("epochs", "updates"):
        if name in chosen and not (name == "epochs" and chosen[name] == passes):
            raise InputError(
                f"{planned.scenario.name} shows every sample {shown}, so {name}={chosen[name]} would be "
                f"ignored: leave {name} out"
            )


def _refuse_of_learners(planned: Experiment, chosen: JsonMapping) -> None:
    """Refuse options of the optimiser and of gradients for a method that has none."""
    method, kind = planned.method, METHODS[planned.method]
    if chosen.get("gradients") and not traits_of(method).learner:
        raise InputError(f"method {method} does not tell the parts of its gradients: leave gradients out")
    if uses_optimizer(kind):
        return
    own = {item.name for item in fields_of(kind)}
    for name in parts()["optimizer"]:
        if name in chosen:
            instead = f"set its own field {name}" if name in own else f"leave {name} out"
            raise InputError(
                f"method {method} does not use the optimiser of the experiment, so {name}={chosen[name]} "
                f"would be ignored: {instead}"
            )


def without_effect(planned: Experiment, chosen: JsonMapping) -> dict[str, str]:
    """Options that change nothing in this experiment, because what they ask for is the case anyway.

    Args:
        planned: The experiment.
        chosen: The options that were set, by name.

    Returns:
        For each of these options, the reason.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> without_effect(experiment("split-digits", "offline", tasks="all"), {"tasks": "all", "lr": 0.1})
        {'tasks': 'all tasks are learned at once'}
    """
    reasons = {}
    at_once = len(planned.scenario.phases) == 1
    if at_once:
        reasons = dict.fromkeys(("tasks", "reset", "classes", "boundaries"), "all tasks are learned at once")
    elif not planned.scenario.setting.shows_boundaries:
        reasons["reset"] = "the learner does not see where tasks begin"
    elif traits_of(planned.method).fresh:
        reasons["reset"] = "every task begins with a new network"
    elif planned.optimizer.name == "sgd" and not planned.optimizer.momentum:
        reasons["reset"] = "sgd without momentum has no state"
    return {name: reason for name, reason in reasons.items() if name in chosen}


def learned_samples(planned: Experiment) -> int | None:
    """About how many samples the largest phase is learned from; None where that is unknown.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> learned_samples(experiment("split-digits", "er"))
        288
    """
    sizes = []
    for phase in planned.scenario.phases:
        sources = [planned.scenario.tasks[place].source for place in phase]
        infos = [DATASETS[source.dataset] for source in sources]
        if not all(info.train and info.classes for info in infos):
            return None
        pairs = zip(sources, infos, strict=True)
        sizes.append(sum((info.train - x.unused) * len(x.classes) / info.classes for x, info in pairs))
    return round(max(sizes) * (1 - planned.scenario.held_out))


def evaluated_samples(planned: Experiment, task: Task) -> int | None:
    """About how many samples a task is evaluated on if there is no subset; None where that is unknown.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> planned = experiment("split-mnist", "er")
        >>> evaluated_samples(planned, planned.scenario.tasks[0])
        2000
    """
    info = DATASETS[task.source.dataset]
    held_out, on = planned.scenario.held_out, planned.evaluation.on
    whole = info.test if on == "test" else (info.train - task.source.unused)
    if not whole or not info.classes:
        return None
    share = 1.0 if on == "test" else held_out if on == "validation" else 1 - held_out
    return round(whole * share * len(task.source.classes) / info.classes)
