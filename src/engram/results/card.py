"""Protocol cards of runs as they lie on disk, for people to read side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engram.core.errors import InputError
from engram.results.markup import Html, element, joined
from engram.results.store import Run, RunGroup
from engram.run.card import Card, Constraint, Line

NO_CARD = "made before cards were recorded, or by a loop of your own"


def card_of(run: Run) -> Card | None:
    """A run's card; None where it has none."""
    said = run.result.get("card")
    if said is None:
        return None
    if not isinstance(said, Mapping):
        raise InputError(f"the card of the run {run.folder} cannot be read: run it again with --again")
    return Card.of_json(said)


def group_card(group: RunGroup) -> Card | None:
    """The card of runs that differ only in the seed: the first one's, and every answer that seeds differ in.

    None where one of them has none.
    """
    cards = [card for run in group.runs if (card := card_of(run)) is not None]
    if len(cards) < len(group.runs):
        return None
    first = cards[0]
    lines = tuple(_merged([card.lines[i] for card in cards]) for i in range(len(first.lines)))
    constraints = tuple(
        _worst([card.constraints[i] for card in cards]) for i in range(len(first.constraints))
    )
    forbidden = {what: count for card in cards for what, count in (card.forbidden or {}).items()}
    return replace(first, lines=lines, constraints=constraints, forbidden=forbidden)


def cards_section(groups: Sequence[RunGroup]) -> Html:
    """A section of the report: what was known, what was kept, what it cost, one column an experiment."""
    cards = [group_card(group) for group in groups]
    shown = [card for card in cards if card is not None]
    heading = element("h2", "Protocol cards" if len(groups) > 1 else "Protocol card")
    if not shown:
        note = f"No card: these runs were {NO_CARD}. Run them again with --again for one."
        return element("section", heading, element("p", note, class_="note"), id="cards")
    head = element("tr", element("td"), *(element("th", group.label, scope="col") for group in groups))
    names = [found.name for found in shown[0].constraints]
    constraints = [
        element(
            "tr",
            element("th", _asked(name.capitalize(), shown[0].constraint(name).how), scope="row"),
            *(element("td", "–") if card is None else _verdict(card.constraint(name)) for card in cards),
        )
        for name in names
    ]
    lines = [
        element(
            "tr",
            element("th", _asked(line.question, line.how), scope="row"),
            *(element("td", "–") if card is None else _answer(card.line(line.name)) for card in cards),
        )
        for line in shown[0].lines
    ]
    note = (
        "Measured while the run went on, not declared: what was known, what was kept, what it cost. The "
        "constraints are those that applications set (004). Point at a question, or focus it, to read how "
        "it was measured." + (f" A dash: {NO_CARD}." if len(shown) < len(cards) else "")
    )
    return element(
        "section",
        heading,
        element("p", note, class_="note"),
        *(_warning(group, card) for group, card in zip(groups, cards, strict=True) if card is not None),
        _table(head, constraints, label="Constraints of applications"),
        element(
            "details",
            element("summary", "All questions and answers"),
            _table(head, lines, label="Questions and answers of the protocol cards"),
        ),
        id="cards",
    )


def _table(head: Html, rows: Sequence[Html], *, label: str) -> Html:
    table = element("table", element("thead", head), element("tbody", *rows), class_="metrics cards")
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def _merged(lines: Sequence[Line]) -> Line:
    """The first line, with all answers where they differ in kind; numbers may differ from seed to seed."""
    answers = dict.fromkeys(line.answer for line in lines)
    plain = {"yes", "no", "none", "unknown"}
    return replace(lines[0], answer=" / ".join(answers)) if answers.keys() & plain else lines[0]


def _worst(found: Sequence[Constraint]) -> Constraint:
    """The first of the constraints that is broken, or else unknown, or else held."""
    return min(found, key=lambda each: ("broken", "unknown", "held").index(each.verdict))


def _warning(group: RunGroup, card: Card) -> Html:
    if not card.forbidden:
        return Html("")
    what = "; ".join(card.forbidden)
    return element(
        "p", element("strong", group.label), f" read what it should not: {what}.", class_="warning"
    )


def _asked(question: str, how: str) -> Html:
    return element("button", question, type="button", class_="term", data_tip=f"Measured: {how}.")


def _verdict(found: Constraint) -> Html:
    return element("td", element("span", found.verdict, class_=f"verdict {found.verdict}"), _small(found))


def _answer(found: Line) -> Html:
    return element("td", element("span", found.answer, class_="answer"), _small(found))


def _small(found: Line | Constraint) -> Html:
    return joined(element("small", found.figure)) if found.figure else Html("")
