"""What a method holds comes back to the bit, or is named."""

import io
import random
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from engram.core.errors import InputError
from engram.core.values import Batch
from engram.methods.state import CannotKeep, State, capture, kept_bytes, restore


@dataclass(frozen=True)
class Pair:
    left: torch.Tensor
    right: int


@dataclass
class Counted:
    n: int
    total: int = field(default=0, init=False)


class Colour(IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: torch.Tensor


def written_and_read(state: State) -> State:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    read: State = torch.load(file, weights_only=True)
    return read


def holder(**attributes: object) -> SimpleNamespace:
    return SimpleNamespace(**attributes)


BATCH = Batch(torch.ones(2, 3), torch.tensor([0, 1]), heads=((0, 1),), head=torch.tensor([0, 0]))


@pytest.mark.parametrize(
    ("value", "new"),
    [
        (deque([torch.ones(2), torch.zeros(2)], maxlen=5), deque(maxlen=5)),
        (np.arange(6.0).reshape(2, 3), np.zeros(1)),
        (np.float64(0.5), np.float64(0)),
        ((1, (torch.ones(1), "a")), ()),
        ({3, 4}, set()),
        ({("a", 1): [torch.ones(1), None]}, {}),
        ({0: BATCH}, {}),
        (Pair(torch.ones(2), 3), Pair(torch.zeros(1), 0)),
        (Counter("aab"), Counter()),
        (OrderedDict(b=1, a=2), OrderedDict()),
        (defaultdict(list, {1: [2]}), defaultdict(list)),
        (torch.ones(2, 3).shape, None),
        (Point(1, torch.ones(1)), Point(0, torch.zeros(1))),
        (np.array(0.5), np.array(0.0)),
        (torch.ones(2, requires_grad=True), None),
        (torch.nn.Parameter(torch.ones(2)), None),
    ],
)
def test_what_is_held_comes_back(value: object, new: object) -> None:
    old, fresh = holder(held=value), holder(held=new)
    restore(fresh, written_and_read(capture(old)))
    assert type(fresh.held) is type(value)
    assert repr(fresh.held) == repr(value)
    if isinstance(value, deque):
        assert isinstance(fresh.held, deque) and fresh.held.maxlen == value.maxlen


def test_generators_continue() -> None:
    def generators() -> SimpleNamespace:
        return holder(a=np.random.default_rng(1), b=random.Random(1), c=torch.Generator().manual_seed(1))

    def drawn(of: SimpleNamespace) -> tuple[float, float, float]:
        return of.a.random(), of.b.random(), float(torch.rand((), generator=of.c))

    first, second = generators(), generators()
    drawn(first)
    restore(second, written_and_read(capture(first)))
    assert drawn(first) == drawn(second)


def test_a_parameter_stays_the_one_that_an_optimiser_holds() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    fresh = holder(held=parameter)
    restore(fresh, written_and_read(capture(holder(held=torch.nn.Parameter(torch.ones(2))))))
    assert fresh.held is parameter and parameter.tolist() == [1, 1]


def test_functions_and_paths_are_configuration() -> None:
    old, new = holder(f=len, p=Path("a"), q=torch.device("cpu")), holder(f=max, p=Path("b"), q=None)
    restore(new, written_and_read(capture(old)))
    assert (new.f, new.p, new.q) == (max, Path("b"), None)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"new": [object()]}, r"held\['new'\]\[0\] is a object"),
        (Colour.RED, "held is a Colour"),
        (np.str_("a"), "held is a str_"),
        (np.array(["a"]), "held is a ndarray"),
        (np.arange(3, dtype=">i4"), "held is a ndarray"),
        (np.ma.masked_array([1, 2], [False, True]), "held is a MaskedArray"),
        (Counted(1), "held is a Counted"),
    ],
)
def test_what_cannot_be_kept_is_named(value: object, name: str) -> None:
    with pytest.raises(CannotKeep, match=f"SimpleNamespace.{name}, which a checkpoint cannot keep"):
        capture(holder(held=value))


def test_what_has_no_place_yet_is_one_line() -> None:
    state = written_and_read(capture(holder(held=np.random.default_rng(0))))
    with pytest.raises(
        InputError, match="a new SimpleNamespace has nothing to restore a numpy generator into"
    ):
        restore(holder(held=None), state)


def test_bytes_are_counted_wherever_they_are_held() -> None:
    plain = replace(BATCH, head=0)
    owner = holder(a=deque([torch.ones(2)]), b=np.ones(3), c=(torch.ones(1),), d=plain)
    assert kept_bytes(owner) == 8 + 24 + 4 + (24 + 16)
