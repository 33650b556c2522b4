"""Protocol cards of runs as they lie on disk, for people to read side by side."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from engram.core.errors import InputError
from engram.core.files import read_json
from engram.engine.card import SELECTION, Card, Constraint, Line, Selected, merged
from engram.record.run import Run
from engram.results.markup import Html, element, joined
from engram.results.runs import RunGroup

Named = TypeVar("Named", Line, Constraint)
NO_CARD = "made before cards were recorded, or by a loop of your own"


def card_of(run: Run) -> Card | None:
    """A run's card, with the choices that protocols made to end with it; None where it has none."""
    said = run.card
    if said is None:
        return None
    if not isinstance(said, Mapping):
        raise InputError(f"the card of the run {run.folder} cannot be read: run it again with --again")
    return Card.of_json(said, of=f"the run {run.folder}").selected(choices_of(run))


def choices_of(run: Run) -> tuple[Selected, ...]:
    """What was chosen to get this run, as far as the protocols that ended with it recorded it."""
    file = None if run.folder is None else run.folder / SELECTION
    if file is None or not file.is_file():
        return ()
    try:
        return tuple(Selected.of_json(found) for found in read_json(file))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file} cannot be read: run the protocol that wrote it again") from error


def group_card(group: RunGroup) -> Card | None:
    """The card of runs that differ only in the seed: the first one's, and every answer that seeds differ in.

    None where one of them has none.
    """
    cards = [card for run in group.runs if (card := card_of(run)) is not None]
    if len(cards) < len(group.runs):
        return None
    return merged(cards)


def cards_section(groups: Sequence[RunGroup]) -> Html:
    """A section of the report: what was known, what was kept, what it cost, one column an experiment."""
    cards = [group_card(group) for group in groups]
    shown = [card for card in cards if card is not None]
    heading = element("h2", "Protocol cards" if len(groups) > 1 else "Protocol card")
    if not shown:
        note = f"No card: these runs were {NO_CARD}. Run them again with --again for one."
        return element("section", heading, element("p", note, class_="note"), id="cards")
    head = element("tr", element("td"), *(element("th", group.label, scope="col") for group in groups))
    # Cards of several versions may have other questions.
    every = merged(shown)
    constraints = [
        element(
            "tr",
            element("th", _asked(asked.name.capitalize(), asked.how), scope="row"),
            *(_verdict(_named(card.constraints if card else (), asked.name)) for card in cards),
        )
        for asked in every.constraints
    ]
    lines = [
        element(
            "tr",
            element("th", _asked(asked.question, asked.how), scope="row"),
            *(_answer(_named(card.lines if card else (), asked.name)) for card in cards),
        )
        for asked in every.lines
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


def _warning(group: RunGroup, card: Card) -> Html:
    if not card.forbidden:
        return Html("")
    what = "; ".join(card.forbidden)
    return element(
        "p", element("strong", group.label), f" read what it should not: {what}.", class_="warning"
    )


def _asked(question: str, how: str) -> Html:
    return element("button", question, type="button", class_="term", data_tip=f"Measured: {how}.")


def _named(found: Sequence[Named], name: str) -> Named | None:
    return next((each for each in found if each.name == name), None)


def _verdict(found: Constraint | None) -> Html:
    if found is None:
        return element("td", "–")
    return element("td", element("span", found.verdict, class_=f"verdict {found.verdict}"), _small(found))


def _answer(found: Line | None) -> Html:
    if found is None:
        return element("td", "–")
    return element("td", element("span", found.answer, class_="answer"), _small(found))


def _small(found: Line | Constraint) -> Html:
    return joined(element("small", found.figure)) if found.figure else Html("")
