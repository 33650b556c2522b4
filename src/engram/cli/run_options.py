"""The options of the verbs that run experiments: derived from the experiment's dataclasses, declared once."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from engram.cli.arrange import EVALUATION, NETWORK, SCENARIO, TRAINING
from engram.cli.options import (
    CheckpointEvery,
    Data,
    Device,
    Json,
    KeepCheckpoints,
    Out,
    ParallelOption,
    Plugin,
    PrecisionOption,
    SaveWeights,
    Strict,
    Threads,
    Timeout,
    Track,
    check_data,
    check_seconds,
    load_own,
    precision_of,
    start_computing,
)
from engram.cli.signature import Verb, option, with_spread
from engram.core.errors import InputError
from engram.core.jsons import JsonMapping, JsonObject
from engram.core.limits import MOST_SEEDS
from engram.core.schema import Option
from engram.engine.options import checked, parts

if TYPE_CHECKING:
    from engram.engine.where import Where
    from engram.interop.trackers import Tracker
    from engram.record.experiment import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the verbs that run experiments take: the experiment's options, its seeds, and where it is run.

    Attributes:
        chosen: The options of the experiment that were set, as typed; on the command line these are separate
            options, derived from `engram.engine.options`.
        set_: Fields of the method, and of a user's network.
    """

    chosen: JsonObject = field(default_factory=dict)
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A field of the method, FIELD=VALUE, or of your model, model.FIELD=VALUE. May be repeated.",
        ),
    ] = None
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 1
    first_seed: Annotated[int, typer.Option(help="The first seed.")] = 0
    plugin: Plugin = None
    data: Data = None
    out: Out = Path("runs")
    threads: Threads = None
    device: Device = "cpu"
    precision: PrecisionOption = "full"
    parallel: ParallelOption = "auto"
    strict: Strict = False
    again: Annotated[bool, typer.Option("--again", help="Run even what exists already.")] = False
    checkpoint_every: CheckpointEvery = None
    timeout: Timeout = None
    track: Track = None
    save_weights: SaveWeights = None
    keep_checkpoints: KeepCheckpoints = None
    json: Json = False

    @classmethod
    def of(cls, **values: Any) -> RunOptions:
        """The options, from the values of `run_parameters`.

        Example:
            >>> options = RunOptions.of(lr=0.1, epochs=None, seeds=3)
            >>> options.chosen, options.seeds
            ({'lr': 0.1}, 3)
        """
        run = {item.name: values.pop(item.name) for item in fields(cls) if item.name in values}
        return cls(chosen={name: value for name, value in values.items() if value is not None}, **run)

    def check(self, *, subset: int | None = None) -> None:
        """Check what can be checked before anything heavy is imported."""
        if self.seeds < 1:
            raise InputError(f"seeds must be at least 1, got {self.seeds}")
        if self.seeds > MOST_SEEDS:
            raise InputError(f"seeds must be at most {MOST_SEEDS}, got {self.seeds}: each is a whole run")
        if self.first_seed < 0:
            raise InputError(f"first_seed must be at least 0, got {self.first_seed}")
        if subset is not None and subset < 0:
            raise InputError(f"subset must be at least 1, or 0 for all samples, got {subset}")
        check_seconds(self.checkpoint_every, self.timeout)
        precision_of(self.precision)
        self.where()
        if "epochs" in self.chosen and "updates" in self.chosen:
            raise InputError("--epochs and --updates cannot be used together: use one of them")
        checked(self.chosen, text=True)

    def where(self) -> Where:
        """Where and how to run."""
        from engram.engine.where import Where

        return Where(
            out=self.out,
            data=self.data,
            device=self.device,
            plugin=self.plugin,
            precision=precision_of(self.precision),
            parallel=self.parallel,
            strict=self.strict,
            checkpoint_seconds=self.checkpoint_every,
            timeout=self.timeout,
            save_weights=self.save_weights,
            keep_checkpoints=self.keep_checkpoints,
        )

    def trackers(self) -> list[Tracker]:
        """The trackers; to be called when all else is checked, because they make folders."""
        from engram.interop.trackers import trackers_of

        return trackers_of(self.track)

    def start(self, *, here: bool = True) -> None:
        """Prepare torch, and load the plugin.

        Args:
            here: Whether runs are made on this machine, which must then have the device and the data.
        """
        check_data(self.data if here else None)
        start_computing(self.threads, self.device if here else "cpu")
        load_own(self.plugin)

    def experiments(
        self, scenario: str, method: str, evaluation: JsonMapping | None = None
    ) -> list[Experiment]:
        """The experiment with each seed.

        Args:
            scenario: A scenario's name.
            method: A method's name.
            evaluation: Fields of the evaluation that the verb sets; options that were typed take precedence.
        """
        from engram.engine.check import warn_redrawn
        from engram.engine.recipe import experiment
        from engram.record.parallel import ParallelPlan

        fields = assignments(self.set_ or [])
        of_model = {
            name.removeprefix("model."): fields.pop(name) for name in [*fields] if name.startswith("model.")
        }
        chosen = checked({**self.chosen, **of_model}, text=True)
        if chosen.get("per_epoch"):
            # Counted within epochs, evaluations may miss the end of a task, which final metrics are about.
            chosen["full_ends"] = True
        if "subset" in chosen:
            # None would mean the default.
            chosen["subset"] = chosen["subset"] or 0
        if ParallelPlan.of(self.parallel).skips:
            evaluation = {**(evaluation or {}), "skips": True}
        planned = [
            experiment(scenario, method, settings=fields, evaluation=evaluation, seed=seed, **chosen)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
        ]
        warn_redrawn(planned)
        return planned


