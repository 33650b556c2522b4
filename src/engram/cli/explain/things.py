"""`engram explain` about everything but metrics: methods, scenarios, models, settings, data sets, cards."""

from __future__ import annotations

from inspect import getdoc
from typing import TYPE_CHECKING

from engram.cli.explain.value import Explanation, prose
from engram.core.words import counted, duration

if TYPE_CHECKING:
    from engram.scenarios.named import Benchmark
    from engram.scenarios.recipe import Recipe
    from engram.scenarios.values import Scenario

TIMED = ("finetune", "er", "ewc")
"""The methods whose runs are estimated for a scenario."""


def explain_method(name: str) -> Explanation:
    """A method: its rule, what it needs, and its fields.

    Example:
        >>> explain_method("er").lines["needs"]
        'stored data, boundaries'
    """
    from engram.methods import METHODS, traits_of
    from engram.methods.fields import fields_of

    method, traits = METHODS[name], traits_of(name)
    return Explanation(
        kind="method",
        name=name,
        heading=f"{name}: {traits.family}",
        text=getdoc(method) or "",
        lines={
            "paper": traits.paper,
            "needs": ", ".join(traits.usual_needs) or "nothing but the stream",
            **{field.name: f"{field.doc} ({field.type}; {field.default})" for field in fields_of(method)},
        },
    )


def explain_scenario(name: str) -> Explanation:
    """A scenario: its tasks and sizes, how it is trained, and about how long a run takes.

    Example:
        >>> lines = explain_scenario("split-digits").lines
        >>> lines["settings"], lines["tasks"]
        ('class (default), task, domain', '5 tasks of 2 classes')
        >>> lines["samples"]
        'about 288 for training and 71 for testing per task (1,442 and 355 in all)'
    """
    from engram.engine.composed import find_benchmark

    known = find_benchmark(name)
    stream = known.scenario()
    default, *others = known.setting_names
    return Explanation(
        kind="scenario",
        name=name,
        heading=name,
        text=f"{known.description.rstrip('.')}.",
        lines={
            "source": known.paper,
            "settings": ", ".join([f"{default} (default)", *others]),
            "tasks": _tasks(stream),
            "samples": _samples(stream),
            "model": _model(known.recipe),
            "training": _training(known.recipe, stream),
            "tuned for": ", ".join(known.recipe.methods),
            "a run takes": _times(known),
        },
    )


def _tasks(stream: Scenario) -> str:
    sizes = sorted({len(set(task.units)) for task in stream.tasks})
    classes = counted(sizes[0], "class") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} classes"
    return f"{counted(len(stream.tasks), 'task')} of {classes}"


def _samples(stream: Scenario) -> str:
    """How many samples there are, as far as that is known before data are loaded."""
    from engram.core.dataset_info import DATASETS

    train = test = 0.0
    for task in stream.tasks:
        info = DATASETS[task.source.dataset]
        share = len(task.source.classes) / info.classes if task.source.classes else 1.0
        train += (info.train - task.source.unused) * share
        test += info.test * share
    if train <= 0:
        return "depends on the copy"
    tasks = len(stream.tasks)
    return (
        f"about {train / tasks:,.0f} for training and {test / tasks:,.0f} for testing per task "
        f"({train:,.0f} and {test:,.0f} in all)"
    )


def _model(recipe: Recipe) -> str:
    from engram.models.spec import ModelSpec

    options = ModelSpec(recipe.model, **dict(recipe.model_options)).described()
    return f"{recipe.model} {options}".strip()


def _training(recipe: Recipe, stream: Scenario) -> str:
    optimizer = recipe.optimizers[0]
    passes = f"{recipe.updates:,} updates per task" if recipe.updates else counted(recipe.epochs, "epoch")
    if stream.passes == 1:
        passes = "one pass"
    momentum = f" momentum={optimizer.momentum:g}" if optimizer.momentum else ""
    return (
        f"{optimizer.name} lr={optimizer.lr:g}{momentum}, batch size {recipe.batch_size}, {passes}"
        f"{', images cropped and mirrored' if recipe.augment else ''}"
    )


def _times(known: Benchmark) -> str:
    """About how long a run takes on one core, for a few methods."""
    from engram.cli.describe import estimated_seconds
    from engram.core.errors import InputError

    try:
        from engram.engine.recipe import experiment
    except ModuleNotFoundError:
        # Nothing can be run without torch.
        return ""
    times = []
    for method in TIMED:
        try:
            seconds = estimated_seconds(experiment(known.name, method))
        except InputError:
            continue
        if seconds is not None:
            times.append(f"{method} {duration(seconds)}")
    return f"about: {', '.join(times)} (estimated for one core of this machine)" if times else ""


