"""Protocol cards in the report."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.results.browser import Browser
from tests.results.simulated import write_run
from tests.results.test_report import NASTY, OVERFLOW

from engram.core.errors import InputError
from engram.engine.card import SELECTION, Card, Constraint, Line, Selected, selection_lines
from engram.results.card import cards_section, group_card
from engram.results.report import write_report
from engram.results.store import find_runs, group_runs

CARD = Card(
    (
        Line("passes", "How many passes?", "3", "3 in updates", "counted"),
        Line("later", "Later?", "no", "0", "c"),
    ),
    (Constraint("causality", "held", "0 samples", "data of future tasks are used in no way"),),
)


def with_card(folder: Path, method: str, card: Card | None, *, seed: int = 0) -> Path:
    run = write_run(folder, method, seed=seed, tasks=2, updates=5)
    if card is not None:
        result = json.loads((run / "result.json").read_text())
        (run / "result.json").write_text(json.dumps({**result, "card": card.as_json()}))
    return run


def test_answers_stand_side_by_side(tmp_path: Path) -> None:
    with_card(tmp_path, "er", CARD)
    with_card(tmp_path, "ewc", None)
    html = cards_section(group_runs(find_runs([tmp_path])))
    assert html.count(">er<") == html.count(">ewc<") == 2
    assert "<td>–</td>" in html
    assert "A dash: made before cards were recorded" in html
    assert '<span class="verdict held">held</span><small>0 samples</small>' in html
    assert 'data-tip="Measured: counted."' in html


def test_no_card_at_all(tmp_path: Path) -> None:
    with_card(tmp_path, "er", None)
    html = cards_section(group_runs(find_runs([tmp_path])))
    assert "Run them again with --again" in html
    assert "<table" not in html


def test_seeds_that_differ_are_told(tmp_path: Path) -> None:
    other = replace(
        CARD,
        lines=(replace(CARD.lines[0], answer="2"), replace(CARD.lines[1], answer="yes")),
        constraints=(replace(CARD.constraints[0], verdict="broken"),),
        forbidden={"test data of task 1": 3},
    )
    with_card(tmp_path, "er", CARD)
    with_card(tmp_path, "er", other, seed=1)
    [group] = group_runs(find_runs([tmp_path]))
    card = group_card(group)
    assert card is not None
    assert card.line("passes").answer == "3"
    assert card.line("later").answer == "no / yes"
    assert card.constraint("causality").verdict == "broken"
    assert "read what it should not: test data of task 1." in re.sub("<[^>]*>", "", cards_section([group]))


def test_cards_of_two_versions_are_put_together(tmp_path: Path) -> None:
    shorter = replace(CARD, lines=CARD.lines[:1], constraints=())
    with_card(tmp_path, "er", CARD)
    with_card(tmp_path, "er", shorter, seed=1)
    with_card(tmp_path, "ewc", shorter)
    groups = group_runs(find_runs([tmp_path]))
    card = next(card for group in groups if group.label == "er" and (card := group_card(group)))
    assert [line.name for line in card.lines] == ["passes", "later"]
    assert cards_section(groups).count("<td>–</td>") == 2


def test_choices_stand_beside_the_run(tmp_path: Path) -> None:
    run = with_card(tmp_path, "er", replace(CARD, lines=(*selection_lines(()), *CARD.lines)))
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
    nasty = replace(CARD, lines=(replace(CARD.lines[0], figure=NASTY, question=NASTY),))
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
