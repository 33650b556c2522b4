"""`engram protocol queue`: a long queue of tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from engram.cli.protocol.request import PANEL, ProtocolRequest, with_request


@with_request("queue")
def queue(
    request: ProtocolRequest,
    *,
    report_every: Annotated[
        int, typer.Option(help="Report after every N tasks.", metavar="N", rich_help_panel=PANEL)
    ] = 10,
) -> None:
    """Learn a long queue of tasks, and report the best and worst fields on test data (Hsu et al. 2018)."""
    request.options.start(here=request.machines.local)
    from engram.cli.protocol.printing import conclude
    from engram.protocols.queue import queue as plan_queue

    conclude(request, plan_queue(request.experiments(), request.fields, every=report_every))
