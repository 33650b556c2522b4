"""Rows in a shuffled order: what is recorded is the same, and the place of a row does not tell its task."""

import pytest
import torch
from torch import Tensor, nn

from engram.evaluation.evaluator import Evaluator
from engram.evaluation.samples import EvaluationSet, TensorSet

# Outside of the network: what it kept itself would be restored after an evaluation.
ASKED: list[Tensor] = []


class Streamed(TensorSet):
    """Samples that are read piece by piece."""

    in_memory = False


class Listening(nn.Module):
    """Answers the class that is hidden in the first value, and notes the rows that it is asked about."""

    def forward(self, x: Tensor) -> Tensor:
        ASKED.append(x.clone())
        return nn.functional.one_hot(x[:, 0].long(), 6).float()


class Routed(nn.Module):
    """A network per task; that of task t is right for it alone."""

    def route(self, task: int) -> nn.Module:
        return _Always(task)

    def forward(self, x: Tensor) -> Tensor:
        raise AssertionError("every task has its own network")


class _Always(nn.Module):
    def __init__(self, task: int) -> None:
        super().__init__()
        self.task = task

    def forward(self, x: Tensor) -> Tensor:
        right = (x[:, 1] == self.task).long()
        return nn.functional.one_hot(x[:, 0].long() * right, 6).float()


def sets(kind: type[TensorSet] = TensorSet) -> list[EvaluationSet]:
    """Three tasks with two classes each; every fourth answer is wrong. The second value is the task."""
    generator = torch.Generator().manual_seed(0)
    made: list[EvaluationSet] = []
    for task in range(3):
        y = torch.randint(2, (40 + 7 * task,), generator=generator) + 2 * task
        hidden = torch.where(torch.rand(len(y), generator=generator) < 0.25, 5 - y, y)
        made.append(kind(torch.stack([hidden, torch.full_like(y, task)], dim=1).float(), y))
    return made


@pytest.mark.parametrize("kind", [TensorSet, Streamed])
@pytest.mark.parametrize("subset", [None, 13])
@pytest.mark.parametrize("answers", [None, [(0, 1), (2, 3), (4, 5)]])
@pytest.mark.parametrize("model", [Listening, Routed])
def test_what_is_recorded_is_the_same(
    kind: type[TensorSet],
    subset: int | None,
    answers: list[tuple[int, int]] | None,
    model: type[nn.Module],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engram.evaluation.passes.CHUNK_BYTES", 1)  # several chunks
    recorded = []
    for shuffle in (False, True):
        watch = Evaluator(
            sets(kind), subset=subset, units=answers, losses=True, full_ends=True, seed=3, shuffle=shuffle
        )
        for task in range(3):
            watch(model(), learning=task, last=True)
        recorded.append((watch.trace, watch.ends, watch.readings, watch.index))
    (trace, ends, readings, index), (other, other_ends, other_readings, other_index) = recorded
    assert (trace, ends) == (other, other_ends)
    assert readings == other_readings
    # The subsets are drawn as before.
    assert all(torch.equal(some, same) for some, same in zip(index, other_index, strict=True))
    assert 0 < sum(trace.correct) < sum(trace.total)


@pytest.mark.parametrize("kind", [TensorSet, Streamed])
def test_the_place_of_a_row_does_not_tell_its_task(kind: type[TensorSet]) -> None:
    def asked(*, seed: int, shuffle: bool) -> Tensor:
        ASKED.clear()
        Evaluator(sets(kind), tasks="all", seed=seed, shuffle=shuffle)(Listening(), learning=0)
        return torch.cat(ASKED)[:, 1]

    in_order, mixed = asked(seed=1, shuffle=False), asked(seed=1, shuffle=True)
    assert torch.equal(in_order, in_order.sort().values)
    assert torch.equal(mixed.sort().values, in_order)
    assert torch.equal(mixed, asked(seed=1, shuffle=True))
    assert not torch.equal(mixed, asked(seed=2, shuffle=True))
    # By place, a task would be guessed right for a third of the rows.
    assert (mixed == in_order).float().mean() < 0.5


def test_rows_are_gathered_once() -> None:
    reads: list[int] = []

    class Counted(TensorSet):
        def rows(self, index: Tensor) -> Tensor:
            reads.append(len(index))
            return super().rows(index)

    watch = Evaluator([Counted(torch.zeros(9, 2), torch.zeros(9))], shuffle=True)
    for _ in range(5):
        watch(Listening(), learning=0)
    assert reads == [9]


def test_by_default_rows_are_in_order() -> None:
    assert Evaluator(sets()).asker.shuffle is None