def explain_model(name: str) -> Explanation:
    """A model: what it is, how large, and its options.

    Example:
        >>> lines = explain_model("lwta").lines
        >>> [label for label in lines if label.startswith("--")]
        ['--hidden', '--block']
    """
    from engram.models import MODELS

    model = MODELS[name]
    pretrained = model.pretrained
    return Explanation(
        kind="model",
        name=name,
        heading=name,
        text=prose(getdoc(model.function) or ""),
        lines={
            "weights": _weights(name),
            "pretrained": f"on {pretrained.on}" if pretrained is not None and pretrained.on else "",
            **_model_options(name),
        },
    )


def _model_options(name: str) -> dict[str, str]:
    """The options of a model and their meaning; those of users' models are set by `--set model.NAME`."""
    from engram.models import MODELS

    prefix = "--" if MODELS.is_ours(name) else "--set model."
    return {
        f"{prefix}{option.name.replace('_', '-')}": f"{option.help} (default: {option.show(option.default)})"
        for option in MODELS[name].declared
    }


def _weights(name: str) -> str:
    """How many weights one of engram's networks has, for images of a usual size."""
    from engram.models import MODELS, build
    from engram.models.spec import ModelSpec

    if not MODELS.is_ours(name):
        return ""
    import torch

    shape = (1, 28, 28) if name in ("mlp", "lwta") else (3, 32, 32)
    # Nothing is drawn or stored: on this device tensors have shapes and no numbers.
    with torch.device("meta"):
        network = build(ModelSpec(name), shape=shape, n_units=10, seed=0)
    count = sum(weight.numel() for weight in network.parameters())
    return f"{count:,} for images of {'×'.join(map(str, shape))} and 10 classes"


def setting_names() -> tuple[str, ...]:
    """The settings.

    Example:
        >>> setting_names()
        ('task', 'domain', 'class')
    """
    from engram.scenarios.settings import SETTING_NAMES

    return SETTING_NAMES


def explain_setting(name: str) -> Explanation:
    """A setting: what the learner and the evaluator may know.

    Example:
        >>> explain_setting("domain").lines["task identity"]
        'hidden, in training and at test time'
    """
    from engram.scenarios.catalogue import BENCHMARKS
    from engram.scenarios.values import ClassSetting, DomainSetting, TaskSetting

    hidden = "hidden, in training and at test time"
    kind, lines = {
        "task": (
            TaskSetting,
            {
                "task identity": "known, in training and at test time",
                "output units": "one head per task; only the units of the task compete",
                "boundaries": "known",
            },
        ),
        "domain": (
            DomainSetting,
            {
                "task identity": hidden,
                "output units": "the same units for every task",
                "boundaries": "known, unless the scenario hides them",
            },
        ),
        "class": (
            ClassSetting,
            {
                "task identity": hidden,
                "output units": "one unit per class of all tasks; all of them compete from the start if "
                "their number is known (--classes known), else those seen so far (--classes unknown)",
                "boundaries": "known, unless the scenario hides them",
            },
        ),
    }[name]
    default = [known for known in BENCHMARKS if BENCHMARKS[known].setting_names[0] == name]
    return Explanation(
        kind="setting",
        name=name,
        heading=f"the {name} setting",
        text=prose(getdoc(kind) or ""),
        lines={**lines, "default of": ", ".join(default)},
    )


def explain_dataset(name: str) -> Explanation:
    """A data set: its size, where it was found, and which scenarios use it.

    Example:
        >>> lines = explain_dataset("digits").lines
        >>> lines["samples"], lines["found"]
        ('1,442 for training and 355 for testing', 'embedded (scikit-learn)')
    """
    from engram.core.dataset_info import DATASETS
    from engram.datasets.find import locate, missing
    from engram.scenarios.catalogue import BENCHMARKS

    info = DATASETS[name]
    copy = None if name == "digits" else locate(name)
    place = "embedded (scikit-learn)" if name == "digits" else str(copy.path) if copy else ""
    parts = [part for part in DATASETS if DATASETS[part].part_of == name]
    used = [
        scenario
        for scenario in BENCHMARKS
        if {name, *parts} & {task.source.dataset for task in BENCHMARKS[scenario].scenario().tasks}
    ]
    return Explanation(
        kind="data set",
        name=name,
        heading=f"{name}: {info.title}",
        lines={
            "classes": f"{info.classes:,}",
            "shape": "×".join(map(str, info.shape)),
            "samples": f"{info.train:,} for training and {info.test:,} for testing"
            if info.train
            else "depends on the copy",
            "part of": info.part_of,
            "parts": ", ".join(parts),
            "found": place,
            "missing": "" if place else missing(name),
            "used by": ", ".join(used),
        },
    )


