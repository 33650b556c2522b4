"""Evaluation in half precision: the same bits, and errors that are noticed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import engram
from engram import Evaluator
from engram.core.errors import InputError
from engram.evaluation import checked, passes
from engram.evaluation.checked import Checked
from engram.evaluation.dense import Dense
from engram.evaluation.doubt import BLOCK, FACTOR, Margins, margins_of, settle
from engram.evaluation.guard import SelfChange
from engram.evaluation.half import HalfScorer, half_scorer
from engram.evaluation.integers import Lattice
from engram.record.half_checked import HalfChecked
from engram.record.run import Run

SAMPLES, CLASSES = 400, 10
Pair = tuple[Tensor, Tensor]


def tasks_of(*shape: int, classes: int = CLASSES) -> list[Pair]:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, *shape, generator=generator)
    labels = [torch.randint(classes, (SAMPLES,), generator=generator) for _ in range(2)]
    return [(centres[y] + 2 * torch.randn(SAMPLES, *shape, generator=generator), y) for y in labels]


def perceptron(inputs: int = 64, outputs: int = CLASSES) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, outputs)
    )


def convolutional() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 16, CLASSES),
    )


def residual() -> nn.Module:
    return engram.models.build(
        engram.models.ModelSpec("slim-resnet18"), shape=(3, 16, 16), n_units=CLASSES, seed=0
    )


def learn(
    network: nn.Module, tasks: list[Pair], evaluators: list[Evaluator], *, updates: int = 6, lr: float = 0.05
) -> None:
    """SGD on the test samples themselves, evaluated after every update by all evaluators."""
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9)
    for task, (x, y) in enumerate(tasks):
        for update in range(updates):
            rows = slice(64 * update, 64 * (update + 1))
            optimizer.zero_grad()
            nn.functional.cross_entropy(network.train()(x[rows]), y[rows]).backward()
            optimizer.step()
            for evaluator in evaluators:
                evaluator(network, learning=task)


def both(test_sets: list[Pair], **options: Any) -> tuple[Evaluator, Evaluator]:
    """One in full and one in half precision; both evaluate all tasks."""
    options["tasks"] = "all"
    return Evaluator(test_sets, **options), Evaluator(test_sets, precision="half-checked", **options)


def record_of(evaluator: Evaluator) -> HalfChecked:
    assert evaluator.precision_record is not None
    return evaluator.precision_record


@pytest.mark.parametrize(
    ("make", "shape", "updates", "lr"),
    [
        (perceptron, (64,), 6, 0.05),
        (perceptron, (64,), 6, 1.0),
        (convolutional, (1, 8, 8), 6, 0.05),
        pytest.param(residual, (3, 16, 16), 2, 0.1, marks=pytest.mark.slow),
    ],
    ids=["dense", "wild", "batch norm", "residual"],
)
def test_the_bits_are_those_of_full_precision(
    make: Callable[[], nn.Module], shape: tuple[int, ...], updates: int, lr: float
) -> None:
    tasks = tasks_of(*shape)
    full, half = both(tasks)
    learn(make(), tasks, [full, half], updates=updates, lr=lr)
    assert half.trace == full.trace
    record = record_of(half)
    # The wild one leaves too many answers in doubt once or twice.
    assert record.evaluations == 2 * updates or (lr == 1.0 and record.evaluations > updates)
    assert record.answers == record.evaluations * 2 * SAMPLES
    assert record.compared == 2 and record.wrong == 0
    assert 0 < record.asked_again < record.answers / 2


@pytest.mark.parametrize(
    "options",
    [
        {"units": [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]},
        {"units": [(0, 2, 5), None]},
        {"shuffle": True},
        {"shuffle": True, "units": [(0, 1, 2, 3, 4), (1, 3, 7)]},
        {"subset": 300},
        {"subset": 300, "full_ends": True},
    ],
    ids=str,
)
def test_units_order_and_subsets(options: dict[str, Any]) -> None:
    tasks = tasks_of(64)
    full, half = both(tasks, **options)
    learn(perceptron(), tasks, [full, half])
    assert half.trace == full.trace and half.ends == full.ends
    assert record_of(half).evaluations == 12 and record_of(half).wrong == 0


@pytest.mark.parametrize("method", ["er", "ewc", "gem"])
def test_runs_are_the_same_but_for_the_record(method: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"updates": 5, "evaluation": {"tasks": "all"}}
    plain = engram.run("split-digits", method, **options)
    run = engram.run("split-digits", method, precision="half-checked", out=tmp_path, **options)
    assert run.id == plain.id and run.trace == plain.trace
    assert run.metrics == pytest.approx(plain.metrics, nan_ok=True, rel=0, abs=0)
    assert plain.precision is None
    assert run.precision is not None and run.precision.evaluations > 20 and run.precision.wrong == 0
    assert Run.load(tmp_path / run.id).precision == run.precision


class Worse:
    """Half precision as it is, but for something that is done to the scores."""

    def __init__(self, spoil: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.spoil = spoil

    def __call__(
        self, network: nn.Module, layers: list[Dense] | None = None, lattice: Lattice | None = None
    ) -> HalfScorer:
        ask = half_scorer(network, layers, lattice)
        return HalfScorer(lambda x: self.spoil(x, ask.scores(x)))


def test_a_wrong_answer_is_counted_and_widens_the_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tasks_of(64)
    learn(network := perceptron(), tasks, [])
    x, y = (torch.cat(parts) for parts in zip(*tasks, strict=True))
    with torch.no_grad():
        clear = margins_of(network.eval()(x), y).margin
    # A clear answer that is not among the samples asked in both precisions.
    drawn = torch.Generator().manual_seed(0)
    for _ in range(8):
        clear[torch.randint(len(y), (BLOCK,), generator=drawn)] = 0
    mark = x[clear.argmax(), 0]

    def spoil(x: Tensor, scores: Tensor) -> Tensor:
        return torch.where((x[:, :1] == mark), -scores, scores)

    monkeypatch.setattr(passes, "half_scorer", Worse(spoil))
    full, half = both(tasks)
    for evaluator in (full, half):
        evaluator(network, learning=0)
    record = record_of(half)
    assert (record.wrong, record.compared, record.factor) == (1, 1, 2 * FACTOR)
    assert "1 of 800 answers differed (safety factor 8)" in str(record)
    # What is recorded is full precision.
    assert half.trace == full.trace


def test_a_worse_half_precision_is_noticed_by_the_samples_asked_in_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spoil(x: Tensor, scores: Tensor) -> Tensor:
        return scores + 0.003 * scores.abs().amax() * torch.sin(1e4 * scores)

    tasks = tasks_of(64)
    full, half = both(tasks)
    learn(perceptron(), tasks, [full, half])
    monkeypatch.setattr(passes, "half_scorer", Worse(spoil))
    full, worse = both(tasks)
    learn(perceptron(), tasks, [full, worse])
    assert worse.trace == full.trace and record_of(worse).wrong == 0
    before, now = (record.asked_again / record.answers for record in map(record_of, (half, worse)))
    assert now > 1.2 * before


def test_hopeless_half_precision_is_given_up_until_the_next_task(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def spoil(x: Tensor, scores: Tensor) -> Tensor:
        calls.append(len(x))
        return torch.sin(1e4 * scores)

    monkeypatch.setattr(passes, "half_scorer", Worse(spoil))
    tasks = tasks_of(64)
    full, half = both(tasks)
    learn(perceptron(), tasks, [full, half])
    assert half.trace == full.trace
    assert record_of(half).evaluations == 0 and record_of(half).why == "too many answers were in doubt"
    assert len(calls) == 2 * checked.PATIENCE


# Full precision where half precision is impossible or not worth it ------------------------------------


class Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.networks = nn.ModuleList([perceptron(), perceptron()])

    def route(self, task: int) -> nn.Module:
        return self.networks[task]


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = perceptron(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        scores: Tensor = self.inner(x)
        return scores


class OnlyFloat(nn.Module):
    """A network that refuses anything but 32 bits, as code with buffers and custom kernels may."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if hidden.dtype is not torch.float32:
            raise RuntimeError("expected 32 bits")
        scores: Tensor = self.last(hidden.relu())
        return scores


