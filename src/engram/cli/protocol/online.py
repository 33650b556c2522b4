"""`engram protocol online`: one pass over the stream."""

from __future__ import annotations

from engram.cli.protocol.request import HeldOut, Metric, ProtocolRequest, Selection, SelectOn, with_request


@with_request("online", without=("epochs", "updates"))
def online(
    request: ProtocolRequest,
    *,
    metric: Metric = "AA",
    select_on: SelectOn = "test",
    held_out: HeldOut = None,
) -> None:
    """Show every sample once, and follow rescaled metrics over the tasks (Michel et al. 2023)."""
    selection = Selection.checked(select_on, held_out)
    request.options.start(here=request.machines.local)
    from engram.cli.protocol.printing import conclude
    from engram.protocols.grid import metric_name
    from engram.protocols.online import online as plan_online

    plan = plan_online(
        request.experiments(),
        request.fields,
        metric=metric_name(metric),
        on=selection.on,
        held_out=selection.held_out,
    )
    conclude(request, plan)
