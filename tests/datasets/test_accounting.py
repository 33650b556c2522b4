"""The account of what was read: typed, stopped where it is strict, and kept over a resume."""

import copy
import json
import pickle
from dataclasses import replace

import pytest
import torch

from engram.core.values import TaskInfo
from engram.datasets import load
from engram.datasets.accounting import Forbidden, Ledger, watched
from engram.datasets.stream import Stream
from engram.record.card import ForbiddenRead
from engram.scenarios import split

DIGITS = split("digits", setting="class")


def read_everything(ledger: Ledger) -> None:
    stream = Stream(DIGITS)
    for batch in ledger.handed(stream.phase(0).in_order(16), "training"):
        assert len(batch)
    ledger.phase = 2
    with ledger.reading("method"):
        stream.test(3).rows(torch.arange(4))
        stream.test(3).rows(torch.arange(4))
        next(stream.phase(1).in_order(8))
        next(stream.phase(2).in_order(8))
        next(stream.phase(4).in_order(8))
        _ = watched(TaskInfo(2, 2, (4, 5), samples=9, steps=1, epochs=1, batch_size=9)).identity
        load("digits")
    ledger.note_route()


def test_what_should_not_be_read_is_recorded_as_values() -> None:
    ledger = Ledger(DIGITS, method="mine")
    read_everything(ledger)
    assert set(ledger.forbidden) == {
        ForbiddenRead("test", (3,)),
        ForbiddenRead("train", (1,), "earlier"),
        ForbiddenRead("train", (4,), "later"),
        ForbiddenRead("task identity", setting="class"),
        ForbiddenRead("task identity at test time", setting="class"),
        ForbiddenRead("data set", dataset="digits"),
    }
    assert ledger.forbidden[ForbiddenRead("test", (3,))] >= 2
    assert ledger.samples[2, "method", "train", (2,)] == 8
    assert ledger.identity_reads == 1
    assert ledger.answers_by_task


def test_only_reading_the_identity_of_a_task_counts() -> None:
    ledger = Ledger(DIGITS, method="mine", strict=True)
    known = TaskInfo(1, 7, (2, 3), samples=9, steps=1, epochs=1, batch_size=9)
    task, same, guess = (watched(info) for info in (known, known, replace(known, identity=8)))
    with ledger.reading("method"):
        assert "identity" not in f"{task}" and "classes=(2, 3), samples=9" in repr(task)
        assert task == same and hash(task) == hash(same) and len({task, copy.copy(task)}) == 1
        assert copy.deepcopy([task]) == [task]
        # Else comparing with every number would tell the identity.
        assert task == guess and hash(task) == hash(guess)
        assert task != watched(replace(known, index=2)) and task != known
    assert ledger.identity_reads == 0
    assert copy.deepcopy(task).identity == 7
    for read in (lambda: task.identity, lambda: pickle.dumps(task), lambda: replace(task, index=2)):
        with pytest.raises(Forbidden, match="task identity"), ledger.reading("method"):
            read()


def test_an_account_goes_on_after_a_resume() -> None:
    ledger, resumed = (Ledger(DIGITS, method="mine") for _ in range(2))
    read_everything(ledger)
    ledger.told = 3
    resumed.load_state_dict(ledger.state_dict())
    assert resumed.state_dict() == ledger.state_dict()
    assert resumed.forbidden == ledger.forbidden
    assert resumed.samples == ledger.samples
    json.dumps(ledger.state_dict())
    # Two accounts do not share what they count.
    resumed.refuse(ForbiddenRead("test", (0,)))
    assert ForbiddenRead("test", (0,)) not in ledger.forbidden


def test_a_gap_is_remembered() -> None:
    ledger, resumed = (Ledger(DIGITS, method="mine") for _ in range(2))
    ledger.load_state_dict(None)
    assert not ledger.whole
    resumed.load_state_dict(ledger.state_dict())
    assert not resumed.whole


def test_a_strict_account_stops_the_method() -> None:
    ledger, tests = Ledger(DIGITS, method="mine", strict=True), Stream(DIGITS).test(0)
    with (
        pytest.raises(Forbidden, match=r"^method mine read test data of task 1: a method may read only"),
        ledger.reading("method"),
    ):
        tests.rows(torch.arange(2))
    with ledger.reading("evaluation"):
        tests.rows(torch.arange(2))
