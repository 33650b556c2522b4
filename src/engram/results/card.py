"""Protocol cards as text, and the card of several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from engram.core.errors import InputError
from engram.core.files import read_json
from engram.core.jsons import JsonObject
from engram.record.card import (
    SELECTION,
    VERDICTS,
    Answer,
    Card,
    Constraint,
    Fact,
    ForbiddenRead,
    Part,
    Read,
    Reader,
    Relation,
    Selected,
    selection_facts,
)
from engram.results.questions import CONSTRAINTS, QUESTIONS, Question, note_only

if TYPE_CHECKING:
    from engram.record.run import Run
    from engram.results.runs import RunGroup


@dataclass(frozen=True, slots=True)
class Line:
    """One question with its answer, as text.

    Attributes:
        name: The question's short name.
        question: The question; for a constraint, its name.
        answer: Yes, no, a number, or the verdict on a constraint.
        figure: The numbers behind the answer.
        how: How it was measured.
    """

    name: str
    question: str
    answer: str
    figure: str
    how: str


def fact_lines(card: Card) -> tuple[Line, ...]:
    """The answers of a card as text, one line per question.

    Example:
        >>> card = Card((Fact("passes", 3.0, {"updates": 2.0, "task_ends": 1.0}),), ())
        >>> [(line.answer, line.figure) for line in fact_lines(card)]
        [('3', '2 in updates, 1 when a task ends')]
    """
    lines = []
    for fact in card.facts:
        question = QUESTIONS.get(fact.name) or Question(fact.name, fact.name, "unknown", note_only)
        facts = (fact, *fact.others)
        answers = dict.fromkeys(question.answer(one.answer) for one in facts)
        figures = dict.fromkeys(one.note or question.figure(card, one) for one in facts)
        figure = " / ".join(figure for figure in figures if figure)
        lines.append(Line(fact.name, question.question, " / ".join(answers), figure, question.how))
    return tuple(lines)


def constraint_lines(card: Card) -> tuple[Line, ...]:
    """The verdicts of a card as text, one line per constraint.

    Example:
        >>> card = Card((), (Constraint("causality", "broken", {"later_samples": 1200}),))
        >>> [(line.answer, line.figure) for line in constraint_lines(card)]
        [('broken', '1,200 samples')]
    """
    lines = []
    for constraint in card.constraints:
        name = constraint.name
        question = CONSTRAINTS.get(name) or Question(name, name, "unknown", note_only)
        figure = question.figure(card, constraint)
        lines.append(Line(name, name, constraint.verdict, figure, question.how))
    return tuple(lines)


def selection_lines(choices: Sequence[Selected]) -> tuple[Line, ...]:
    """The lines of a card about how its run was selected.

    Example:
        >>> [line.answer for line in selection_lines([Selected("fields", 4, ("test",), later=True)])]
        ['yes', 'yes']
    """
    return fact_lines(Card(selection_facts(choices), (), choices=tuple(choices)))


def described(card: Card) -> JsonObject:
    """A card as JSON for display: its facts, and every question, answer and verdict as text."""
    facts = card.as_json()
    return {
        **facts,
        "constraints": [
            {**constraint, "figure": line.figure, "how": line.how}
            for constraint, line in zip(facts["constraints"], constraint_lines(card), strict=True)
        ],
        "lines": [asdict(line) for line in fact_lines(card)],
    }


# Cards of runs --------------------------------------------------------------------------------------


def card_of(run: Run) -> Card | None:
    """The card of a run, including the selections that led to it; None if it has no card."""
    return None if run.card is None else run.card.with_choices(choices_of(run))


def choices_of(run: Run) -> tuple[Selected, ...]:
    """The selections that led to this run, as recorded by the protocols that made it."""
    file = None if run.folder is None else run.folder / SELECTION
    if file is None or not file.is_file():
        return ()
    try:
        return tuple(Selected.of_json(choice) for choice in read_json(file))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"cannot read {file}: run the protocol that wrote it again") from error


def group_card(group: RunGroup) -> Card | None:
    """The card of runs that differ only in the seed; None if any of them has no card."""
    cards = [card for run in group.runs if (card := card_of(run)) is not None]
    return merged(cards) if len(cards) == len(group.runs) else None


def merged(cards: Sequence[Card]) -> Card:
    """The card of several runs: the facts of the first, all answers that differ, and the worst verdicts.

    Where only numbers differ between seeds, those of the first card are shown. Reads are summed. Facts and
    constraints that only some cards have are kept, so that cards of different versions can be merged.

    Example:
        >>> card = merged([Card((Fact("later data", answer),), ()) for answer in (False, True)])
        >>> [line.answer for line in fact_lines(card)]
        ['no / yes']
    """
    facts: dict[str, list[Fact]] = {}
    constraints: dict[str, list[Constraint]] = {}
    forbidden: dict[ForbiddenRead, int] = {}
    for card in cards:
        for fact in card.facts:
            facts.setdefault(fact.name, []).extend((replace(fact, others=()), *fact.others))
        for constraint in card.constraints:
            constraints.setdefault(constraint.name, []).append(constraint)
        for read, times in card.forbidden.items():
            forbidden[read] = forbidden.get(read, 0) + times
    return Card(
        tuple(_one_fact(several) for several in facts.values()),
        tuple(
            min(several, key=lambda constraint: VERDICTS.index(constraint.verdict))
            for several in constraints.values()
        ),
        _all_reads(read for card in cards for read in card.reads),
        forbidden,
        tuple(dict.fromkeys(choice for card in cards for choice in card.choices)),
    )


def _one_fact(facts: Sequence[Fact]) -> Fact:
    """The first fact, with the others if their answers differ in more than a number."""
    by_answer: dict[Answer, Fact] = {}
    for fact in facts:
        by_answer.setdefault(fact.answer, fact)
    first, *others = by_answer.values()
    plain = any(answer is None or isinstance(answer, bool) for answer in by_answer)
    return replace(first, others=tuple(others)) if plain else first


def _all_reads(reads: Iterable[Read]) -> tuple[Read, ...]:
    totals: dict[tuple[Reader, Part, Relation], Read] = {}
    for read in reads:
        key = (read.reader, read.part, read.when)
        before = totals.get(key, replace(read, samples=0))
        tasks = tuple(sorted({*before.tasks, *read.tasks}))
        totals[key] = replace(read, tasks=tasks, samples=before.samples + read.samples)
    return tuple(totals.values())