def hooked() -> nn.Module:
    network = perceptron()
    network.get_submodule("0").register_forward_hook(lambda *_: None)
    return network


class Dependent(nn.Module):
    """A network whose answers depend, a little, on the other samples of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.inner(x)
        return scores + 0.01 * scores.abs().mean() * torch.sin(1e3 * x.mean() * torch.arange(CLASSES))


@pytest.mark.parametrize(
    ("make", "options", "reason"),
    [
        (perceptron, {"losses": True}, "losses or answers"),
        (perceptron, {"answers": True}, "losses or answers"),
        (perceptron, {"autocast": torch.bfloat16}, "autocast is in force"),
        (perceptron, {"subset": 60}, "fewer than 128 samples"),
        (perceptron, {"forward": lambda network, batch: network(batch[0])}, "in batches or by own"),
        (Routed, {}, "a network of its own"),
        (hooked, {}, "hooks"),
        (OnlyFloat, {}, "cannot be asked in half precision (expected 32 bits)"),
    ],
    ids=["losses", "answers", "autocast", "few", "forward", "routed", "hooked", "only float"],
)
def test_full_precision_with_a_reason(
    make: Callable[[], nn.Module], options: dict[str, Any], reason: str
) -> None:
    tasks = tasks_of(64)
    full, half = both(tasks, **options)
    network = make()
    for evaluator in (full, half, half):
        evaluator(network, learning=0)
    record = record_of(half)
    assert reason in record.why and record.evaluations == 0
    assert str(record).startswith(f"full precision: {record.why}")
    assert half.trace.bits == full.trace.bits * 2


def test_weights_in_64_bits() -> None:
    tasks = [(x.double(), y) for x, y in tasks_of(64)]
    full, half = both(tasks)
    for evaluator in (full, half):
        evaluator(perceptron().double(), learning=0)
    assert half.trace == full.trace and "32 bits" in record_of(half).why


def test_a_single_output() -> None:
    tasks = tasks_of(64, classes=2)
    full, half = both(tasks)
    network = perceptron(outputs=1)
    for evaluator in (full, half):
        for _ in range(3):
            evaluator(network, learning=0)
    assert half.trace == full.trace and record_of(half).why == "the network has a single output"


def test_a_network_that_changes_itself() -> None:
    tasks = tasks_of(64)
    full, half = both(tasks)
    network = Counting()
    for evaluator in (full, half):
        with pytest.warns(SelfChange):
            evaluator(network, learning=0)
        evaluator(network, learning=0)
    assert half.trace == full.trace and network.calls == 0
    assert "changes itself" in record_of(half).why and record_of(half).evaluations == 1


def test_answers_that_depend_on_the_batch() -> None:
    tasks = tasks_of(64)
    full, half = both(tasks)
    learn(Dependent(), tasks, [full, half])
    assert half.trace == full.trace
    record = record_of(half)
    assert record.evaluations == 1 and record.wrong > 0 and "depends on the other samples" in record.why


# Scores that are not numbers, and ties ----------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0], ids=str)
def test_networks_that_have_diverged(value: float) -> None:
    tasks, network = tasks_of(64), perceptron()
    nn.init.constant_(list(network.parameters())[-2], value)
    full, half = both(tasks)
    for evaluator in (full, half, half):
        evaluator(network, learning=0)
    assert half.trace.bits == full.trace.bits * 2 and record_of(half).wrong == 0


def test_a_few_samples_that_are_not_numbers() -> None:
    tasks = tasks_of(64)
    tasks[0][0][::50, 3] = float("nan")
    full, half = both(tasks)
    learn(network := perceptron(), tasks[1:], [])
    for evaluator in (full, half, half):
        evaluator(network, learning=0)
    assert half.trace.bits == full.trace.bits * 2
    assert record_of(half).evaluations == 2 and record_of(half).wrong == 0


def test_equal_scores_are_decided_by_full_precision() -> None:
    last = nn.Linear(32, CLASSES)
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), last)
    with torch.no_grad():
        # Classes 2 and 7 have equal scores: the first is the answer.
        last.weight[7] = last.weight[2]
        last.bias[[2, 7]] = 2.0
    tasks = tasks_of(64)
    full, half = both(tasks)
    for evaluator in (full, half, half):
        evaluator(network, learning=0)
    assert half.trace.bits == full.trace.bits * 2


def test_labels_that_are_not_among_the_units_are_surely_wrong() -> None:
    scores = torch.randn(50, 6)
    found = margins_of(scores, torch.full((50,), 5), (1, 3))
    assert bool((found.margin < -1e30).all()) and bool(found.scale.isfinite().all())


def test_samples_in_doubt_widen_the_doubt_at_once() -> None:
    # Errors are large only near the boundary, where probes do not see them.
    full = torch.linspace(-1, 1, 20_001)[torch.randperm(20_001, generator=torch.Generator().manual_seed(3))]
    near = full.abs() < 0.02
    half = Margins(torch.where(near, -full, full + 1e-3 * torch.sin(1e4 * full)), torch.ones(len(full)))

    def ask(rows: Tensor) -> tuple[Tensor, Tensor]:
        return full[rows], full[rows] > 0

    settled = settle(half, ask, known_error=0.0, factor=FACTOR, seed=0)
    assert settled.right is not None and torch.equal(settled.right, full > 0)
    assert settled.error > 0.03 and settled.asked.float().mean() < 0.25


# Nothing is changed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [perceptron, convolutional], ids=["dense", "batch norm"])
def test_the_network_is_left_as_it_is(make: Callable[[], nn.Sequential]) -> None:
    shape = (64,) if make is perceptron else (1, 8, 8)
    tasks, network = tasks_of(*shape), make()
    with_half, without = network, copy.deepcopy(network)
    half = Evaluator(tasks, tasks="all", precision="half-checked")
    learn(with_half, tasks, [half])
    learn(without, tasks, [])
    assert record_of(half).evaluations == 12
    mine, plain = with_half.state_dict(), without.state_dict()
    assert all(
        torch.equal(mine[name], plain[name]) and mine[name].dtype == plain[name].dtype for name in plain
    )
    state = torch.get_rng_state()
    half(network, learning=1)
    assert torch.equal(torch.get_rng_state(), state) and network.training
    assert not torch.is_autocast_enabled("cpu")


# Auto: see test_trial.py
# Records and words --------------------------------------------------------------------------------------


def test_a_resumed_evaluator_goes_on_counting() -> None:
    tasks, network = tasks_of(64), perceptron()
    half = Evaluator(tasks, tasks="all", precision="half-checked")
    half(network, learning=0)
    resumed = Evaluator(tasks, tasks="all", precision="half-checked")
    resumed.load_state_dict(half.state_dict())
    assert record_of(resumed) == record_of(half)
    resumed(network, learning=0)
    assert record_of(resumed).evaluations == 2 and record_of(resumed).compared == 2
    full = Evaluator(tasks, tasks="all")
    full.load_state_dict(half.state_dict())
    assert full.precision_record is None


def test_comparisons_are_made_at_switches_and_every_so_often() -> None:
    check = Checked("half-checked")
    due = [check._is_due(learning, [0]) for learning in (0, 1) for _ in range(130)]
    assert [place for place, is_due in enumerate(due) if is_due] == [0, 64, 128, 130, 194, 258]


def test_unknown_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown precision 'half'"):
        Evaluator(tasks_of(64), precision="half")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown precision"):
        engram.run("split-digits", "er", precision="bf16", out=tmp_path / "runs")  # type: ignore[arg-type]
    from engram.cli.app import app

    result = CliRunner().invoke(app, ["run", "split-digits", "er", "--precision", "half"])
    assert isinstance(result.exception, InputError) and "half-checked" in str(result.exception)
    assert not (tmp_path / "runs").exists()
