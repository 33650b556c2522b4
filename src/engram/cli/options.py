"""The options that verbs share, declared once, and what they come to."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from engram.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    from engram.engine.where import Where
    from engram.record.experiment import Experiment

Plugin = Annotated[
    Path | None, typer.Option(help="A Python file that registers methods, models or metrics of your own.")
]
Data = Annotated[Path | None, typer.Option(help="Folder with data sets.")]
Out = Annotated[Path, typer.Option(help="Where runs are kept.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop a method that reads what it should not; see `engram audit`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What `engram run` and `engram protocol` both take: the experiment, its seeds, and where it is run."""

    setting: Annotated[str | None, typer.Option(help="task, domain or class.")] = None
    classes: Annotated[
        str | None, typer.Option(help="In the class setting: number of classes known or unknown.")
    ] = None
    model: Annotated[str | None, typer.Option(help="A network: see `engram list models`.")] = None
    hidden: Annotated[str | None, typer.Option(help="Hidden widths, for example 400,400.")] = None
    dropout_input: Annotated[
        float | None, typer.Option(help="Share of inputs that mlp or conv drops while training.")
    ] = None
    dropout_hidden: Annotated[
        float | None, typer.Option(help="Share of hidden units that mlp or conv drops while training.")
    ] = None
    block: Annotated[int | None, typer.Option(help="How many units compete in each block of lwta.")] = None
    stem: Annotated[
        str | None, typer.Option(help="First layers of a residual network: 32 or 224 pixels.")
    ] = None
    weights: Annotated[
        Path | None, typer.Option(help="Weights to start from: a state dict, .pt or .safetensors.")
    ] = None
    optimizer: Annotated[str | None, typer.Option(help="sgd, adam, adamw, adagrad or rmsprop.")] = None
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None
    momentum: Annotated[float | None, typer.Option(help="Momentum of sgd or rmsprop.")] = None
    weight_decay: Annotated[float | None, typer.Option(help="L2 weight decay; decoupled in adamw.")] = None
    epochs: Annotated[int | None, typer.Option(help="Passes over each task's data.")] = None
    updates: Annotated[int | None, typer.Option(help="Updates of each task, instead of passes.")] = None
    batch_size: Annotated[int | None, typer.Option(help="New samples in each update.")] = None
    augment: Annotated[
        bool | None,
        typer.Option("--augment/--no-augment", help="Crop and mirror images whenever they are learned."),
    ] = None
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A field of the method: FIELD=VALUE. May be repeated.")
    ] = None
    full_ends: Annotated[bool, typer.Option("--full-ends", help="Also all test samples at task ends.")] = (
        False
    )
    tasks: Annotated[str, typer.Option(help="Evaluate the tasks seen so far, or all.")] = "seen"
    redraw: Annotated[bool, typer.Option("--redraw", help="Draw the subset anew each time.")] = False
    per_epoch: Annotated[bool, typer.Option("--per-epoch", help="Count --every within each epoch.")] = False
    losses: Annotated[bool, typer.Option("--losses", help="Record test losses as well.")] = False
    gradients: Annotated[
        bool, typer.Option("--gradients", help="Record stability and plasticity gradient norms.")
    ] = False
    budget_bytes: Annotated[
        int | None, typer.Option(help="Bytes that may be kept beyond the weights; sizes the memory.")
    ] = None
    plugin: Plugin = None
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1
    first_seed: Annotated[int, typer.Option(help="The first seed.")] = 0
    data: Data = None
    out: Out = Path("runs")
    threads: Annotated[int | None, typer.Option(help="Threads that compute.")] = None
    device: Device = "cpu"
    strict: Strict = False
    again: Annotated[bool, typer.Option("--again", help="Run even what exists already.")] = False
    json: Json = False

    def check(self, *, subset: int | None) -> None:
        """Refuse what can be seen to be wrong before anything is imported."""
        if self.seeds < 1:
            raise InputError(f"seeds={self.seeds} cannot be used: give 1 or more")
        if subset is not None and subset < 0:
            raise InputError(f"subset={subset} cannot be used: give 1 or more, or 0 for all samples")
        if self.epochs is not None and self.updates is not None:
            raise InputError("--epochs and --updates say the same in two ways: give one of them")
        if self.classes not in (None, "known", "unknown"):
            raise InputError(f"classes={self.classes!r} cannot be used: say known or unknown")

    def evaluation(self) -> dict[str, Any]:
        """The fields of the evaluation that both verbs set alike."""
        return {
            # Counted within epochs, evaluations may miss the end of a task, which final metrics are about.
            "full_ends": self.full_ends or self.per_epoch,
            "tasks": one_of("tasks", self.tasks, ("seen", "all")),
            "redraw": self.redraw,
            "per_epoch": self.per_epoch,
            "losses": self.losses,
            "gradients": self.gradients,
        }

    def where(self) -> Where:
        """Where and how to run."""
        from engram.engine.where import Where

        return Where(out=self.out, data=self.data, device=self.device, plugin=self.plugin, strict=self.strict)

    def start(self) -> None:
        """Prepare torch, and load the plugin."""
        start_computing(self.threads, self.device)
        load_own(self.plugin)

    def experiments(self, scenario: str, method: str, evaluation: dict[str, Any]) -> list[Experiment]:
        """The experiment with each seed."""
        from engram.engine.recipe import experiment

        setting = None if self.setting is None else one_of("setting", self.setting, _SETTINGS)
        return [
            experiment(
                scenario,
                method,
                setting=setting,  # type: ignore[arg-type]
                classes_known=None if self.classes is None else self.classes == "known",
                model=self.model,
                hidden=None if self.hidden is None else widths(self.hidden),
                dropout_input=self.dropout_input,
                dropout_hidden=self.dropout_hidden,
                block=self.block,
                stem=self.stem,  # type: ignore[arg-type]
                weights=self.weights,
                optimizer=self.optimizer,
                lr=self.lr,
                momentum=self.momentum,
                weight_decay=self.weight_decay,
                batch_size=self.batch_size,
                epochs=self.epochs,
                updates=self.updates,
                augment=self.augment,
                settings=assignments(self.set_ or []),
                budget_bytes=self.budget_bytes,
                evaluation=evaluation,
                seed=seed,
            )
            for seed in range(self.first_seed, self.first_seed + self.seeds)
        ]


