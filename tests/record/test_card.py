"""Cards as facts: whatever is measured survives JSON, and nothing heavy is imported for it."""

import json
import subprocess
import sys
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engram.core.errors import InputError
from engram.record.card import (
    VERDICTS,
    Card,
    Constraint,
    Fact,
    ForbiddenKind,
    ForbiddenRead,
    Part,
    Read,
    Reader,
    Relation,
    Selected,
)

NUMBERS = st.integers(0, 10**12) | st.floats(0, 1e9)
TASKS = st.lists(st.integers(0, 20), max_size=4).map(tuple)
MEASURED = st.dictionaries(
    st.text(min_size=1, max_size=8), NUMBERS | st.text(max_size=8) | st.lists(NUMBERS, max_size=4).map(tuple)
)
ANSWERS = st.none() | st.booleans() | NUMBERS
PLAIN_FACTS = st.builds(Fact, st.text(max_size=8), ANSWERS, MEASURED, st.text(max_size=8))
FACTS = st.builds(
    Fact,
    st.text(max_size=8),
    ANSWERS,
    MEASURED,
    st.text(max_size=8),
    st.lists(PLAIN_FACTS, max_size=2).map(tuple),
)
CARDS = st.builds(
    Card,
    st.lists(FACTS, max_size=4).map(tuple),
    st.lists(
        st.builds(Constraint, st.text(max_size=8), st.sampled_from(VERDICTS), MEASURED, st.text(max_size=8)),
        max_size=3,
    ).map(tuple),
    st.lists(
        st.builds(
            Read,
            st.sampled_from(get_args(Reader)),
            st.sampled_from(get_args(Part)),
            st.sampled_from(get_args(Relation)),
            TASKS,
            st.integers(0, 10**9),
        ),
        max_size=3,
    ).map(tuple),
    st.dictionaries(
        st.builds(
            ForbiddenRead,
            st.sampled_from(get_args(ForbiddenKind)),
            TASKS,
            st.none() | st.sampled_from(get_args(Relation)),
            st.text(max_size=8),
            st.text(max_size=8),
            st.text(max_size=8),
        ),
        st.integers(1, 100),
        max_size=3,
    ),
    st.lists(
        st.builds(
            Selected,
            st.text(max_size=8),
            st.integers(2, 100),
            st.lists(st.sampled_from(get_args(Part)), max_size=2).map(tuple),
            st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
)


# Cards have many parts: making one can take long where other processes use the machine.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(CARDS)
def test_a_card_survives_json(card: Card) -> None:
    assert Card.of_json(json.loads(json.dumps(card.as_json(), allow_nan=False))) == card


def test_a_card_of_a_newer_format_is_refused() -> None:
    with pytest.raises(InputError, match=r"of the run here cannot be read .*newer than this version"):
        Card.of_json({**Card((), ()).as_json(), "format": 99}, of="the run here")


def test_no_choice_changes_nothing() -> None:
    card = Card((Fact("passes", 1.0),), (Constraint("causality", "held"),))
    assert card.with_choices([]) is card


def test_a_choice_on_earlier_tasks_breaks_nothing() -> None:
    card = Card((), (Constraint("causality", "held"),))
    chosen = card.with_choices([Selected("lr", 3, ("validation",), later=False)])
    assert chosen.constraint("causality").verdict == "held"
    assert [fact.answer for fact in chosen.facts] == [False, False]


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (ForbiddenRead("train", (0, 2), "earlier"), "training data of tasks 1, 3 after they had ended"),
        (ForbiddenRead("validation", (1,)), "validation data of task 2"),
        (ForbiddenRead("other", note="as it was said"), "as it was said"),
    ],
)
def test_forbidden_reads_in_words(read: ForbiddenRead, words: str) -> None:
    assert read.describe() == words


def test_cards_need_neither_torch_nor_polars() -> None:
    code = (
        "import sys, engram.record.card, engram.results.card; print({'torch', 'polars'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
