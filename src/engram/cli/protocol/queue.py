"""`engram protocol queue`: a long queue of tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from engram.cli.protocol.request import (
    PANEL,
    Every,
    Grid,
    Jobs,
    Method,
    ProtocolRequest,
    Scenario,
    Subset,
)
from engram.cli.run_options import RunOptions, with_run_options


@with_run_options(without=("on",))
def queue(
    scenario: Scenario,
    method: Method,
    *,
    grid: Grid = None,
    report_every: Annotated[
        int, typer.Option(help="Report after every N tasks.", metavar="N", rich_help_panel=PANEL)
    ] = 10,
    every: Every = None,
    subset: Subset = None,
    jobs: Jobs = 1,
    options: RunOptions,
) -> None:
    """Learn a long queue of tasks, and report the best and the worst fields on test data (Hsu et al. 2018).

    A run that fails is never chosen; the command then exits with 1, unless it failed because it diverged.
    """
    request = ProtocolRequest.checked(
        "queue", scenario, method, options, grid=grid, every=every, subset=subset, jobs=jobs
    )
    options.start()
    from engram.cli.protocol.printing import conclude
    from engram.protocols.queue import queue as plan_queue

    conclude(request, plan_queue(request.experiments(), request.fields, every=report_every))
