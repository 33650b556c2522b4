"""What all verbs have in common: help in groups, completion of names, `-q` and `-v`.

A verb is a function whose parameters are its arguments and options. This module groups and completes them by
their names, so that the module of a verb only declares what they mean.
"""

from __future__ import annotations

import copy
import inspect
from functools import wraps
from typing import Annotated, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from engram.cli.completion import COMPLETED, completion
from engram.cli.output import set_verbosity
from engram.cli.signature import Verb, option, with_parameters

SCENARIO, NETWORK, TRAINING, EVALUATION = "Scenario", "Network", "Training", "Evaluation"
EXECUTION, OUTPUT = "Execution", "Output"
PANELS = {
    SCENARIO: (),
    NETWORK: (),
    TRAINING: ("set_",),
    EVALUATION: ("every", "subset"),
    EXECUTION: (
        *("seeds", "first_seed", "jobs", "threads", "device", "precision", "parallel", "strict", "again"),
        *("dry_run", "config", "plugin", "data", "checkpoint_every", "timeout"),
    ),
    OUTPUT: ("out", "track", "save_weights", "keep_checkpoints", "json", "quiet", "verbose"),
}
"""The headings of the help in their order, and the names of parameters that are shown under them.

Options that declare a panel, as those of an experiment do, are not named here.
"""

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show where errors and warnings come from.")
]


def arranged(verb: Verb) -> Verb:
    """A verb whose options are grouped and completed by their names, and which takes `-q` and `-v`.

    Example:
        >>> def verb(model: Annotated[str, typer.Option(help="A network.")] = "mlp") -> None:
        ...     print(model)
        >>> list(inspect.signature(arranged(verb)).parameters)
        ['model', 'quiet', 'verbose']
        >>> arranged(verb)(model="cnn", quiet=False, verbose=False)
        cnn
    """
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    declared = [
        *inspect.signature(verb, eval_str=True).parameters.values(),
        option("quiet", Quiet, False),
        option("verbose", Verbose, False),
    ]
    parameters = [
        parameter.replace(
            kind=inspect.Parameter.KEYWORD_ONLY,
            annotation=_arranged_hint(parameter, panel_of.get(parameter.name)),
        )
        for parameter in declared
    ]

    @wraps(verb)
    def arranged_verb(*, quiet: bool, verbose: bool, **options: object) -> None:
        if quiet or verbose:
            set_verbosity(quiet=quiet, verbose=verbose)
        verb(**options)

    return with_parameters(arranged_verb, sorted(parameters, key=_place))


def _arranged_hint(parameter: inspect.Parameter, panel: str | None) -> object:
    """The annotation of a parameter, with its panel and its completion; arguments are shown in capitals."""
    if get_origin(parameter.annotation) is not Annotated:
        return parameter.annotation
    names = COMPLETED.get(parameter.name)
    kind, *notes = get_args(parameter.annotation)
    changed = []
    for note in notes:
        if isinstance(note, OptionInfo | ArgumentInfo):
            note = copy.copy(note)
            if isinstance(note, OptionInfo) and note.rich_help_panel is None:
                note.rich_help_panel = panel
            if isinstance(note, ArgumentInfo) and note.metavar is None:
                note.metavar = parameter.name.upper()
            if note.autocompletion is None and names is not None:
                note.autocompletion = completion(names)
        changed.append(note)
    return Annotated[kind, *changed]


def _place(parameter: inspect.Parameter) -> int:
    """Where a parameter comes in the help: arguments, other options, then panel after panel."""
    notes = get_args(parameter.annotation)[1:] if get_origin(parameter.annotation) is Annotated else ()
    for note in notes:
        if isinstance(note, OptionInfo):
            panels = list(PANELS)
            return 2 + panels.index(note.rich_help_panel) if note.rich_help_panel in panels else 1
    return 0
