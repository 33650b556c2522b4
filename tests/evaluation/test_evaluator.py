"""The evaluator: when, on what, and what it records."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.evaluation.evaluator import Evaluator
from engram.evaluation.schedule import Schedule


class Fixed(nn.Module):
    """Answers with its input: the scores are the samples themselves."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def samples(answers: list[int], units: int = 4) -> Tensor:
    return torch.eye(units)[answers]


def test_bits_and_counts() -> None:
    watch = Evaluator(
        [(samples([0, 1, 2]), torch.tensor([0, 1, 3])), (samples([2, 3]), torch.tensor([3, 3]))]
    )
    watch(Fixed(), learning=0)
    watch(Fixed(), learning=1)
    trace = watch.trace
    assert (trace.step, trace.learning, trace.task) == ([1, 2, 2], [0, 1, 1], [0, 0, 1])
    assert (trace.correct, trace.total) == ([2, 2, 1], [3, 3, 2])
    assert trace.right(0).tolist() == [True, True, False]
    assert trace.right(2).tolist() == [False, True]
    assert watch.accuracies() == {0: pytest.approx(2 / 3), 1: 0.5}


def test_all_tasks_or_those_seen() -> None:
    sets = [(samples([0]), torch.tensor([0]))] * 3
    watch = Evaluator(sets, tasks="all")
    watch(Fixed(), learning=1)
    assert watch.trace.task == [0, 1, 2]


def test_tasks_learned_together_are_all_seen() -> None:
    watch = Evaluator([(samples([0]), torch.tensor([0]))] * 3)
    watch(Fixed(), learning=2, together=(0, 1, 2))
    assert watch.trace.task == [0, 1, 2]
    assert watch.metrics()["ACC"] == 1.0


def test_answers_are_sought_among_given_units() -> None:
    x = torch.tensor([[9.0, 0.0, 2.0, 1.0]])
    first, second = (x, torch.tensor([0])), (x, torch.tensor([2]))
    watch = Evaluator([first, second], tasks="all", units=[(0, 1), (2, 3)])
    watch(Fixed(), learning=0)
    assert watch.trace.correct == [1, 1]
    loose = Evaluator([first, second], tasks="all")
    loose(Fixed(), learning=0)
    assert loose.trace.correct == [1, 0]
    scattered = Evaluator([second], units=[(1, 2)])
    scattered(Fixed(), learning=0)
    assert scattered.trace.correct == [1]


