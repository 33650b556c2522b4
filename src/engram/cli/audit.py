"""`engram audit`: what was known, what was kept, what it cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.options import RunPlaces
from engram.cli.output import incomplete_as_json, name_incomplete, print_json, stdout
from engram.core.errors import InputError

if TYPE_CHECKING:
    from engram.record.card import Card
    from engram.record.run import Run
    from engram.results.card import Line

COLOURS = {"held": "green", "broken": "red", "unknown": "yellow"}


def audit(
    runs: RunPlaces,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a method read or did what it should not.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the protocol card of finished runs: measured during the run, not declared.

    Runs that differ only in the seed share one card. A run that was made before cards were recorded is
    refused.
    """
    from engram.results.card import described
    from engram.results.runs import find_runs

    finished = find_runs(runs)
    name_incomplete(finished)
    cards = [required_card(run) for run in finished]
    if json:
        print_json(
            {
                "runs": [
                    {"id": run.id, "folder": str(run.folder), "card": described(card)}
                    for run, card in zip(finished, cards, strict=True)
                ],
                "incomplete": incomplete_as_json(finished),
            }
        )
    else:
        _print_groups(finished)
    if strict and any(card.forbidden for card in cards):
        raise typer.Exit(1)


def required_card(run: Run) -> Card:
    """The card of a run; a run without one is refused."""
    from engram.record.incomplete import place_of
    from engram.results.card import card_of

    card = card_of(run)
    if card is None:
        raise InputError(
            f"the run {place_of(run)} was made before cards were recorded, or by a loop of your own: run it "
            "again with --again"
        )
    return card


def print_card(card: Card) -> None:
    """Print a card: the constraints, the questions, and what the method did although it should not."""
    from rich.text import Text

    from engram.results.card import constraint_lines, fact_lines
    from engram.results.questions import PAPER

    _print_lines("constraint", "verdict", constraint_lines(card))
    stdout.print(Text(f"Constraints that applications set, after {PAPER}.\n", "dim"))
    _print_lines("question", "answer", fact_lines(card))
    for read, times in card.forbidden.items():
        count = "once" if times == 1 else f"{times:,} times"
        verb = "did" if read.is_act else "read"
        stdout.print(Text(f"the method {verb} what it should not: {read.describe()} ({count})", "red"))


def _print_groups(runs: Iterable[Run]) -> None:
    """One card per experiment, merged over its seeds."""
    from engram.results.card import group_card
    from engram.results.runs import group_runs

    for number, group in enumerate(group_runs(runs)):
        card = group_card(group)
        if card is not None:
            seeds = "1 seed" if len(group.runs) == 1 else f"{len(group.runs)} seeds"
            stdout.print(
                ("\n" if number else "") + f"{group.label}, {seeds}",
                style="bold",
                markup=False,
                soft_wrap=True,
            )
            print_card(card)


def _print_lines(heading: str, answer: str, lines: Iterable[Line]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, expand=True)
    table.add_column(heading, ratio=4)
    # As wide as the longest verdict, so that the columns of both tables align.
    table.add_column(answer, no_wrap=True, min_width=len("unknown") + 2)
    table.add_column("figure", ratio=6)
    for line in lines:
        table.add_row(Text(line.question), Text(line.answer, COLOURS.get(line.answer, "")), Text(line.figure))
    stdout.print(table)
