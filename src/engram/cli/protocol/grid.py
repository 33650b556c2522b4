"""`engram protocol grid`: the best of a grid."""

from __future__ import annotations

from typing import Annotated

import typer

from engram.cli.protocol.request import (
    PANEL,
    HeldOut,
    Metric,
    ProtocolRequest,
    Selection,
    SelectOn,
    with_request,
)


@with_request("grid")
def grid(
    request: ProtocolRequest,
    *,
    metric: Metric = "ACC",
    select_on: SelectOn = "test",
    held_out: HeldOut = None,
    search_seeds: Annotated[
        int | None,
        typer.Option(
            help="How many of the seeds the search uses.", show_default="all", rich_help_panel=PANEL
        ),
    ] = None,
) -> None:
    """Run every combination of fields and choose the best (De Lange et al. 2023).

    The chosen fields are then run with all seeds.
    """
    selection = Selection.checked(select_on, held_out)
    request.options.start(here=request.machines.local)
    from engram.cli.protocol.printing import conclude
    from engram.metrics.registry import computed
    from engram.protocols.grid import grid as plan_grid
    from engram.protocols.grid import metric_name

    chosen = metric_name(metric)
    plan = plan_grid(
        request.experiments(whole_curve=not computed()[chosen].task_ends_suffice),
        request.fields,
        metric=chosen,
        on=selection.on,
        held_out=selection.held_out,
        search_seeds=search_seeds,
    )
    conclude(request, plan)
