"""The contract can be broken: each check finds out a method that breaks it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
from torch import nn

from engram.core.values import Batch, TaskInfo
from engram.methods import METHODS
from engram.methods.base import Learner, Terms
from engram.testing import CHECKS


@dataclass(kw_only=True, eq=False)
class Nosy(Learner):
    """Reads the identity of tasks where it is hidden."""

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        self.known = task.identity


@dataclass(kw_only=True, eq=False)
class Forgetful(Learner):
    """Holds state where saving does not look."""

    def setup(self) -> None:
        self.hidden: Callable[[], int] = lambda: 1

    def loss(self, batch: Batch) -> Terms:
        terms = super().loss(batch)
        return terms._replace(new=terms.new * self.hidden())

    def end_task(self, batches: Iterable[Batch]) -> None:
        self.hidden = lambda: 3


@dataclass(kw_only=True, eq=False)
class Odd(Learner):
    """Holds what no checkpoint can keep."""

    def setup(self) -> None:
        self.odd = object()


@dataclass(kw_only=True, eq=False)
class Watched(Learner):
    """Learns differently when it is asked for its answers."""

    def setup(self) -> None:
        self.asked = 0

    def loss(self, batch: Batch) -> Terms:
        terms = super().loss(batch)
        return terms._replace(new=terms.new * (1 + self.asked))

    def predictor(self) -> nn.Module:
        self.asked += 1
        return self.network


@dataclass(kw_only=True, eq=False)
class Idle(Learner):
    """Learns nothing."""

    def edit_gradients(self, batch: Batch) -> None:
        for parameter in self.network.parameters():
            parameter.grad = None


@dataclass(kw_only=True, eq=False)
class Boastful(Learner):
    """Says that it stores data, and stores none."""

    needs: ClassVar[tuple[str, ...]] = ("stored data",)


@pytest.fixture
def registered() -> Iterator[None]:
    for made in (Nosy, Forgetful, Odd, Watched, Idle, Boastful):
        METHODS.add(f"test-{made.__name__.lower()}", made)
    yield


@pytest.mark.parametrize(
    ("method", "check"),
    [
        ("test-nosy", "identity-hidden"),
        ("test-forgetful", "resume"),
        ("test-odd", "resume"),
        ("test-watched", "watching"),
        ("test-idle", "learns"),
        ("test-boastful", "accounts"),
    ],
)
@pytest.mark.usefixtures("registered")
def test_a_broken_method_is_found_out(method: str, check: str) -> None:
    CHECKS["settings"](method)
    with pytest.raises(AssertionError):
        CHECKS[check](method)
