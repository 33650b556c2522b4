"""`engram protocol plasticity`: every task against a fresh network."""

from __future__ import annotations

from typing import Annotated

import typer

from engram.cli.protocol.request import PANEL, ProtocolRequest, with_request
from engram.core.errors import InputError


@with_request("plasticity")
def plasticity(
    request: ProtocolRequest,
    *,
    after: Annotated[
        str,
        typer.Option(
            help="Also compare after these numbers of updates of a task.",
            metavar="N,N",
            rich_help_panel=PANEL,
        ),
    ] = "10,100",
) -> None:
    """Learn every task with a fresh network too, and compare: loss of plasticity (Dohare et al. 2024)."""
    if request.fields:
        raise InputError(
            "the plasticity protocol chooses no fields: leave --grid out, or set them by options"
        )
    moments = [part.strip() for part in after.split(",")]
    wrong = [part for part in moments if not (part.isdecimal() and int(part) > 0)]
    if wrong:
        raise InputError(f"--after takes positive whole numbers like 10,100; got {wrong[0]!r}")
    request.options.start()
    from engram.cli.output import stdout
    from engram.cli.protocol.printing import present
    from engram.cli.protocol.running import carry_out
    from engram.cli.tables import Column, print_table
    from engram.protocols.plasticity import plasticity as plan_plasticity

    plan = plan_plasticity(request.experiments(), after=[int(part) for part in moments])
    conclusion = carry_out(request, plan)
    if not request.options.json:
        for table in conclusion.result["plasticity"]:
            when = "at the end" if table["updates"] is None else f"after {table['updates']} updates"
            stdout.print(f"accuracy of the task being learned, {when}", markup=False)
            rows = [
                [f"Task {number}", *(_percent(value) for value in values)]
                for number, values in enumerate(
                    zip(table["learned"], table["fresh"], table["loss"], strict=True), start=1
                )
            ]
            titles = (request.method, "fresh", "loss")
            print_table([Column("task"), *(Column(title, right=True) for title in titles)], rows)
            stdout.print(f"mean loss after the first task: {_percent(table['mean_loss']['mean'])}")
        for name, values in conclusion.result["probes"].items():
            for whose, series in values.items():
                shown = ", ".join(f"{value:.3g}" for value in series)
                stdout.print(f"{name}, {whose}: {shown}", markup=False, soft_wrap=True)
        return
    present(request, conclusion)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"
