"""Protocol cards in words: sentences, merging, cards of the first format, and the report."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.results.browser import Browser
from tests.results.simulated import write_run
from tests.results.test_report import NASTY, OVERFLOW

from engram.core.errors import InputError
from engram.core.jsons import JsonObject
from engram.record.card import (
    SELECTION,
    Card,
    Constraint,
    Fact,
    ForbiddenRead,
    Selected,
    growth,
    selection_facts,
)
from engram.results.card import (
    Line,
    constraint_lines,
    described,
    fact_lines,
    group_card,
    merged,
)
from engram.results.card_section import cards_section
from engram.results.questions import CONSTRAINTS, QUESTIONS, Question
from engram.results.report import write_report
from engram.results.runs import find_runs, group_runs

CARD = Card(
    (
        Fact("passes", 3.0, {"updates": 3.0, "task_ends": 0.0, "method": 0.0}),
        Fact("later data", False, {"samples": 0, "tasks_together": 1}),
    ),
    (Constraint("causality", "held", {"later_samples": 0}),),
)

OLD: JsonObject = {
    "constraints": [
        {"name": "causality", "verdict": "held", "figure": "0 samples of later tasks", "how": "(004)"},
        {
            "name": "low memory footprint",
            "verdict": "broken",
            "figure": "100 samples and 27,600 bytes kept",
            "how": "(004)",
        },
    ],
    "lines": [
        {
            "name": name,
            "question": "As it was asked?",
            "answer": answer,
            "figure": figure,
            "how": "as it was measured",
        }
        for name, answer, figure in (
            ("selection on test data", "none", "no choice is recorded for this run"),
            ("later data", "yes", "12 samples"),
            ("passes", "2.79", "2.8 in updates, 0 when a task ends"),
            ("kept bytes", "27,600", "after each task: always 27,600; the network has 35,880"),
            ("update time", "0.53 ms", "median in each task, ms: 0.5 0.53"),
            ("bytes grow", "unknown", "not counted"),
            ("a question of old", "perhaps", "7 times"),
        )
    ],
    "reads": [{"reader": "training", "part": "train", "when": "later", "tasks": [1, 2], "samples": 12}],
    "forbidden": {"training data of task 2 before they came": 3},
}
"""A card as `result.json` had it before cards stored facts."""


def with_card(
    folder: Path, method: str, card: Card | JsonObject | None, *, seed: int = 0, tasks: int = 2
) -> Path:
    run = write_run(folder, method, seed=seed, tasks=tasks, updates=5)
    if card is not None:
        recorded = card.as_json() if isinstance(card, Card) else card
        result = json.loads((run / "result.json").read_text())
        (run / "result.json").write_text(json.dumps({**result, "card": recorded}))
    return run


def line(card: Card, name: str) -> Line:
    return next(line for line in (*constraint_lines(card), *fact_lines(card)) if line.name == name)


# Questions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "question"), [*QUESTIONS.items(), *CONSTRAINTS.items()])
def test_questions_have_their_names(name: str, question: Question[Any]) -> None:
    assert question.name == name
    assert question.question.endswith("?")
    assert not question.how.endswith(".")


@pytest.mark.parametrize(
    ("fact", "answer", "figure"),
    [
        (Fact("later data", False, {"tasks_together": 1}), "no", "0 samples"),
        (
            Fact("later data", True, {"tasks_together": 5, "samples": 1200}),
            "yes",
            "5 tasks are learned together; 1,200 samples",
        ),
        (
            Fact("earlier data", True, {"samples": 90, "passes": 1.5, "kept_samples": 7}),
            "yes",
            "90 samples, 1.5 passes; 7 samples kept after the last task",
        ),
        (
            Fact("identity in training", True, {"batches": 0, "reads": 1}),
            "yes",
            "0 batches named their task; the method read the task identity once",
        ),
        (
            Fact("classes", True, {"units": 10, "classes": 2}),
            "yes",
            "10 units compete when 2 classes have been seen",
        ),
        (
            Fact("boundaries", False, {"told": 1, "phases": 1}),
            "no",
            "there are none: all data is learned as one task",
        ),
        (
            Fact("normalisation", True, {"dataset": "mnist", "later_classes": 1}),
            "yes",
            "normalised with the statistics of all of mnist, of which 1 class comes later",
        ),
        (
            Fact("bytes grow", True, {"after_each_task": (10, 20, 30)}),
            "yes",
            "10 20 30 bytes: +50 % over the second half",
        ),
        (
            Fact("update grows", True, {"in_each_task": (0, 0, 30)}),
            "yes",
            "0 0 30 FLOPs: from zero over the second half",
        ),
        (
            Fact("bytes grow", None, {"after_each_task": (0, 20)}),
            "unknown",
            "0 20 bytes: too few tasks to tell",
        ),
        (Fact("bytes grow", None, {"after_each_task": ()}), "unknown", "not counted"),
        (
            Fact("update time", 0.00123, {"in_each_task": (0.001, 0.00123)}),
            "1.23 ms",
            "median in each task, in ms: 1.0 1.23",
        ),
        (
            Fact("kept bytes", 27600, {"after_each_task": (27600, 27600), "network": 400}),
            "27,600",
            "after each task: always 27,600; the network has 400 bytes",
        ),
        (Fact("of a later version", True), "yes", ""),
    ],
)
def test_sentences_about_facts(fact: Fact, answer: str, figure: str) -> None:
    [shown] = fact_lines(Card((fact,), ()))
    assert (shown.answer, shown.figure) == (answer, figure)


def test_sentences_about_constraints() -> None:
    series = {"flops": (5, 5, 5), "kept_bytes": (1, 2, 3), "seconds": (0.1, 0.1, 0.2)}
    card = Card(
        (),
        (
            Constraint("low memory footprint", "broken", {"earlier_samples": 90, "tasks_together": 2}),
            Constraint("causality", "broken", {"later_test_samples": 6}),
            Constraint("constant update complexity", "broken", series),
        ),
        forbidden={ForbiddenRead("data set", dataset="digits"): 1},
    )
    assert [shown.figure for shown in constraint_lines(card)] == [
        "2 tasks are learned together; 90 samples",
        "the whole data set digits; 6 test or validation samples of later tasks",
        "FLOPs per update +0 %, bytes kept +50 % (median time +100 %)",
    ]
    assert growth(series["kept_bytes"]) == 0.5


# Merging --------------------------------------------------------------------------------------------


def test_seeds_that_differ_are_told(tmp_path: Path) -> None:
    other = replace(
        CARD,
        facts=(replace(CARD.facts[0], answer=2.0), replace(CARD.facts[1], answer=True)),
        constraints=(replace(CARD.constraints[0], verdict="broken"),),
        forbidden={ForbiddenRead("test", (0,)): 3},
    )
    with_card(tmp_path, "er", CARD)
    with_card(tmp_path, "er", other, seed=1)
    [group] = group_runs(find_runs([tmp_path]))
    card = group_card(group)
    assert card is not None
    assert line(card, "passes").answer == "3"
    assert line(card, "later data").answer == "no / yes"
    assert card.constraint("causality").verdict == "broken"
    assert "read what it should not: test data of task 1." in re.sub("<[^>]*>", "", cards_section([group]))


def test_acts_and_work_are_told(tmp_path: Path) -> None:
    work = {"updates": 2.0e6, "boundaries": 0, "answers": 1.5e9}
    card = replace(
        CARD,
        facts=(Fact("work", 1.502e9, work), Fact("backward passes", None), Fact("outside", True)),
        forbidden={ForbiddenRead("test", (0,)): 3, ForbiddenRead("process", note="ls"): 1},
    )
    assert (line(card, "work").answer, line(card, "work").figure) == (
        "1.5 GFLOP",
        "2 M in updates, 1.5 G before answers",
    )
    assert line(card, "backward passes").figure == "not counted"
    assert line(card, "outside").figure == "started the process ls"
    with_card(tmp_path, "er", card)
    [group] = group_runs(find_runs([tmp_path]))
    told = "read what it should not: test data of task 1, and did what it should not: started the process ls."
    assert told in re.sub("<[^>]*>", "", cards_section([group]))


def test_learned_answers_are_told() -> None:
    series = {"flops": (0, 0, 0), "kept_bytes": (9, 9, 9), "flops_with_answer": (5, 5, 10)}
    constraint = Constraint(
        "constant update complexity", "broken", {**series, "answer_backward_passes": 3750}
    )
    assert constraint_lines(replace(CARD, constraints=(constraint,)))[0].figure == (
        "answers are learned when needed, in 3,750 backward passes; FLOPs per update +0 %, bytes kept +0 %, "
        "with an answer +100 %"
    )


def test_merged_cards_survive_json_and_merge_again() -> None:
    other = replace(CARD, facts=(CARD.facts[0], replace(CARD.facts[1], answer=None)))
    card = merged([CARD, other])
    assert Card.of_json(described(card)) == card
    assert line(merged([card, CARD]), "later data").answer == "no / unknown"


def test_cards_of_two_versions_are_put_together(tmp_path: Path) -> None:
    shorter = replace(CARD, facts=CARD.facts[:1], constraints=())
    with_card(tmp_path, "er", CARD)
    with_card(tmp_path, "er", shorter, seed=1)
    with_card(tmp_path, "ewc", shorter)
    groups = group_runs(find_runs([tmp_path]))
    card = next(card for group in groups if group.label == "er" and (card := group_card(group)))
    assert [fact.name for fact in card.facts] == ["passes", "later data"]
    assert cards_section(groups).count("<td>–</td>") == 2


# Cards of the first format --------------------------------------------------------------------------


def test_an_old_card_is_read_and_shown_as_it_is() -> None:
    card = Card.of_json(OLD)
    shown = {line.name: (line.answer, line.figure) for line in fact_lines(card)}
    expected = {old["name"]: (old["answer"], old["figure"]) for old in OLD["lines"]}
    # An answer that is no longer given is shown with the figure.
    assert shown == {**expected, "a question of old": ("unknown", "perhaps; 7 times")}
    assert card.fact("kept bytes").answer == 27_600
    assert card.fact("update time").answer == 0.00053
    assert [(line.answer, line.figure) for line in constraint_lines(card)] == [
        (old["verdict"], old["figure"]) for old in OLD["constraints"]
    ]
    assert [read.describe() for read in card.forbidden] == ["training data of task 2 before they came"]
    assert line(card, "passes").question == QUESTIONS["passes"].question
    # Written again, it has the new format and says the same.
    assert Card.of_json(card.as_json()) == card


def test_an_old_card_is_merged_with_a_new_one(tmp_path: Path) -> None:
    with_card(tmp_path, "er", CARD)
    with_card(tmp_path, "er", OLD, seed=1)
    [group] = group_runs(find_runs([tmp_path]))
    card = group_card(group)
    assert card is not None
    assert (line(card, "later data").answer, line(card, "later data").figure) == (
        "no / yes",
        "0 samples / 12 samples",
    )
    assert line(card, "passes").answer == "3"
    assert line(card, "kept bytes").figure == "after each task: always 27,600; the network has 35,880"
    assert card.constraint("low memory footprint").verdict == "broken"
    assert line(card, "causality").answer == "held"
    html = re.sub("<[^>]*>", "", cards_section([group]))
    assert "read what it should not: training data of task 2 before they came." in html


def test_a_choice_breaks_the_causality_of_an_old_card() -> None:
    choice = Selected("fields", 7, ("test",), later=True)
    held = Card.of_json(OLD)
    assert line(held.with_choices([choice]), "causality").figure == (
        "fields chosen among 7, judged on later tasks"
    )
    broken = {**OLD["constraints"][0], "verdict": "broken", "figure": "12 samples"}
    card = Card.of_json({**OLD, "constraints": [broken]}).with_choices([choice])
    assert line(card, "causality").figure == "fields chosen among 7, judged on later tasks; 12 samples"
    assert line(card, "selection on test data").figure == "fields chosen among 7 on test data"


# The report -----------------------------------------------------------------------------------------


def test_answers_stand_side_by_side(tmp_path: Path) -> None:
    with_card(tmp_path, "er", CARD)
    with_card(tmp_path, "ewc", None)
    html = cards_section(group_runs(find_runs([tmp_path])))
    assert html.count(">er<") == html.count(">ewc<") == 2
    assert "<td>–</td>" in html
    assert "A dash: the runs were made before cards were recorded" in html
    assert '<span class="verdict held">held</span><small>0 samples of later tasks</small>' in html
    assert f'data-tip="Measured: {QUESTIONS["passes"].how}."' in html


def test_no_card_at_all(tmp_path: Path) -> None:
    with_card(tmp_path, "er", None)
    html = cards_section(group_runs(find_runs([tmp_path])))
    assert "Run them again with --again" in html
    assert "<table" not in html


def test_choices_stand_beside_the_run(tmp_path: Path) -> None:
    run = with_card(tmp_path, "er", replace(CARD, facts=(*selection_facts(()), *CARD.facts)))
    choice = Selected("fields", 7, ("test",), later=True)
    (run / SELECTION).write_text(json.dumps([choice.as_json()]))
    html = cards_section(group_runs(find_runs([tmp_path])))
    assert "fields chosen among 7 on test data" in html
    assert '<span class="verdict broken">broken</span>' in html
    for broken in ("[3]", '[{"what": 1}]', "7"):
        (run / SELECTION).write_text(broken)
        with pytest.raises(InputError, match="run the protocol that wrote it again"):
            cards_section(group_runs(find_runs([tmp_path])))


@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser(browser: Browser, tmp_path: Path, width: int) -> None:
    nasty = replace(CARD, facts=(replace(CARD.facts[0], name=NASTY, note=NASTY),))
    with_card(tmp_path, "er", nasty)
    write_report(find_runs([tmp_path]), tmp_path / "report.html")
    for dark in (False, True):
        browser.look(width=width, dark=dark, mobile=width < 600)
        browser.open(tmp_path / "report.html")
        browser.ask("document.querySelector('#cards details').open = true")
        assert browser.problems() == []
        assert browser.ask(OVERFLOW) == 0
        assert NASTY in browser.ask("document.querySelector('#cards').textContent")
        colour = browser.ask("getComputedStyle(document.querySelector('.verdict.held')).color")
        assert colour == ("rgb(56, 201, 156)" if dark else "rgb(0, 128, 95)")
