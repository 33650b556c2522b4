"""`engram audit`: what was known, what was kept, what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.output import name_incomplete, print_json, stdout
from engram.core.errors import InputError

if TYPE_CHECKING:
    from engram.engine.card import Card

COLOURS = {"held": "green", "broken": "red", "unknown": "yellow"}


def audit(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders that hold some.", metavar="RUNS")
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a method read what it should not.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the protocol card of finished runs: measured while they ran, not declared.

    Runs that differ only in the seed share one card. A run that was made before cards were recorded is
    refused.
    """
    from engram.results.card import card_of, group_card
    from engram.results.runs import find_runs, group_runs

    found = find_runs(runs)
    name_incomplete(found)
    cards = {run.id: card_of(run) for run in found}
    for run in found:
        if cards[run.id] is None:
            raise InputError(
                f"the run {run.folder} was made before cards were recorded, or by a loop of your own: run it "
                "again with --again"
            )
    if json:
        said = [
            {"id": run.id, "folder": str(run.folder), "card": card.as_json()}
            for run in found
            if (card := cards[run.id]) is not None
        ]
        print_json({"runs": said})
    else:
        for number, group in enumerate(group_runs(found)):
            card = group_card(group)
            if card is not None:
                seeds = len(group.runs)
                stdout.print(
                    ("\n" if number else "") + f"{group.label}, {seeds} seed{'' if seeds == 1 else 's'}",
                    style="bold",
                    markup=False,
                    soft_wrap=True,
                )
                print_card(card)
    if strict and any(card is not None and card.forbidden for card in cards.values()):
        raise typer.Exit(1)


def print_card(card: Card) -> None:
    """One line a question, the constraints first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("question", ratio=4)
    table.add_column("answer", no_wrap=True)
    table.add_column("figure", ratio=6)
    for each in card.constraints:
        table.add_row(
            Text(f"{each.name} (004)"), Text(each.verdict, COLOURS[each.verdict]), Text(each.figure)
        )
    for line in card.lines:
        table.add_row(Text(line.question), Text(line.answer), Text(line.figure))
    stdout.print(table)
    for what, times in (card.forbidden or {}).items():
        stdout.print(Text(f"the method read what it should not: {what} ({times} times)", "red"))