_SETTINGS = ("task", "domain", "class")


def with_run_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose parameter `options` stands for all of `RunOptions`, as typer wants it: spread out.

    Example:
        >>> @with_run_options
        ... def verb(name: str, options: RunOptions, last: int = 3) -> None:
        ...     print(name, options.lr, options.out, last)
        >>> list(inspect.signature(verb).parameters)[:3]
        ['name', 'setting', 'classes']
        >>> verb(name="mine", lr=0.1)
        mine 0.1 runs 3
    """
    hints = get_type_hints(RunOptions, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(RunOptions)
    ]
    spread: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb, eval_str=True).parameters.values():
        own = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        spread += shared if parameter.name == "options" else [own]

    @wraps(verb)
    def spread_verb(**given: Any) -> None:
        options = {field.name: given.pop(field.name) for field in fields(RunOptions) if field.name in given}
        verb(**given, options=RunOptions(**options))

    # Not the verb's own: whoever asks for its parameters gets these.
    del spread_verb.__wrapped__
    spread_verb.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
    spread_verb.__annotations__ = {parameter.name: parameter.annotation for parameter in spread}
    return spread_verb


def load_own(plugin: Path | None) -> None:
    """Register the methods, models and metrics of a user's own script, if there is one."""
    if plugin is not None:
        from engram.methods import load_plugin

        load_plugin(plugin)


def start_computing(threads: int | None, device: str) -> None:
    """Prepare torch: threads, and a device that is really there."""
    from engram.engine.threads import prepare_threads

    prepare_threads(threads)
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = device.partition(":")[0]
    if not there.get(kind, False):
        known = " or ".join(name for name, found in there.items() if found)
        raise InputError(f"device {device!r} cannot be used on this machine: use {known}")


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    """A word that must be one of a few."""
    if value not in known:
        raise unknown_name(name, value, known)
    return value


def widths(text: str) -> tuple[int, ...]:
    """Hidden widths as they are typed: `400,400`."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(
            f"hidden={text!r} cannot be used: give whole numbers with commas, as 400,400"
        ) from None


def assignments(pairs: list[str]) -> dict[str, str]:
    """`FIELD=VALUE` pairs as they are typed."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f"--set {pair!r} cannot be used: write FIELD=VALUE")
        if (field := name.strip().replace("-", "_")) in found:
            raise InputError(f"--set gives {field} twice, {found[field]} and {value.strip()}: leave one out")
        found[field] = value.strip()
    return found
