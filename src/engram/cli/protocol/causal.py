"""`engram protocol causal`: nothing is chosen by looking at a later task."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.protocol.request import PANEL, HeldOut, ProtocolRequest, Selection, SelectOn, with_request
from engram.core.errors import InputError

if TYPE_CHECKING:
    from engram.record.experiment import Experiment

# Pfülb & Gepperth (2019) test a task about this often while it is learned.
MEASURING_POINTS = 90


Streams = Annotated[
    str, typer.Argument(help="A benchmark, or a type of stream: slt-D5-5-mnist stands for all eight.")
]
LaterRates = Annotated[
    str | None,
    typer.Option(
        help="Learning rates to try for later tasks, such as .01,.001; `first` keeps the first task's.",
        show_default="the paper's; first for methods that merge",
        rich_help_panel=PANEL,
    ),
]
ChooseBy = Annotated[
    str,
    typer.Option(
        help="Choose a later rate by the new task (new) or by the union of all tasks (union).",
        rich_help_panel=PANEL,
    ),
]
StartFrom = Annotated[
    str, typer.Option(help="Continue from the last or the best weights of a task.", rich_help_panel=PANEL)
]
TieStrength = Annotated[
    bool,
    typer.Option(
        "--tie-strength",
        help="Set strength to 1 / (2 · second rate), as the paper does for EWC.",
        rich_help_panel=PANEL,
    ),
]
Often = Annotated[
    int | None,
    typer.Option(
        help="Evaluate after every N updates.",
        metavar="N",
        show_default=f"about {MEASURING_POINTS} times per task",
    ),
]


@with_request("causal", scenario=Streams, every=Often)
def causal(
    request: ProtocolRequest,
    *,
    later_lr: LaterRates = None,
    choose_by: ChooseBy = "new",
    start: StartFrom = "last",
    tie_strength: TieStrength = False,
    select_on: SelectOn = "test",
    held_out: HeldOut = None,
) -> None:
    """Choose fields task by task, never by looking at a later task (Pfülb & Gepperth 2019)."""
    selection = Selection.checked(select_on, held_out)
    request.options.start(here=request.machines.local)
    from engram.cli.protocol.printing import conclude
    from engram.protocols.causal import CausalOptions, worst_of
    from engram.protocols.causal import causal as plan_causal

    how = CausalOptions(
        later_rates=rates_of(later_lr, request.method),
        choose_by=choose_by,  # type: ignore[arg-type]
        start=start,  # type: ignore[arg-type]
        on=selection.on,
        held_out=selection.held_out,
        tie_strength=tie_strength,
    )
    bases = {name: measured_often(request, name) for name in streams_of(request.scenario)}
    if list(bases) == [request.scenario]:
        conclude(request, plan_causal(bases[request.scenario], request.fields, options=how))
    else:
        conclude(request, worst_of(bases, request.fields, options=how))


def rates_of(later_lr: str | None, method: str) -> tuple[float, ...]:
    """The rates to try for later tasks; empty if that of the first task is kept.

    By default, methods that merge networks keep it, as in the paper.

    Example:
        >>> rates_of(".01,.001", "ewc"), rates_of("first", "ewc"), rates_of(None, "imm-mean")
        ((0.01, 0.001), (), ())
    """
    from engram.protocols.causal import LATER_RATES

    if later_lr is None:
        return () if merges(method) else LATER_RATES
    return () if later_lr == "first" else later_rates(later_lr)


def merges(method: str) -> bool:
    """Whether a method merges the networks of its tasks.

    Example:
        >>> merges("imm-mode"), merges("ewc")
        (True, False)
    """
    from engram.methods import traits_of

    return traits_of(method).merges


def measured_often(request: ProtocolRequest, scenario: str) -> list[Experiment]:
    """The experiments, by default evaluated about ninety times per task, however long a task is."""
    experiments = request.experiments(scenario)
    if request.every is not None:
        return experiments
    return [
        replace(planned, evaluation=replace(planned.evaluation, every=1, points=MEASURING_POINTS))
        for planned in experiments
    ]


def streams_of(scenario: str) -> list[str]:
    """The streams that a name stands for: all of a type of sequential learning task, or the one of that name.

    Example:
        >>> streams_of("slt-D9-1-mnist"), streams_of("split-digits")
        (['slt-D9-1a-mnist', 'slt-D9-1b-mnist', 'slt-D9-1c-mnist'], ['split-digits'])
    """
    from engram.scenarios import SLT_CODES

    of_type = re.fullmatch(r"slt-(D5-5|D9-1)-(.+)", scenario)
    if of_type is None:
        return [scenario]
    return [f"slt-{code}-{of_type[2]}" for code in SLT_CODES if code.startswith(of_type[1])]


def later_rates(text: str) -> tuple[float, ...]:
    """Learning rates with commas, as they are typed.

    Example:
        >>> later_rates(".01, 1e-3")
        (0.01, 0.001)
    """
    wrong = InputError(f"later-lr must be `first` or numbers with commas, such as .01,.001, got {text!r}")
    try:
        rates = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise wrong from None
    if not rates:
        raise wrong
    return rates