def test_pieces_that_cross_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks need not end where tasks end."""
    draw = torch.Generator().manual_seed(0)
    sets = [(torch.randn(n, 4, generator=draw), torch.randint(4, (n,), generator=draw)) for n in (37, 50, 41)]
    answers = [(0, 1), None, (1, 3)]
    monkeypatch.setattr("engram.evaluation.passes.CHUNK_BYTES", 40 * 16)
    small = Evaluator(sets, tasks="all", units=answers, losses=True)
    small(Fixed(), learning=0)
    monkeypatch.setattr("engram.evaluation.passes.CHUNK_BYTES", 2**20)
    large = Evaluator(sets, tasks="all", units=answers, losses=True)
    large(Fixed(), learning=0)
    assert small.trace == large.trace
    assert len(small.readings) == 3


def test_subset_is_drawn_once_from_its_own_generator() -> None:
    x = torch.arange(100.0)[:, None]
    seen: list[list[float]] = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x[:, 0].tolist())
            return torch.zeros(len(x), 2)

    watch = Evaluator([(x, torch.zeros(100))], subset=10, seed=3)
    for _ in range(2):
        torch.rand(1)
        watch(Spy(), learning=0)
    assert seen[0] == seen[1] and len(set(seen[0])) == 10
    again = Evaluator([(x, torch.zeros(100))], subset=10, seed=3)
    again(Spy(), learning=0)
    assert seen[2] == seen[0]
    with pytest.warns(UserWarning, match="no correction is possible"):
        redrawn = Evaluator([(x, torch.zeros(100))], subset=10, seed=3, redraw=True)
    redrawn(Spy(), learning=0)
    redrawn(Spy(), learning=0)
    assert seen[3] != seen[4]


@pytest.mark.parametrize("subset", [None, 3, 4])
def test_all_samples_cannot_be_drawn_anew(subset: int | None) -> None:
    with pytest.raises(InputError, match="all samples are used: set subset below 3, or leave redraw out"):
        Evaluator([(samples([0, 1, 2]), torch.tensor([0, 1, 3]))], subset=subset, redraw=True)


@pytest.mark.parametrize("kind", ["tensors", "arrays", "dataset", "loader"])
def test_any_kind_of_test_set(kind: str) -> None:
    x, y = samples([0, 1, 2]), torch.tensor([0, 1, 3])
    test_sets: dict[str, object] = {
        "tensors": (x, y),
        "arrays": (x.numpy(), y.numpy()),
        "dataset": TensorDataset(x, y),
        "loader": DataLoader(TensorDataset(x, y), batch_size=2),
    }
    watch = Evaluator([test_sets[kind]])
    watch(Fixed(), learning=0)
    assert watch.trace.correct == [2]


def test_a_model_may_be_made_only_when_needed() -> None:
    calls = 0

    def make() -> nn.Module:
        nonlocal calls
        calls += 1
        return Fixed()

    watch = Evaluator([(samples([0]), torch.tensor([0]))], every=3)
    for step in range(1, 8):
        watch(make, learning=0, last=step == 7)
    assert watch.trace.step == [3, 6, 7] and calls == 3


def test_end_of_a_task_in_a_users_own_loop() -> None:
    watch = Evaluator([(samples([0]), torch.tensor([0]))], every=2)
    for _ in range(3):
        watch(Fixed(), learning=0)
    watch.end(Fixed(), learning=0)
    watch.end(Fixed(), learning=0)
    assert watch.trace.step == [2, 3]


def test_before_the_first_update() -> None:
    watch = Evaluator([(samples([0]), torch.tensor([0]))])
    watch.before(Fixed())
    watch(Fixed(), learning=0)
    assert watch.trace.step == [0, 1]


def test_full_ends_are_kept_apart() -> None:
    x, y = samples([0] * 10), torch.zeros(10)
    watch = Evaluator([(x, y)], subset=4, full_ends=True)
    watch(Fixed(), learning=0)
    watch(Fixed(), learning=0, last=True)
    assert watch.trace.total == [4, 4] and watch.ends.total == [10]
    assert watch.metrics()["ACC"] == 1.0


def test_a_routed_network_answers_each_task_by_itself() -> None:
    class Routed(nn.Module):
        def route(self, task: int) -> nn.Module:
            class One(nn.Module):
                def forward(self, x: Tensor) -> Tensor:
                    return torch.eye(4)[[task] * len(x)]

            return One()

    sets = [(samples([0] * 3), torch.full((3,), task)) for task in range(3)]
    watch = Evaluator(sets, tasks="all")
    watch(Routed(), learning=0)
    assert watch.trace.correct == [3, 3, 3]


def test_a_nan_score_is_never_right() -> None:
    watch = Evaluator([(torch.full((2, 3), torch.nan), torch.zeros(2))])
    watch(Fixed(), learning=0)
    assert watch.trace.correct == [0]


def test_per_epoch_schedule_as_in_the_code_of_de_lange_et_al() -> None:
    """A period longer than an epoch evaluates once per epoch, after its first update."""
    epoch = 5
    for period in (100, 1000):
        due = [Schedule(period, per_epoch=True).due(1, epoch_step=i % epoch) for i in range(3 * epoch)]
        assert [i for i, is_due in enumerate(due) if is_due] == [0, 5, 10]


def test_saved_files_are_plain_and_readable(tmp_path: Path) -> None:
    watch = Evaluator([(samples([0, 1]), torch.tensor([0, 0]))], losses=True)
    watch(Fixed(), learning=0)
    watch.save(tmp_path / "mine")
    frame = pl.read_parquet(tmp_path / "mine" / "trace.parquet")
    assert frame.columns == ["step", "learning", "task", "correct", "total", "bits"]
    duckdb = pytest.importorskip("duckdb")
    rows = duckdb.sql(f"select correct, total from '{tmp_path}/mine/trace.parquet'").fetchall()
    assert rows == [(1, 2)]
    again = Trace.load(tmp_path / "mine" / "trace.parquet")
    assert again == watch.trace
    assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == [
        "experiment.json",
        "probes.parquet",
        "result.json",
        "samples.parquet",
        "trace.parquet",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"test_sets": []}, "nothing to evaluate"),
        ({"test_sets": [(torch.zeros(0, 2), torch.zeros(0))]}, "is empty"),
        ({"test_sets": [(torch.zeros(2, 2), torch.zeros(3))]}, "2 inputs but 3 labels"),
        ({"test_sets": [3]}, "cannot evaluate on a int"),
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"every": 1.5}, "every must be a whole number of updates, got 1.5"),
        ({"subset": 0}, "subset must be at least 1, or None for all samples, got 0"),
        ({"tasks": "some"}, "tasks must be 'seen' or 'all', got 'some'"),
    ],
)
def test_bad_input_is_one_line(arguments: dict[str, Any], message: str) -> None:
    complete = {"test_sets": [(torch.zeros(2, 2), torch.zeros(2))], **arguments}
    with pytest.raises(InputError, match=message) as error:
        Evaluator(**complete)
    assert "\n" not in str(error.value)


def test_a_task_without_test_set_is_refused() -> None:
    watch = Evaluator([(samples([0]), torch.tensor([0]))])
    with pytest.raises(InputError, match="learning=4 has no test set"):
        watch(Fixed(), learning=4)


def test_metrics_before_any_evaluation() -> None:
    with pytest.raises(InputError, match="nothing was evaluated"):
        Evaluator([(samples([0]), torch.tensor([0]))]).metrics()


def test_trace_survives_any_length() -> None:
    draw = np.random.default_rng(0)
    trace = Trace()
    rights = [draw.random(n) < 0.5 for n in (1, 7, 8, 9, 1000)]
    for right in rights:
        trace.add(step=1, learning=0, task=0, right=right)
    for row, right in enumerate(rights):
        assert np.array_equal(trace.right(row), right)


def one_task_after_another(watch: Evaluator, *, last: bool = False, end: bool = False) -> None:
    for task in (0, 1):
        for update in range(5):
            watch(Fixed(), learning=task, last=last and update == 4)
        if end:
            watch.end(Fixed(), learning=task)


def test_a_task_end_that_was_not_evaluated_is_noticed(tmp_path: Path) -> None:
    """Task 0 ends at update 5, and its row of the matrix is that of update 4."""
    watch = Evaluator([(samples([0]), torch.tensor([0]))] * 2, every=2)
    with pytest.warns(
        UserWarning, match="the last update of task 0 was not evaluated: ACC, FORG .* last=True"
    ):
        one_task_after_another(watch)
    assert watch.stale == (0,)
    with pytest.warns(UserWarning, match="the last update of task 0 was not evaluated"):
        watch.metrics()
    with pytest.warns(UserWarning, match="the last update of task 0 was not evaluated"):
        run = watch.save(tmp_path / "stale")
    assert "the last update of task 0 was not evaluated" in run.why["ACC"]
    assert (
        "the last update of task 0 was not evaluated"
        in run.report(tmp_path / "page.html").read_text().lower()
    )


def test_the_end_of_the_last_task_is_noticed_as_well() -> None:
    watch = Evaluator([(samples([0]), torch.tensor([0]))], every=2)
    for _ in range(3):
        watch(Fixed(), learning=0)
    with pytest.warns(UserWarning, match="the last update of task 0 was not evaluated"):
        watch.metrics()


@pytest.mark.parametrize("way", ["last", "end", "every", "full_ends"])
def test_task_ends_that_were_evaluated_are_not_complained_about(way: str, tmp_path: Path) -> None:
    sets = [(samples([0]), torch.tensor([0]))] * 2
    watch = Evaluator(sets, every=1 if way == "every" else 2, full_ends=way == "full_ends")
    one_task_after_another(watch, last=way in ("last", "full_ends"), end=way == "end")
    watch.metrics()
    assert "ACC" not in watch.save(tmp_path / "run").why and watch.stale == ()
    again = Evaluator(sets)
    again.load_state_dict(watch.state_dict())
    assert again.updated == watch.updated == {0: 5, 1: 10}


def test_ends_that_per_epoch_passes_over_are_recorded(tmp_path: Path) -> None:
    watch = Evaluator([(samples([0]), torch.tensor([0]))], every=2, per_epoch=True)
    for update in range(2):
        watch(Fixed(), learning=0, epoch_step=update, last=update == 1)
    assert "set full_ends=True" in watch.save(tmp_path / "run").why["ACC"]


def test_a_slice_that_is_never_learned_and_falls_is_noticed(tmp_path: Path) -> None:
    """Two checkpoints as tasks 0 and 1, evaluated on four slices; the third falls from .96 to .008."""

    class Version(nn.Module):
        def __init__(self, errors: int) -> None:
            super().__init__()
            self.errors = errors

        def forward(self, x: Tensor) -> Tensor:
            wrong = (x[:, 0] == 2) & (x[:, 1] < self.errors)
            return functional.one_hot(wrong.long(), 2).float()

    rows = torch.arange(125.0)
    sets = [(torch.stack([torch.full_like(rows, s), rows], 1), torch.zeros(125)) for s in range(4)]
    watch = Evaluator(sets, tasks="all")
    watch(Version(5), learning=0)
    watch(Version(124), learning=1)
    metrics = watch.metrics()
    assert (metrics["ACC"], metrics["FORG"]) == (1.0, 0.0)
    assert metrics["FORG-unlearned"] == pytest.approx((0.96 - 0.008) / 2)
    run = watch.save(tmp_path / "slices")
    assert "task 2 fell from 96.0 % to 0.8 %" in run.why["FORG"]
    assert "task 2 fell from 96.0 % to 0.8 %" in run.report(tmp_path / "page.html").read_text()
