"""What a method holds comes back to the bit, or is named."""

import io
import random
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engram.core.values import Batch
from engram.methods.state import CannotKeep, capture, kept_bytes, restore


@dataclass(frozen=True)
class Pair:
    left: torch.Tensor
    right: int


def written_and_read(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    found: dict[str, Any] = torch.load(file, weights_only=True)
    return found


def holder(**attributes: Any) -> SimpleNamespace:
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
    ],
)
def test_what_is_held_comes_back(value: Any, new: Any) -> None:
    old, fresh = holder(held=value), holder(held=new)
    restore(fresh, written_and_read(capture(old)))
    assert type(fresh.held) is type(value)
    assert repr(fresh.held) == repr(value)
    if isinstance(value, deque):
        assert fresh.held.maxlen == value.maxlen


def test_generators_go_on() -> None:
    def made() -> SimpleNamespace:
        return holder(a=np.random.default_rng(1), b=random.Random(1), c=torch.Generator().manual_seed(1))

    def drawn(of: SimpleNamespace) -> tuple[float, float, float]:
        return of.a.random(), of.b.random(), float(torch.rand((), generator=of.c))

    first, second = made(), made()
    drawn(first)
    restore(second, written_and_read(capture(first)))
    assert drawn(first) == drawn(second)


def test_functions_and_paths_are_configuration() -> None:
    old, new = holder(f=len, p=Path("a")), holder(f=max, p=Path("b"))
    restore(new, written_and_read(capture(old)))
    assert (new.f, new.p) == (max, Path("b"))


def test_what_cannot_be_kept_is_named() -> None:
    owner = holder(memory={"new": [object()]})
    with pytest.raises(CannotKeep, match=r"SimpleNamespace.memory\['new'\]\[0\] is a object, which"):
        capture(owner)


def test_bytes_are_counted_wherever_they_are_held() -> None:
    plain = replace(BATCH, head=0)
    owner = holder(a=deque([torch.ones(2)]), b=np.ones(3), c=(torch.ones(1),), d=plain)
    assert kept_bytes(owner) == 8 + 24 + 4 + (24 + 16)
