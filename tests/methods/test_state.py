"""What a method holds comes back to the bit, or is named."""

import io
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tests.methods.toy import same_after_resuming
from torch import nn

from engram.core.errors import InputError
from engram.core.values import Batch
from engram.methods.base import Learner, Terms
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


def restored(old: SimpleNamespace, fresh: SimpleNamespace) -> SimpleNamespace:
    restore(fresh, written_and_read(capture(old)))
    return fresh


def test_an_object_with_several_names_stays_one() -> None:
    everything: list[object] = [1]
    rows, numbers = torch.zeros(2), np.zeros(2)
    old = holder(
        all=everything, kinds={"all": everything}, rows=rows, queue=deque([rows]), a=numbers, b=[numbers]
    )
    fresh = restored(old, holder())
    assert fresh.kinds["all"] is fresh.all
    assert fresh.queue[0] is fresh.rows
    assert fresh.b[0] is fresh.a


def test_functions_with_several_names_stay_those_of_the_new_object() -> None:
    fresh = restored(holder(f=len, g=len), holder(f=max, g=min))
    assert (fresh.f, fresh.g) == (max, min)


@pytest.mark.parametrize(
    "part",
    [
        lambda memory: memory[2:],
        lambda memory: memory[:, 1],
        lambda memory: memory.T,
        lambda memory: memory.view(-1)[3:7],
        lambda memory: memory.detach(),
    ],
)
def test_tensors_that_share_memory_still_do(part: Callable[[torch.Tensor], torch.Tensor]) -> None:
    memory = torch.arange(20.0).reshape(10, 2)[1:7]
    old = holder(part=part(memory), memory=memory)
    fresh = restored(old, holder())
    assert torch.equal(fresh.memory, memory) and torch.equal(fresh.part, old.part)
    for one in (old, fresh):
        one.memory += 1
        one.part *= 2
    assert torch.equal(fresh.memory, memory) and torch.equal(fresh.part, old.part)


@pytest.mark.parametrize(
    "part",
    [
        lambda rows: rows[2:],
        lambda rows: rows[:, 1],
        lambda rows: rows.T,
        lambda rows: torch.from_numpy(rows[1:]),
    ],
)
def test_arrays_that_share_memory_still_do(part: Callable[[np.ndarray], object]) -> None:
    rows = np.arange(20.0).reshape(10, 2)[1:7]
    old = holder(part=part(rows), rows=rows, other=np.broadcast_to(np.ones(1), 3))
    fresh = restored(old, holder())
    assert type(fresh.part) is type(old.part) and repr(fresh.part) == repr(old.part)
    for one in (old, fresh):
        one.rows += 1
        one.part *= 2
    assert repr(fresh.rows) == repr(old.rows) and repr(fresh.part) == repr(old.part)
    assert fresh.other.tolist() == [1, 1, 1]


class Normed(nn.Module):
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(3))