def optimizer_names() -> list[str]:
    """The optimisers."""
    from engram.methods.optimizers import OPTIMIZERS

    return list(OPTIMIZERS)


def explain_optimizer(name: str) -> Explanation:
    """An optimiser: the class of PyTorch that it is.

    Example:
        >>> explain_optimizer("adam").heading
        'adam: torch.optim.Adam'
    """
    import torch

    from engram.core.values import OptimizerSpec
    from engram.methods.optimizers import build_optimizer

    optimizer = build_optimizer(OptimizerSpec(name), [torch.nn.Parameter(torch.zeros(1))])
    return Explanation(
        kind="optimizer",
        name=name,
        heading=f"{name}: torch.optim.{type(optimizer).__name__}",
        lines={"options": "--lr, --momentum (sgd, rmsprop), --weight-decay"},
    )


def verdict_names() -> list[str]:
    """The verdicts of `engram reproduce`."""
    from engram.papers.verdict import MEANINGS

    return list(MEANINGS)


def explain_verdict(name: str) -> Explanation:
    """A verdict on a published number: what it says, and what it does not.

    Example:
        >>> explain_verdict("consistent").heading
        'consistent: a verdict of engram reproduce'
    """
    from engram.papers.recorded import everything
    from engram.papers.verdict import FEW_RUNS, MEANINGS

    meaning = MEANINGS[name]
    count = sum(record["verdicts"].get(name, 0) for record in everything())
    tested = name in ("reproduced", "consistent", "differs")
    lines = {
        "test of means": f"Welch, p < .01, two-sided; Student's with fewer than {FEW_RUNS} runs of ours, "
        "whose SD alone is too uncertain; a single run has the published SD",
        "equivalence": "two one-sided tests at .05 each, degrees of freedom of the smaller sample; "
        "the margin is 1 point (.01 where numbers are fractions)",
        "detectable": "the smallest difference of means that would have been called differs; "
        "engram reproduce --power NAME says how many runs smaller ones take",
        "rounding": "a printed number stands for all that are rounded to it: a verdict holds for all of them",
        "order": "differs comes before reproduced; our own spread never makes a number reproduced",
    }
    return Explanation(
        kind="verdict",
        name=name,
        heading=f"{name}: a verdict of engram reproduce",
        text=f"{meaning[0].upper()}{meaning[1:]}",
        lines={
            **(lines if tested else {}),
            "recorded": f"{count:,} numbers; docs/reproduction.md lists them",
        },
    )


def card_questions() -> dict[str, tuple[str, str]]:
    """The questions and the constraints of a protocol card: by name, the question and how it is answered.

    Example:
        >>> card_questions()["passes"][0]
        'How many passes over the data?'
    """
    from engram.results.questions import CONSTRAINTS, QUESTIONS

    questions = {name: (question.question, question.how) for name, question in QUESTIONS.items()}
    constraints = {
        name: ("a constraint that applications set (Pfülb & Gepperth 2019)", question.how)
        for name, question in CONSTRAINTS.items()
    }
    return {**questions, **constraints}


def explain_question(name: str) -> Explanation:
    """A question of the protocol card: how its answer is measured.

    Example:
        >>> explain_question("causality").kind
        'card question'
    """
    question, how = card_questions()[name]
    return Explanation(
        kind="card question",
        name=name,
        heading=f"{name}: {question}",
        lines={"measured": how, "shown by": "`engram audit RUNS`, and in the report"},
    )


def term_names() -> tuple[str, ...]:
    """The words of statistics.

    Example:
        >>> term_names()[:2]
        ('interval', 'sign-flip')
    """
    from engram.metrics.terms import TERMS

    return tuple(TERMS)


def explain_term(name: str) -> Explanation:
    """A word of statistics.

    Example:
        >>> list(explain_term("holm").lines)
        ['pairs']
    """
    from engram.metrics.terms import TERMS

    term = TERMS[name]
    return Explanation(kind="statistics", name=name, heading=term.title, text=term.meaning, lines=term.lines)
