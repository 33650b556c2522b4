"""What all verbs have in common: help in groups, completion of names, `-q` and `-v`.

A verb is a function whose parameters are its options. Here, and only here, parameters are grouped and
completed by their names, so that a verb's own file says what its options mean and nothing else.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Annotated, Any, ClassVar, get_args, get_origin

import typer
from typer.core import TyperGroup
from typer.models import ArgumentInfo, OptionInfo

from engram.cli.output import set_verbosity
from engram.core.errors import unknown_name

# Newer typer brings a click of its own, older typer uses the installed one: its errors lead to the right one.
_USAGE_ERROR: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")

NETWORK, TRAINING, EVALUATION = "Network", "Training", "Evaluation"
SCENARIO, EXECUTION, OUTPUT = "Scenario", "Execution", "Output"
PANELS = {
    SCENARIO: ("setting", "classes", "hide_boundaries"),
    NETWORK: ("model", "hidden", "dropout_input", "dropout_hidden", "block", "stem", "weights"),
    TRAINING: (
        *("optimizer", "lr", "momentum", "weight_decay", "epochs", "updates", "batch_size", "augment"),
        *("set_", "budget_bytes"),
    ),
    EVALUATION: (
        *("every", "subset", "on", "full_ends", "tasks", "redraw", "per_epoch", "losses", "gradients"),
    ),
    EXECUTION: (
        *("seeds", "first_seed", "jobs", "threads", "device", "strict", "again", "dry_run", "config"),
        *("plugin", "data"),
    ),
    OUTPUT: ("out", "json", "quiet", "verbose"),
}
"""Under which heading an option is shown, by the name of its parameter."""

Names = Callable[[], Iterable[str]]
"""What gives the names that a value is completed with."""

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show where errors and warnings come from.")
]


class Verbs(TyperGroup):
    """A group of verbs: alone it prints its help, and a wrong verb gets the nearest ones."""

    kind: ClassVar[str] = "command"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments; none ask for help."""
        return super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb and its arguments.

        Raises:
            InputError: There is no such verb.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            known = self.list_commands(ctx)
            raise unknown_name(self.kind, name, known, listed_by=f"{ctx.command_path} --help")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; what is wrong with its arguments is said to be wrong with those of this verb."""
        try:
            return super().invoke(ctx)
        except _USAGE_ERROR as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            # The parser does not always say whose arguments it read.
            if error.ctx is None and command is not None:
                error.ctx = typer.Context(command, parent=ctx, info_name=ctx.invoked_subcommand)
            raise


def verbs(summary: str, group: type[Verbs] = Verbs, **more: Any) -> typer.Typer:
    """An application of several verbs.

    Args:
        summary: The first line of its help.
        group: The class of the group.
        more: What `typer.Typer` takes besides.
    """
    return typer.Typer(cls=group, help=summary, rich_markup_mode="rich", **more)


def arranged(verb: Callable[..., None], **completed: Names) -> Callable[..., None]:
    """A verb whose options are grouped and completed by their names, and which takes `-q` and `-v`.

    Args:
        verb: The verb.
        completed: How parameters of this verb are completed whose names mean something else elsewhere.

    Example:
        >>> def verb(model: Annotated[str, typer.Option(help="A network.")] = "mlp") -> None:
        ...     print(model)
        >>> list(inspect.signature(arranged(verb)).parameters)
        ['model', 'quiet', 'verbose']
        >>> arranged(verb)(model="cnn", quiet=False, verbose=False)
        cnn
    """
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    parameters = []
    for parameter in inspect.signature(verb, eval_str=True).parameters.values():
        names = completed.get(parameter.name, COMPLETED.get(parameter.name))
        hint = _arranged_hint(parameter.annotation, panel_of.get(parameter.name), names)
        parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint))
    for name, hint in (("quiet", Quiet), ("verbose", Verbose)):
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False,
                annotation=_arranged_hint(hint, OUTPUT, None),
            )
        )

    @wraps(verb)
    def arranged_verb(*, quiet: bool, verbose: bool, **options: Any) -> None:
        if quiet or verbose:
            set_verbosity(quiet=quiet, verbose=verbose)
        verb(**options)

    parameters.sort(key=_place)
    # Not the verb's own: whoever asks for its parameters gets these.
    del arranged_verb.__wrapped__
    arranged_verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    arranged_verb.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return arranged_verb


def _arranged_hint(hint: Any, panel: str | None, names: Names | None) -> Any:
    """The annotation of a parameter, with its panel and its completion."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    changed = []
    for note in notes:
        if isinstance(note, OptionInfo | ArgumentInfo):
            note = copy.copy(note)
            if isinstance(note, OptionInfo) and note.rich_help_panel is None:
                note.rich_help_panel = panel
            if note.autocompletion is None and names is not None:
                note.autocompletion = _completion(names)
        changed.append(note)
    return Annotated[kind, *changed]


def _place(parameter: inspect.Parameter) -> int:
    """Where a parameter comes in the help: arguments, the verb's own options, then panel after panel."""
    notes = get_args(parameter.annotation)[1:] if get_origin(parameter.annotation) is Annotated else ()
    for note in notes:
        if isinstance(note, OptionInfo):
            panels = list(PANELS)
            return 2 + panels.index(note.rich_help_panel) if note.rich_help_panel in panels else 1
    return 0


def _completion(names: Names) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        # The last one of several with commas.
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return complete


# Names are looked up when somebody presses the tab key, and nothing heavy is imported then.


def scenario_names() -> list[str]:
    """The benchmarks.

    Example:
        >>> scenario_names()[:2]
        ['split-digits', 'permuted-digits']
    """
    from engram.scenarios.catalogue import BENCHMARKS

    return list(BENCHMARKS)


def method_names() -> list[str]:
    """The methods, those of installed packages included."""
    from engram.methods import METHODS

    return list(METHODS)


def model_names() -> list[str]:
    """The networks."""
    from engram.models import MODELS

    return list(MODELS)


def metric_names() -> list[str]:
    """The metrics."""
    from engram.metrics import METRICS

    return list(METRICS)


def dataset_names() -> list[str]:
    """The data sets."""
    from engram.core.dataset_info import DATASETS

    return list(DATASETS)


def artefact_names() -> list[str]:
    """The tables and figures that were reproduced.

    Example:
        >>> "002-table2" in artefact_names()
        True
    """
    from importlib.resources import files

    recorded = (files("engram.papers") / "recorded").iterdir()
    names = (re.match(r"\d+-[a-z]+\d+", file.name) for file in recorded)
    return sorted({name[0] for name in names if name is not None})


COMPLETED: dict[str, Names] = {
    "scenario": scenario_names,
    "method": method_names,
    "methods": method_names,
    "model": model_names,
    "metric": metric_names,
    "dataset": dataset_names,
    "upstream": dataset_names,
    "setting": lambda: ("task", "domain", "class"),
    "classes": lambda: ("known", "unknown"),
    "optimizer": lambda: ("sgd", "adam", "adamw", "adagrad", "rmsprop"),
    "device": lambda: ("cpu", "cuda", "mps"),
    "on": lambda: ("test", "train"),
    "tasks": lambda: ("seen", "all"),
    "select_on": lambda: ("test", "validation"),
}
"""How the value of a parameter is completed, by the name of the parameter."""