_PANELS = {
    "scenario": SCENARIO,
    "network": NETWORK,
    "optimizer": TRAINING,
    "training": TRAINING,
    "evaluation": EVALUATION,
}


def _typed(declared: Option, panel: str) -> inspect.Parameter:
    """An option of the experiment as a parameter of a verb; None by default."""
    kinds: dict[type, type] = {bool: bool, int: int, float: float, Path: Path}
    kind = kinds.get(declared.kind, str)
    names = [declared.flag or f"--{declared.name.replace('_', '-')}"] if kind is bool else []
    default = declared.default if panel == EVALUATION and not isinstance(declared.default, bool) else None
    shows_default = default is not None and not declared.zero_means_all
    text = f"{declared.help}  [default: {default}]" if shows_default else declared.help
    shown = typer.Option(*names, help=text, rich_help_panel=panel)
    return option(declared.name, Annotated[kind | None, shown], None)


def run_parameters(*, without: Collection[str] = ()) -> list[inspect.Parameter]:
    """The parameters that `RunOptions` is made of: those of the experiment, then those of the run.

    Args:
        without: The names of those that a verb does not take.

    Example:
        >>> [parameter.name for parameter in run_parameters(without=("setting",))][:2]
        ['classes', 'boundaries']
    """
    derived = [
        _typed(declared, _PANELS[part]) for part, options in parts().items() for declared in options.values()
    ]
    hints = get_type_hints(RunOptions, include_extras=True)
    others = [
        option(item.name, hints[item.name], item.default)
        for item in fields(RunOptions)
        if item.name != "chosen"
    ]
    return [parameter for parameter in (*derived, *others) if parameter.name not in without]


def with_run_options(verb: Verb) -> Verb:
    """A verb that takes all of `RunOptions`, each as a parameter, in place of its parameter `options`.

    Example:
        >>> @with_run_options
        ... def verb(name: str, options: RunOptions, last: int = 3) -> None:
        ...     print(name, options.chosen, options.out, last)
        >>> list(inspect.signature(verb).parameters)[:3]
        ['name', 'setting', 'classes']
        >>> verb(name="mine", lr=0.1)
        mine {'lr': 0.1} runs 3
    """
    return with_spread(verb, "options", run_parameters(), RunOptions.of)


def assignments(pairs: list[str]) -> dict[str, str]:
    """`FIELD=VALUE` pairs as they are typed."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f"--set must look like FIELD=VALUE, got {pair!r}")
        key = name.strip().replace("-", "_")
        if key in values:
            raise InputError(f"--set sets {key} twice, to {values[key]} and {value.strip()}: leave one out")
        values[key] = value.strip()
    return values
