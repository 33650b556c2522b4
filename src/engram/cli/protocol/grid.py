"""`engram protocol grid`: the best of a grid."""

from __future__ import annotations

from typing import Annotated

import typer

from engram.cli.protocol.request import (
    PANEL,
    Every,
    Grid,
    HeldOut,
    Jobs,
    Method,
    Metric,
    ProtocolRequest,
    Scenario,
    Selection,
    SelectOn,
    Subset,
)
from engram.cli.run_options import RunOptions, with_run_options


@with_run_options(without=("on",))
def grid(
    scenario: Scenario,
    method: Method,
    *,
    grid: Grid = None,
    metric: Metric = "ACC",
    select_on: SelectOn = "test",
    held_out: HeldOut = None,
    search_seeds: Annotated[
        int | None,
        typer.Option(
            help="How many of the seeds the search uses.", show_default="all", rich_help_panel=PANEL
        ),
    ] = None,
    every: Every = None,
    subset: Subset = None,
    jobs: Jobs = 1,
    options: RunOptions,
) -> None:
    """Run every combination of fields and choose the best (De Lange et al. 2023).

    The chosen fields are then run with all seeds. A run that fails is never chosen; the command then exits
    with 1, unless it failed because it diverged.
    """
    request = ProtocolRequest.checked(
        "grid", scenario, method, options, grid=grid, every=every, subset=subset, jobs=jobs
    )
    selection = Selection.checked(select_on, held_out)
    options.start()
    from engram.cli.protocol.printing import conclude
    from engram.metrics.registry import computed
    from engram.protocols.grid import grid as plan_grid
    from engram.protocols.grid import metric_name

    chosen = metric_name(metric or "ACC")
    plan = plan_grid(
        request.experiments(whole_curve=not computed()[chosen].task_ends_suffice),
        request.fields,
        metric=chosen,
        on=selection.on,
        held_out=selection.held_out,
        search_seeds=search_seeds,
    )
    conclude(request, plan)
