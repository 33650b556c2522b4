"""A readable summary of an experiment, shown before it is run."""

from __future__ import annotations

from engram.core.words import counted, every
from engram.datasets.loading import OWN
from engram.engine.composed import infos_of
from engram.engine.effects import evaluated_samples, learned_samples
from engram.engine.options import parts
from engram.record.experiment import Experiment
from engram.record.two_level import small_level

_UNEVEN = 1.25


def description(experiment: Experiment) -> dict[str, str]:
    """What is run, defaults included: one short text for each part of the experiment.

    Example:
        >>> from engram.engine.recipe import experiment
        >>> rows = description(experiment("split-digits", "er", model="lwta", block=4, updates=1))
        >>> rows["model"], rows["training"]
        ('lwta hidden=64,64 block=4', 'sgd lr=0.05 momentum=0.8, batches of 32, 1 update per task')
        >>> rows["evaluation"]
        'every update, on all test samples of each task, about 71'
    """
    stream, model = experiment.scenario, experiment.model
    settings = " ".join(f"{name}={value}" for name, value in experiment.settings.items())
    tasks = counted(len(stream.tasks), "task")
    hidden = "" if stream.setting.shows_boundaries else ", boundaries hidden"
    return {
        "scenario": f"{stream.name}, {tasks}, {stream.setting.kind} setting{hidden}",
        **_data(experiment),
        "method": f"{experiment.method} {settings}".strip(),
        "model": f"{model.name} {model.described()}".strip(),
        "training": _training(experiment),
        "evaluation": _evaluation(experiment),
    }


def _data(experiment: Experiment) -> dict[str, str]:
    """What a user's own data are, and how they were divided."""
    told = []
    for info in infos_of(experiment.scenario):
        if info.name in OWN:
            size = "×".join(map(str, info.shape))
            sizes = f"{info.train:,} training and {info.test:,} test samples"
            text = f"{info.name}: {info.inputs} {size}, {sizes}"
            told.append(f"{text} ({info.note})" if info.note else text)
    return {"data": "; ".join(told)} if told else {}


def _training(experiment: Experiment) -> str:
    optimizer = experiment.optimizer
    # Defaults are left out, except for the learning rate and the momentum.
    rates = " ".join(
        f"{option.name}={option.show(getattr(optimizer, option.field))}"
        for option in parts()["optimizer"].values()
        if option.name in ("lr", "momentum")
        or (option.name != "optimizer" and getattr(optimizer, option.field) != option.default)
    )
    if experiment.scenario.passes == 1:
        passes = "one pass"
    elif experiment.updates:
        passes = f"{counted(experiment.updates, 'update')} per task"
    else:
        passes = counted(experiment.epochs, "epoch")
    augmented = ", images cropped and mirrored" if experiment.augment else ""
    return f"{optimizer.name} {rates}, {_batches(experiment)}, {passes}{augmented}"


def _batches(experiment: Experiment) -> str:
    """How large batches are: never larger than what there is to learn from at a time."""
    most = learned_samples(experiment)
    # Classes may have more or fewer samples than the average, which is what is known.
    if most is not None and experiment.batch_size > _UNEVEN * most:
        at_once = "everything" if len(experiment.scenario.phases) == 1 else "a task"
        return f"batches of all samples of {at_once}, about {most:,}"
    return f"batches of {experiment.batch_size:,}"


def _evaluation(experiment: Experiment) -> str:
    spec = experiment.evaluation
    often = f"about {spec.points} times per task" if spec.points else every(spec.every, "update")
    extras = [
        option.name.replace("_", " ")
        for option in parts()["evaluation"].values()
        if option.default is False and getattr(spec, option.field)
    ]
    more = f" ({', '.join(extras)})" if extras else ""
    small = small_level(spec.samples)
    levels = "" if small is None else f", {small:,} of them every time and all at some"
    return f"{often}, on {_samples(experiment)}{levels}{more}"


def _samples(experiment: Experiment) -> str:
    """On how many samples of each task it is evaluated, as far as the sizes of data sets are known."""
    spec = experiment.evaluation
    sizes = [evaluated_samples(experiment, task) for task in experiment.scenario.tasks]
    known = [size for size in sizes if size is not None]
    low, high = min(known, default=0), max(known, default=0)
    about = f", about {low:,}" if low == high else f", about {low:,} to {high:,}"
    # Classes may have more or fewer samples than the average, which is what is known.
    if spec.subset is None or (len(known) == len(sizes) and high * _UNEVEN < spec.subset):
        return f"all {spec.on} samples of each task{about if len(known) == len(sizes) else ''}"
    if len(known) == len(sizes) and low > spec.subset * _UNEVEN:
        return f"{spec.subset:,} {spec.on} samples per task"
    return f"at most {spec.subset:,} {spec.on} samples per task"
