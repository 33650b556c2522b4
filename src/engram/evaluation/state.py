"""What an evaluator has recorded, as tensors and plain values that any checkpoint can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor

from engram.core.errors import InputError
from engram.core.folder import Reading
from engram.core.jsons import JsonObject
from engram.core.scores import Scores
from engram.core.trace import COLUMNS, Trace
from engram.evaluation.checked import CheckedState
from engram.metrics.arrays import Label
from engram.record.answers import Answers
from engram.record.test_data import TestData, other_tasks

VERSION = 1
"""The version of the states that are written; those of earlier versions can be read."""


_REQUIRED = ("plain", "seen", "learned", "index", "readings", "generator", "trace", "ends")


class Counts(TypedDict):
    """How much an evaluator has done."""

    step: int
    seconds: float
    evaluations: int


class LevelsState(TypedDict):
    """The two levels of samples: which are asked at every evaluation, and the evaluations of all."""

    small: list[Tensor]
    anchors: dict[str, Tensor]


class EvaluatorState(TypedDict):
    """Everything that an evaluator has recorded, as tensors and plain values."""

    version: NotRequired[int]
    names: NotRequired[list[str]]
    plain: Counts
    seen: list[int]
    learned: list[tuple[int, list[int]]]
    updated: NotRequired[list[tuple[int, int]]]
    test_data: NotRequired[list[JsonObject]]
    index: list[Tensor]
    gathered: list[int]
    gathered_rest: NotRequired[list[int]]
    readings: list[Reading]
    generator: Tensor
    trace: dict[str, Tensor]
    ends: dict[str, Tensor]
    scores: NotRequired[dict[str, Tensor]]
    answered: NotRequired[dict[str, Tensor]]
    checked: NotRequired[CheckedState | None]
    levels: NotRequired[LevelsState | None]
    parallel: NotRequired[JsonObject | None]


def check_state(state: object) -> None:
    """Refuse what is not the state of an evaluator, or was written by a later version.

    Example:
        >>> check_state({"model": 1})
        Traceback (most recent call last):
        engram.core.errors.InputError: this is not the state of an evaluator: it has no 'plain'; ...
    """
    advice = "give what state_dict() returned"
    if not isinstance(state, Mapping):
        raise InputError(f"this is not the state of an evaluator, but a {type(state).__name__}: {advice}")
    lacking = [key for key in _REQUIRED if key not in state]
    if lacking:
        raise InputError(f"this is not the state of an evaluator: it has no {lacking[0]!r}; {advice}")
    version = state.get("version", 0)
    if not isinstance(version, int) or version > VERSION:
        raise InputError(
            f"the state of the evaluator is of version {version}, and this engram reads up to {VERSION}: "
            "install the engram that wrote it"
        )


def refuse_other_data(
    state: EvaluatorState, test_data: Sequence[TestData], *, called: Callable[[int], Label]
) -> None:
    """Refuse to continue a record that was made on other test sets."""
    changed = other_tasks([TestData.of_json(task) for task in state.get("test_data", ())], test_data)
    if changed:
        raise InputError(
            f"the test data of task {called(changed[0])} are not those that the evaluations so far were made "
            "on: continue with the same test data, or begin again"
        )


def refuse_other_record(state: EvaluatorState, *, names: list[str], only_scores: bool, scored: bool) -> None:
    """Refuse to continue a record of tasks with other names, or with scores that are not recorded now."""
    if state.get("names", names) != names:
        before, now = (", ".join(listed) or "none" for listed in (state["names"], names))
        raise InputError(
            f"the names of tasks were {before} in the evaluations so far, and are {now}: "
            "continue with the same names, or begin again"
        )
    answered = len(state["trace"]["step"])
    had_scores = "scores" in state and len(state["scores"]["step"])
    if (answered and only_scores) or (had_scores and not scored):
        raise InputError(
            f"the evaluations so far recorded {'scores' if had_scores else 'right and wrong answers'}: "
            "continue with the same right= and score=, or begin again"
        )


def packed(trace: Trace) -> dict[str, Tensor]:
    """A trace as tensors.

    Example:
        >>> trace = Trace()
        >>> trace.add(step=1, learning=0, task=0, right=np.array([True, False]))
        >>> unpacked(packed(trace)) == trace
        True
    """
    numbers = {name: torch.tensor(getattr(trace, name), dtype=torch.int64) for name in COLUMNS[:-1]}
    bits = np.frombuffer(b"".join(trace.bits), dtype=np.uint8)
    return {**numbers, "bits": torch.from_numpy(bits.copy())}


def unpacked(state: Mapping[str, Tensor]) -> Trace:
    """What `packed` made."""
    step, learning, task, correct, total = (state[name].tolist() for name in COLUMNS[:-1])
    lengths = [(number + 7) // 8 for number in total]
    bits = [piece.numpy().tobytes() for piece in state["bits"].split(lengths)] if lengths else []
    return Trace(step, learning, task, correct, total, bits)


def packed_scores(scores: Scores) -> dict[str, Tensor]:
    """Scores as tensors.

    Example:
        >>> scores = Scores(higher_is_better=False)
        >>> scores.add(step=1, learning=0, task=0, values=np.array([0.5, 2.0], dtype=np.float32))
        >>> unpacked_scores(packed_scores(scores)) == scores
        True
    """
    names = ("step", "learning", "task")
    values = np.concatenate([np.empty(0, dtype=np.float32), *scores.values])
    return {
        **{name: torch.tensor(getattr(scores, name), dtype=torch.int64) for name in names},
        "total": torch.tensor([len(row) for row in scores.values], dtype=torch.int64),
        "higher_is_better": torch.tensor(scores.higher_is_better),
        "values": torch.from_numpy(values),
    }


def unpacked_scores(state: Mapping[str, Tensor]) -> Scores:
    """What `packed_scores` made."""
    totals = state["total"].tolist()
    rows = [piece.numpy().copy() for piece in state["values"].split(totals)] if totals else []
    step, learning, task = (state[name].tolist() for name in ("step", "learning", "task"))
    return Scores(bool(state["higher_is_better"]), step, learning, task, rows)


_ROW = ("step", "learning", "task", "total")


def packed_answers(answers: Answers) -> dict[str, Tensor]:
    """Answers as tensors.

    Example:
        >>> unpacked_answers(packed_answers(Answers())) == Answers()
        True
    """
    numbers = {name: torch.tensor(getattr(answers, name), dtype=torch.int64) for name in _ROW}
    codes = np.frombuffer(b"".join(answers.codes), dtype=np.uint8)
    lengths = torch.tensor([len(row) for row in answers.codes], dtype=torch.int64)
    return {**numbers, "lengths": lengths, "codes": torch.from_numpy(codes.copy())}


def unpacked_answers(state: Mapping[str, Tensor] | None) -> Answers:
    """What `packed_answers` made; empty for None."""
    if state is None or not len(state["step"]):
        return Answers()
    numbers = {name: state[name].tolist() for name in _ROW}
    codes = [piece.numpy().tobytes() for piece in state["codes"].split(state["lengths"].tolist())]
    return Answers(**numbers, codes=codes, classes=[None] * len(codes))
