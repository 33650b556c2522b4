"""`engram protocol online`: one pass over the stream."""

from __future__ import annotations

from engram.cli.protocol.request import (
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


@with_run_options(without=("on", "epochs", "updates"))
def online(
    scenario: Scenario,
    method: Method,
    *,
    grid: Grid = None,
    metric: Metric = "AA",
    select_on: SelectOn = "test",
    held_out: HeldOut = None,
    every: Every = None,
    subset: Subset = None,
    jobs: Jobs = 1,
    options: RunOptions,
) -> None:
    """Show every sample once, and follow rescaled metrics over the tasks (Michel et al. 2023).

    A run that fails is never chosen; the command then exits with 1, unless it failed because it diverged.
    """
    request = ProtocolRequest.checked(
        "online", scenario, method, options, grid=grid, every=every, subset=subset, jobs=jobs
    )
    selection = Selection.checked(select_on, held_out)
    options.start()
    from engram.cli.protocol.printing import conclude
    from engram.protocols.grid import metric_name
    from engram.protocols.online import online as plan_online

    plan = plan_online(
        request.experiments(),
        request.fields,
        metric=metric_name(metric or "AA"),
        on=selection.on,
        held_out=selection.held_out,
    )
    conclude(request, plan)
