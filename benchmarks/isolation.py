"""What it costs to restore a network after every evaluation, as a share of a run.

CPU time of one thread, which other processes hardly affect. The cost is that of the guard itself, over all
evaluations of a run, less that of switching modes by hand; the run is updates and evaluations as in the job,
when three tasks have been seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.contestants import perceptron
from benchmarks.report import Figure, Options, Report, figure
from benchmarks.work import ASKED, BATCH, CLASSES, LR, MEMORY_BATCH, MOMENTUM, TASKS, WHOLE_TASK, WIDTHS
from engram.engine.loop import run, run_steps
from engram.engine.recipe import experiment
from engram.evaluation.evaluator import Evaluator
from engram.evaluation.guard import Guard
from engram.models import ModelSpec, build

SEEN = 3
EVALUATIONS = TASKS * WHOLE_TASK
"""Evaluations of the whole job."""
STEPS, QUICK_STEPS = 5, 2
SMALL_UPDATES = 60
"""Updates per task of the small run."""
TARGET = 0.01


class Own(nn.Module):
    """The job's network as a class of a user's own, so that it must be watched."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron()
        self.calls: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        """The scores."""
        scores: Tensor = self.layers(x)
        return scores


def slim_resnet() -> nn.Module:
    """The network of the online benchmarks."""
    return build(ModelSpec("slim-resnet18"), shape=(3, 32, 32), n_units=CLASSES, seed=0)


class OwnResnet(nn.Module):
    """The same within a class of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = slim_resnet()

    def forward(self, x: Tensor) -> Tensor:
        """The scores."""
        scores: Tensor = self.inner(x)
        return scores


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int]] = {
    "the job's network": (perceptron, WIDTHS[:1], BATCH + MEMORY_BATCH, SEEN * ASKED),
    "the same as a user's class": (Own, WIDTHS[:1], BATCH + MEMORY_BATCH, SEEN * ASKED),
    "slim ResNet-18": (slim_resnet, (3, 32, 32), 20, 200),
    "the same in a user's class": (OwnResnet, (3, 32, 32), 20, 200),
}
"""The network, the shape of a sample, samples per update, and samples per evaluation."""


def measure(options: Options) -> list[Report]:
    """Time the guard and the work of a run, in turns."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    shown = Report(f"Restoring the network after each of {EVALUATIONS} evaluations, as a share of the run")
    try:
        for name, network in NETWORKS.items():
            shown.figures.append(share(name, *network, options))
        shown.figures.append(small_run(options))
    finally:
        torch.set_num_threads(before)
    shown.remarks.append(
        "CPU time on one thread; a user's class may do anything, so it is looked at each time"
    )
    return [shown]


def share(
    name: str,
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    learned: int,
    evaluated: int,
    options: Options,
) -> Figure:
    """The guard's share of the time of updates and evaluations."""
    torch.manual_seed(0)
    network = make()
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)
    x, y = torch.randn(learned, *shape), torch.randint(CLASSES, (learned,))
    test = torch.randn(evaluated, *shape), torch.randint(CLASSES, (evaluated,))
    evaluator = Evaluator([test])
    steps = QUICK_STEPS if options.quick else STEPS
    shares = []
    for number in range(options.rounds + 1):
        started = time.process_time()
        for _ in range(steps):
            optimizer.zero_grad()
            functional.cross_entropy(network(x), y).backward()
            optimizer.step()
            evaluator(network, learning=0)
        step = (time.process_time() - started) / steps
        guarded = spent(network, Guard().untouched)
        # The first round is a rehearsal.
        if number:
            shares.append((guarded - spent(network, modes_only)) / (EVALUATIONS * step))
    return figure(f"guard / run, {name}", shares, target=TARGET)


def spent(network: nn.Module, guard: Callable[[nn.Module], object], evaluations: int = EVALUATIONS) -> float:
    """The time of a guard around all evaluations of a run, without the evaluations."""
    started = time.process_time()
    for _ in range(evaluations):
        with guard(network):  # type: ignore[attr-defined]
            pass
    return time.process_time() - started


@contextmanager
def modes_only(network: nn.Module) -> Iterator[None]:
    """What anybody does around an evaluation."""
    network.eval()
    with torch.no_grad():
        yield
    network.train()


def small_run(options: Options) -> Figure:
    """The guard's share of a run whose network is so small that everything else takes little time as well.

    Whole runs with and without the guard differ by less than two measurements of the same run do.
    """
    planned = experiment("split-digits", "er", updates=SMALL_UPDATES, evaluation={"subset": 100})
    *_, last = run_steps(planned)
    assert last.method is not None
    network, evaluations = last.method.predictor(), last.steps + 1
    shares = []
    for _ in range(options.rounds):
        started = time.process_time()
        run(planned)
        whole = time.process_time() - started
        guarded = spent(network, Guard().untouched, evaluations)
        shares.append((guarded - spent(network, modes_only, evaluations)) / whole)
    return figure("guard / run, split-digits er", shares, target=TARGET, note="a small network")
