"""Every check of the contract fails for a method that breaks it."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.core.values import Batch, TaskInfo
from engram.methods import METHODS
from engram.methods.base import Learner, Terms
from engram.methods.state import State
from engram.testing import CHECKS, Check, check_isolation, check_method


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
    """Learns differently when it is evaluated."""

    def setup(self) -> None:
        self.evaluations = 0

    def loss(self, batch: Batch) -> Terms:
        terms = super().loss(batch)
        return terms._replace(new=terms.new * (1 + self.evaluations))

    def predictor(self) -> nn.Module:
        self.evaluations += 1
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


@dataclass(kw_only=True, eq=False)
class Secretive(Learner):
    """Holds older weights, and says that it holds nothing."""

    def setup(self) -> None:
        self.older: list[Tensor] = []

    def end_task(self, batches: Iterable[Batch]) -> None:
        self.older = [p.detach().clone() for p in self.network.parameters()]

    def kept_bytes(self) -> int:
        return 0


@dataclass(kw_only=True, eq=False)
class Shared(Learner):
    """Keeps samples where every other one of its kind finds them."""

    shown: ClassVar[list[Batch]] = []

    def after_step(self, batch: Batch) -> None:
        self.shown.append(batch)

    def kept_bytes(self) -> int:
        return sum(batch.x.nbytes + batch.y.nbytes for batch in self.shown)


@dataclass(kw_only=True, eq=False)
class Patient(Learner):
    """Stores data when a task ends, and does not say that it must be told."""

    needs: ClassVar[tuple[str, ...]] = ("stored data",)

    def setup(self) -> None:
        self.kept: list[Batch] = []

    def end_task(self, batches: Iterable[Batch]) -> None:
        self.kept += batches


@dataclass(kw_only=True, eq=False)
class Spread(Learner):
    """Divides by one less than the number of samples."""

    def setup(self) -> None:
        self.scale = 1.0

    def loss(self, batch: Batch) -> Terms:
        terms = super().loss(batch)
        return terms._replace(new=terms.new * self.scale)

    def end_task(self, batches: Iterable[Batch]) -> None:
        x = torch.cat([batch.x for batch in batches])
        away = (x - x.mean(dim=0)).square().mean()
        self.scale = float(away / torch.tensor(len(x) - 1))


@dataclass(kw_only=True, eq=False)
class Numb(Learner):
    """Loses the statistics of batch norm when it is resumed."""

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        for part in self.network.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.reset_running_stats()


@dataclass(kw_only=True, eq=False)
class Thawing(Learner):
    """Changes weights that do not learn."""

    def after_step(self, batch: Batch) -> None:
        with torch.no_grad():
            for weight in self.network.parameters():
                weight.mul_(0.999)


@dataclass(kw_only=True, eq=False)
class Everywhere(Learner):
    """Differentiates with respect to all weights, also those that do not learn."""

    def edit_gradients(self, batch: Batch) -> None:
        loss = super().loss(batch).total()
        torch.autograd.grad(loss, list(self.network.parameters()), allow_unused=True)


@pytest.fixture
def registered() -> Iterator[None]:
    for kind in (
        Thawing,
        Everywhere,
        Nosy,
        Forgetful,
        Odd,
        Watched,
        Idle,
        Boastful,
        Secretive,
        Shared,
        Patient,
        Spread,
        Numb,
    ):
        METHODS.add(f"test-{kind.__name__.lower()}", kind)
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
        ("test-secretive", "accounts"),
        ("test-shared", "accounts"),
        ("test-patient", "hidden-boundaries"),
        ("test-thawing", "frozen"),
        ("test-everywhere", "frozen"),
        ("test-spread", "single-sample"),
        ("test-numb", "resume-batch-norm"),
    ],
)
@pytest.mark.usefixtures("registered")
def test_a_broken_method_fails_its_check(method: str, check: str) -> None:
    CHECKS["settings"](method)
    with pytest.raises(AssertionError):
        CHECKS[check](method)


@pytest.mark.slow
def test_the_report_says_what_was_compared() -> None:
    report = check_method("finetune")
    assert [check.name for check in report.checks] == list(CHECKS)
    assert all(isinstance(check, Check) and check.compared for check in report.checks)
    lines = str(report).splitlines()
    assert lines[0] == f"finetune passed {len(CHECKS)} checks"
    assert "with and without evaluation: equal bits (class, domain, task)" in str(report)
    assert repr(report) == str(report)


def test_the_report_says_what_was_not_checked() -> None:
    assert CHECKS["hidden-boundaries"]("ewc").compared == "nothing: it needs boundaries"
    assert CHECKS["identity-hidden"]("packnet").compared == "nothing: it needs task identity"


class RunningMax(nn.Module):
    """Divides by a running sum of maxima, which it also updates in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.best = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        self.best = 0.9 * self.best + x.detach().max()
        return x / (1 + self.best)


class Counted(nn.Module):
    """Counts its forward passes where nobody can reset the count."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.numbers = itertools.count(1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x) / next(self.numbers)
        return scores


BATCH = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])


def test_isolation_of_a_network_that_behaves() -> None:
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 3))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    for batch in (BATCH, BATCH[0]):
        report = check_isolation(network, batch)
        assert report.changes == () and len(str(report).splitlines()) == 1
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_isolation_of_a_network_that_changes_itself() -> None:
    report = check_isolation(nn.Sequential(nn.Linear(4, 3), RunningMax()), BATCH)
    assert [(change.path, change.kind, change.part) for change in report.changes] == [
        ("1", "RunningMax", "best")
    ]
    assert str(report).splitlines()[1] == "  1 (RunningMax)  best"


def test_isolation_of_a_network_whose_copies_share_what_they_change() -> None:
    """Two copies of a network have one class, and the functions in its attributes once."""

    class Calls(nn.Module):
        calls = 0

        def __init__(self) -> None:
            super().__init__()
            seen: list[int] = []

            def note() -> int:
                seen.append(1)
                return len(seen)

            self.note = note

        def forward(self, x: Tensor) -> Tensor:
            type(self).calls += 1
            return x / (self.calls + self.note())

    report = check_isolation(nn.Sequential(nn.Linear(4, 3), Calls()), BATCH)
    assert [change.part for change in report.changes] == ["calls", "note"]
    assert Calls.calls == 0


def test_isolation_that_cannot_be_had() -> None:
    with pytest.raises(AssertionError, match=r"Counted changes itself in evaluation, and its numbers cannot"):
        check_isolation(Counted, BATCH)


def test_isolation_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an evaluation changed a network after all, the check would say what."""
    monkeypatch.setattr("engram.evaluation.snapshot.Snapshot.restore", lambda _: [])
    with pytest.raises(AssertionError, match=r"Sequential: evaluation changed the loss of update 1"):
        check_isolation(nn.Sequential(nn.Linear(4, 3), RunningMax()), BATCH)


def test_isolation_of_a_network_that_cannot_be_copied() -> None:
    network = nn.Linear(4, 3)
    vars(network)["last"] = network(BATCH[0])
    with pytest.raises(InputError, match="Linear cannot be copied: give a function that makes it"):
        check_isolation(network, BATCH)
