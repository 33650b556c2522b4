"""Protocol cards in the report: one column per experiment."""

from collections.abc import Sequence
from typing import Literal

from engram.record.card import Card
from engram.results.card import Line, constraint_lines, fact_lines, group_card, merged
from engram.results.markup import Html, element, joined
from engram.results.questions import PAPER
from engram.results.runs import RunGroup

NO_CARD = "made before cards were recorded, or in your own training loop"


def cards_section(groups: Sequence[RunGroup]) -> Html:
    """The section of the report about protocol cards, one column per experiment."""
    cards = [group_card(group) for group in groups]
    known = [card for card in cards if card is not None]
    heading = element("h2", "Protocol cards" if len(groups) > 1 else "Protocol card")
    if not known:
        note = f"No card: these runs were {NO_CARD}. Run them again with --again to get one."
        return element("section", heading, element("p", note, class_="note"), id="cards")
    head = element("tr", element("td"), *(element("th", group.label, scope="col") for group in groups))
    # Cards written by different versions may have different questions.
    every = merged(known)
    constraints = _rows(
        constraint_lines(every), [constraint_lines(card) if card else () for card in cards], kind="verdict"
    )
    facts = _rows(fact_lines(every), [fact_lines(card) if card else () for card in cards], kind="answer")
    note = (
        "Measured during the run, not declared: what the method was told, what it stored and what it cost. "
        f"The constraints are those that applications impose, after {PAPER}. Hover over or focus a question "
        "to see how it was measured."
        + (f" A dash: the runs were {NO_CARD}." if len(known) < len(cards) else "")
    )
    return element(
        "section",
        heading,
        element("p", note, class_="note"),
        *(_warning(group, card) for group, card in zip(groups, cards, strict=True) if card is not None),
        _table(head, constraints, label="Application constraints"),
        element(
            "details",
            element("summary", "All questions and answers"),
            _table(head, facts, label="Questions and answers of the protocol cards"),
        ),
        id="cards",
    )


def _rows(
    questions: Sequence[Line], columns: Sequence[Sequence[Line]], *, kind: Literal["verdict", "answer"]
) -> list[Html]:
    by_name = [{line.name: line for line in column} for column in columns]
    return [
        element(
            "tr",
            element("th", _question(question, capital=kind == "verdict"), scope="row"),
            *(_cell(lines.get(question.name), kind) for lines in by_name),
        )
        for question in questions
    ]


def _question(line: Line, *, capital: bool) -> Html:
    text = line.question.capitalize() if capital else line.question
    return element("button", text, type="button", class_="term", data_tip=f"Measured: {line.how}.")


def _cell(line: Line | None, kind: Literal["verdict", "answer"]) -> Html:
    if line is None:
        return element("td", "–")
    style = f"verdict {line.answer}" if kind == "verdict" else "answer"
    figure = joined(element("small", line.figure)) if line.figure else Html("")
    return element("td", element("span", line.answer, class_=style), figure)


def _table(head: Html, rows: Sequence[Html], *, label: str) -> Html:
    table = element("table", element("thead", head), element("tbody", *rows), class_="metrics cards")
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def _warning(group: RunGroup, card: Card) -> Html:
    if not card.forbidden:
        return Html("")
    parts = []
    for verb, acts in (("read", False), ("did", True)):
        forbidden = "; ".join(read.describe() for read in card.forbidden if read.is_act is acts)
        parts += [f"{verb} what it should not: {forbidden}"] if forbidden else []
    return element("p", element("strong", group.label), f" {', and '.join(parts)}.", class_="warning")
