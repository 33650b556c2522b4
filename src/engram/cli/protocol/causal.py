"""`engram protocol causal`: nothing is chosen by looking at a later task."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.protocol.request import (
    PANEL,
    Grid,
    HeldOut,
    Jobs,
    Method,
    ProtocolRequest,
    Selection,
    SelectOn,
    Subset,
)
from engram.cli.run_options import RunOptions, with_run_options
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
Start = Annotated[
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


@with_run_options(without=("on",))
def causal(
    scenario: Streams,
    method: Method,
    *,
    grid: Grid = None,
    later_lr: LaterRates = None,
    choose_by: ChooseBy = "new",
    start: Start = "last",
    tie_strength: TieStrength = False,
    select_on: SelectOn = "test",
    held_out: HeldOut = None,
    every: Often = None,
    subset: Subset = None,
    jobs: Jobs = 1,
    options: RunOptions,
) -> None:
    """Choose fields task by task, never by looking at a later task (Pfülb & Gepperth 2019).

    A run that fails is never chosen; the command then exits with 1, unless it failed because it diverged.
    """
    request = ProtocolRequest.checked(
        "causal", scenario, method, options, grid=grid, every=every, subset=subset, jobs=jobs
    )
    selection = Selection.checked(select_on, held_out)
    options.start()
    from engram.cli.protocol.printing import conclude
    from engram.protocols.causal import CausalOptions, worst_of
    from engram.protocols.causal import causal as plan_causal

    how = CausalOptions(
        later_rates=rates_of(later_lr, method),
        choose_by=choose_by,  # type: ignore[arg-type]
        start=start,  # type: ignore[arg-type]
        on=selection.on,
        held_out=selection.held_out,
        tie_strength=tie_strength,
    )
    bases = {name: measured_often(request, name) for name in streams_of(scenario)}
    if list(bases) == [scenario]:
        plan = plan_causal(bases[scenario], request.fields, options=how)
        conclude(request, plan)
    else:
        conclude(request, worst_of(bases, request.fields, options=how))


def rates_of(later_lr: str | None, method: str) -> tuple[float, ...]:
    """The rates to try for later tasks; none where the first task's is kept.

    Methods that merge networks keep it unless told otherwise, as in the paper.

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
    from engram.methods import METHODS

    return hasattr(METHODS[method], "curve")


def measured_often(request: ProtocolRequest, scenario: str) -> list[Experiment]:
    """The experiments, evaluated about ninety times per task however long it is, unless told how often."""
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