WEIGHTS: dict[str, Callable[[Normed], torch.Tensor]] = {
    "weight": lambda network: network.linear.weight,
    "buffer": lambda network: network.mean,
    "detached weight": lambda network: network.linear.weight.detach(),
    "row": lambda network: network.linear.weight.data[1],
    "transposed": lambda network: network.linear.weight.data.T,
    "part of a buffer": lambda network: network.mean[1:],
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_the_network_and_views_of_them_stay_its_own(name: str) -> None:
    """Also where a new method takes them later, at the beginning of a task, or has another one so far."""
    network = Normed()
    old = holder(held=[WEIGHTS[name](network)], network=network)
    for new in (holder(network=Normed()), holder(held=[torch.zeros(4)], network=Normed())):
        fresh = restored(old, new)
        part = fresh.held[0]
        assert torch.equal(part, old.held[0]) and part.requires_grad == old.held[0].requires_grad
        with torch.no_grad():
            part.fill_(7)
        assert torch.equal(part, WEIGHTS[name](fresh.network))


def test_a_network_that_lies_in_one_tensor_still_does() -> None:
    def flat(spare: int) -> SimpleNamespace:
        network = nn.Linear(4, 3)
        memory = torch.arange(15.0 + spare)
        network.weight.data, network.bias.data = memory[:12].view(3, 4), memory[12:15]
        return holder(memory=memory, network=network, spare=memory[15:])

    old, fresh = flat(0), flat(0)
    old.memory.mul_(2)
    restored(old, fresh).memory.add_(1)
    assert fresh.network.bias.tolist() == [25, 27, 29]
    with pytest.raises(CannotKeep, match=r"memory and SimpleNamespace.network.weight share memory"):
        capture(flat(2))
    with pytest.raises(InputError, match="weight of the network of a new SimpleNamespace is not as it was"):
        restore(holder(network=nn.Linear(4, 3)), capture(old))


def test_a_tensor_that_learns_stays_the_one_that_an_optimiser_holds() -> None:
    def learner() -> SimpleNamespace:
        prompt = torch.zeros(2, requires_grad=True)
        return holder(prompt=prompt, second=torch.optim.SGD([prompt], lr=1.0))

    def learn(one: SimpleNamespace) -> list[float]:
        one.prompt.sum().backward()
        one.second.step()
        values: list[float] = one.prompt.tolist()
        return values

    old = learner()
    learn(old)
    fresh = restored(old, learner())
    old.second.zero_grad()
    assert learn(fresh) == learn(old) == [-2, -2]


def test_restoring_changes_no_state() -> None:
    memory = torch.zeros(4)
    state = capture(holder(memory=memory, first=memory[:2]))
    first, second = holder(), holder()
    restore(first, state)
    first.memory.fill_(7)
    restore(second, state)
    assert first.first.tolist() == [7, 7] and second.first.tolist() == [0, 0]


def test_parts_of_a_tensor_that_do_not_overlap_are_stored_alone() -> None:
    everything = torch.zeros(100_000, 2)
    file = io.BytesIO()
    torch.save(capture(holder(a=everything[0], b=everything[1], c=everything[-1])), file)
    assert file.tell() < 10_000


def test_states_of_before_are_restored() -> None:
    """They have a state of its own for each name."""
    tensor = {"kind": "tensor", "value": torch.ones(2), "grad": False, "parameter": False}
    series = {"kind": "list", "value": [{"kind": "plain", "value": 1}]}
    fresh = holder()
    restore(fresh, written_and_read({"a": tensor, "b": dict(tensor), "c": series, "d": {**series}}))
    assert (fresh.a.tolist(), fresh.b.tolist(), fresh.c, fresh.d) == ([1, 1], [1, 1], [1], [1])
    assert fresh.a is not fresh.b and fresh.c is not fresh.d


PARAMETER = torch.nn.Parameter(torch.zeros(4))
ARRAY = np.zeros(4)


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        (ARRAY, ARRAY[::-1]),
        (ARRAY, ARRAY.view(np.int32)),
        (PARAMETER.data.view_as(PARAMETER), PARAMETER.data.view(torch.int32)),
        (PARAMETER, PARAMETER.detach()[1:]),
    ],
)
def test_memory_that_cannot_be_shared_again_is_named(whole: object, part: object) -> None:
    names = r"SimpleNamespace\.(whole|part)"
    with pytest.raises(CannotKeep, match=rf"{names} and {names} share memory, .*: hold a copy"):
        capture(holder(whole=whole, part=part))


def test_what_contains_itself_is_named() -> None:
    loop: list[object] = []
    loop.append({"up": loop})
    with pytest.raises(CannotKeep, match=r"SimpleNamespace.held\[0\]\['up'\] contains itself"):
        capture(holder(held=loop))


@dataclass(kw_only=True, eq=False)
class Sharing(Learner):
    """It pulls outputs towards the first rows of a memory, by as much as a list is long."""

    def setup(self) -> None:
        self.memory = torch.zeros(8, 6)
        self.first = self.memory[:4]
        self.all: list[int] = []
        self.by_kind = {"all": self.all}

    def loss(self, batch: Batch) -> Terms:
        away = self.network(batch.x).mean(dim=0) - self.first.mean(dim=0)
        return super().loss(batch).plus(0.01 * len(self.by_kind["all"]) * away.square().sum())

    def after_step(self, batch: Batch) -> None:
        self.memory[self.step_in_task % 8] = batch.y.float().mean()
        self.all.append(1)


def test_a_method_that_shares_resumes_with_the_same_bits() -> None:
    assert same_after_resuming(Sharing)


def test_memory_counts_once_and_the_network_not_at_all() -> None:
    memory, numbers, network = torch.zeros(100, 64), np.zeros((10, 4)), nn.Linear(4, 2)
    views = holder(memory=memory, recent=memory[:50], rows=numbers[2:], row=numbers[2], whole=numbers)
    assert kept_bytes(views) == 100 * 64 * 4 + 10 * 4 * 8
    assert kept_bytes(holder(recent=memory[:50], numbers=numbers[2:])) == 50 * 64 * 4 + 8 * 4 * 8
    assert kept_bytes(holder(sparse=torch.eye(4).to_sparse())) == 4 * 4 * 4
    learner = holder(network=network, trained=list(network.parameters()), bias=network.bias.detach())
    assert kept_bytes(learner) == 0
    assert kept_bytes(learner, beside=()) == (4 * 2 + 2) * 4
    # An optimiser of the method's own has averages of its own.
    learner.second = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    network(torch.ones(1, 4)).sum().backward()
    learner.second.step()
    assert kept_bytes(learner) == (4 * 2 + 2) * 4
