"""The job done by engram, by a handwritten loop and, as a lower bound, by its matrix products alone.

`python -m benchmarks.contestants NAME DATA UPDATES` is started by `benchmarks.job` and works in turns.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.turns import Lap, play
from benchmarks.work import (
    ASKED,
    BATCH,
    LR,
    MEAN,
    MEMORY,
    MEMORY_BATCH,
    MOMENTUM,
    NEW_WEIGHT,
    STD,
    TASKS,
    WHOLE_TASK,
    WIDTHS,
    flops,
    read_arrays,
)

if TYPE_CHECKING:
    from engram.record.half_checked import Precision

Data = list[tuple[Tensor, Tensor]]
"""Inputs and labels of every task."""
Evaluate = Callable[[nn.Module, int], list[float]]
"""The accuracies of a network on what was seen up to a task."""
Evaluator = Callable[[Data], Evaluate]
"""How a network is evaluated, given test samples."""
TWO_LEVEL_SHARE = 0.43
"""The share of the samples that two levels ask in this job."""
SMALL_PART, ANCHOR_SHARE = 200, 0.28
"""The samples of each task that they ask at every update, and the share of updates at which they ask all."""
AGAIN_SHARE = 0.06
"""The share of what they ask that is asked again in full precision, comparisons not counted."""


def engram_job(
    lap: Lap, *, data: Path, updates: int, precision: Precision = "full", samples: str | None = None
) -> None:
    """engram itself, with its trace recorded and written; it locates the data itself."""
    del data
    from engram.datasets import load
    from engram.engine.loop import run_steps
    from engram.engine.memory import keep_freed_memory
    from engram.engine.recipe import experiment
    from engram.engine.where import Where

    planned = experiment(
        "split-fashion-mnist",
        "er",
        setting="class",
        hidden=WIDTHS[1:-1],
        optimizer="sgd",
        lr=LR,
        momentum=MOMENTUM,
        epochs=1 if updates == WHOLE_TASK else None,
        updates=None if updates == WHOLE_TASK else updates,
        batch_size=BATCH,
        settings={"memory": MEMORY, "memory_batch": MEMORY_BATCH, "weight": NEW_WEIGHT},
        evaluation={"every": 1, "subset": ASKED, "before": False, "samples": samples},
    )
    load("fashion-mnist")
    # As `engram run` does.
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as place:
        lap()
        steps = run_steps(planned, Where(out=None, precision=precision))
        done = 0
        while True:
            try:
                progress = next(steps)
            except StopIteration as end:
                end.value.trace.save(Path(place) / "trace.parquet")
                break
            if progress.learning > done:
                done = progress.learning
                lap()
        lap()


def by_hand(lap: Lap, *, data: Path, updates: int, evaluator: Evaluator | None = None) -> None:
    """A loop as a researcher would write it for one experiment: all data in memory, nothing extra.

    Args:
        lap: Ends a lap.
        data: The folder with the data.
        updates: Updates per task.
        evaluator: How networks are evaluated (default: `plainly`).
    """
    train, test = by_task(data, "train"), by_task(data, "test")
    evaluate = (evaluator or plainly)([(x[:ASKED], y[:ASKED]) for x, y in test])
    torch.manual_seed(0)
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    memory: dict[int, Tensor] = {}
    memory_x, memory_y = torch.empty(0), torch.empty(0)
    accuracies = []
    lap()
    for task, (x, y) in enumerate(train):
        for rows in torch.randperm(len(x)).split(BATCH)[:updates]:
            model.train()
            optimizer.zero_grad()
            if task == 0:
                loss = NEW_WEIGHT * functional.cross_entropy(model(x[rows]), y[rows])
            else:
                old = torch.randperm(len(memory_x))[:MEMORY_BATCH]
                logits = model(torch.cat([x[rows], memory_x[old]]))
                new_loss = functional.cross_entropy(logits[: len(rows)], y[rows])
                old_loss = functional.cross_entropy(logits[len(rows) :], memory_y[old])
                loss = NEW_WEIGHT * new_loss + (1 - NEW_WEIGHT) * old_loss
            loss.backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                accuracies += evaluate(model, task)
        for label in y.unique().tolist():
            samples = x[y == label]
            memory[label] = samples[torch.randperm(len(samples))]
        share = MEMORY // len(memory)
        memory = {label: kept[:share].clone() for label, kept in memory.items()}
        memory_x = torch.cat(list(memory.values()))
        memory_y = torch.cat([torch.full((len(kept),), label) for label, kept in memory.items()])
        lap()


def plainly(test: Data) -> Evaluate:
    """Task by task, in full precision."""

    def evaluate(model: nn.Module, task: int) -> list[float]:
        return [float((model(x).argmax(1) == y).float().mean()) for x, y in test[: task + 1]]

    return evaluate


def roughly(test: Data, *, share: float = 1.0, again: float = 0.0) -> Evaluate:
    """A lower bound: samples of all tasks at once, in half precision as engram computes it, nothing decided.

    Args:
        test: The samples of every task.
        share: The share of them that is asked.
        again: The share of these that is asked in full precision too, without looking which are in doubt.
    """
    from engram.evaluation.dense import dense_layers
    from engram.evaluation.doubt import in_blocks
    from engram.evaluation.half import half_scorer, worth_integers
    from engram.evaluation.integers import as_integers

    parts = [(x[: round(share * len(x))], y[: round(share * len(y))]) for x, y in test]
    seen = [
        (torch.cat([x for x, _ in parts[:tasks]]), torch.cat([y for _, y in parts[:tasks]]))
        for tasks in range(1, TASKS + 1)
    ]
    given = [(as_integers(x), x.bfloat16(), y) for x, y in seen]
    doubted = [x[: in_blocks(round(again * len(x)))] for x, _ in seen]

    def evaluate(model: nn.Module, task: int) -> list[float]:
        integers, rounded, y = given[task]
        if integers is None or not worth_integers(dense_layers(model), len(y)):
            scores = half_scorer(model).scores(rounded)
        else:
            scores = half_scorer(model, lattice=integers.lattice).scores(integers.values)
        if again:
            model(doubted[task])
        return [float((scores.argmax(1) == y).float().mean())]

    return evaluate


def in_two_levels(test: Data) -> Evaluate:
    """A lower bound: a part of the samples every time, the rest now and then, some in full precision too."""
    few, rest = (
        roughly([(x[part], y[part]) for x, y in test], again=AGAIN_SHARE)
        for part in (slice(SMALL_PART), slice(SMALL_PART, None))
    )
    due = 0.0

    def evaluate(model: nn.Module, task: int) -> list[float]:
        nonlocal due
        due += ANCHOR_SHARE
        accuracies = few(model, task)
        if due >= 1:
            due -= 1
            accuracies += rest(model, task)
        return accuracies

    return evaluate


def matrix_products(lap: Lap, *, data: Path, updates: int) -> None:
    """The time of the job's matrix products, if all ran at the best measured rate of this machine."""
    del data
    sizes = [(512, 784, 400), (1000, 784, 400), (1000, 400, 400), (1024, 1024, 1024), (2048, 2048, 2048)]
    operands = [(torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)) for m, k, n in sizes]
    lap()
    with torch.inference_mode():
        for task in range(TASKS):
            best = max(rate(*product) for product in operands)
            lap(instead=flops(task, updates) / best)


def rate(a: Tensor, b: Tensor, into: Tensor, *, seconds: float = 0.2) -> float:
    """Floating-point operations per second of one matrix product, repeated for `seconds`."""
    torch.mm(a, b, out=into)
    once = 2 * a.shape[0] * a.shape[1] * b.shape[1]
    done, started = 0, time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        torch.mm(a, b, out=into)
        done += once
    return done / spent


def by_task(folder: Path, part: str) -> Data:
    """The samples of every task, normalised."""
    arrays = read_arrays(folder)
    x = torch.from_numpy(arrays[f"x_{part}"]).flatten(1).float().div_(255).sub_(MEAN).div_(STD)
    y = torch.from_numpy(arrays[f"y_{part}"].astype(np.int64))
    return [(x[y // 2 == task], y[y // 2 == task]) for task in range(TASKS)]


def perceptron() -> nn.Sequential:
    """The job's network."""
    layers: list[nn.Module] = []
    for size, width in pairwise(WIDTHS):
        layers += [nn.Linear(size, width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


JOBS: dict[str, Callable[..., None]] = {
    "engram": engram_job,
    "engram-half": partial(engram_job, precision="half-checked"),
    "engram-two-level": partial(engram_job, precision="half-checked", samples="two-level"),
    "engram-two-level-100": partial(engram_job, precision="half-checked", samples="two-level:100"),
    "by-hand": by_hand,
    "by-hand-rounded": partial(by_hand, evaluator=roughly),
    "by-hand-rounded-part": partial(by_hand, evaluator=partial(roughly, share=TWO_LEVEL_SHARE)),
    "by-hand-two-level": partial(by_hand, evaluator=in_two_levels),
    "products": matrix_products,
}

if __name__ == "__main__":
    name, folder, updates = sys.argv[1:]
    job = partial(JOBS[name], data=Path(folder))
    play(partial(job, updates=int(updates)), rehearsal=partial(job, updates=2))
