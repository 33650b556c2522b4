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
TWO_LEVEL_SHARE = 0.43
"""The share of the samples that two levels ask in this job."""


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


def by_hand(lap: Lap, *, data: Path, updates: int, rounded: float | None = None) -> None:
    """A loop as a researcher would write it for one experiment: all data in memory, nothing extra.

    Args:
        lap: Ends a lap.
        data: The folder with the data.
        updates: Updates per task.
        rounded: As a lower bound, this share of the samples is asked in half precision, all at once, and no
            answer is checked.
    """
    train, test = by_task(data, "train"), by_task(data, "test")
    test = [(x[:ASKED], y[:ASKED]) for x, y in test]
    evaluate = plainly(test) if rounded is None else roughly(test, rounded)
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


Evaluate = Callable[[nn.Module, int], list[float]]
"""The accuracies of a network on what was seen up to a task."""


def plainly(test: Data) -> Evaluate:
    """Task by task, in full precision."""

    def evaluate(model: nn.Module, task: int) -> list[float]:
        return [float((model(x).argmax(1) == y).float().mean()) for x, y in test[: task + 1]]

    return evaluate


def roughly(test: Data, share: float) -> Evaluate:
    """A share of the samples of all tasks at once, in half precision as engram computes it."""
    from engram.evaluation.dense import dense_layers
    from engram.evaluation.half import half_scorer, worth_integers
    from engram.evaluation.integers import as_integers

    parts = [(x[: round(share * len(x))], y[: round(share * len(y))]) for x, y in test]
    seen = [
        (torch.cat([x for x, _ in parts[:tasks]]), torch.cat([y for _, y in parts[:tasks]]))
        for tasks in range(1, TASKS + 1)
    ]
    given = [(as_integers(x), x.bfloat16(), y) for x, y in seen]

    def evaluate(model: nn.Module, task: int) -> list[float]:
        integers, rounded, y = given[task]
        if integers is None or not worth_integers(dense_layers(model), len(y)):
            scores = half_scorer(model).scores(rounded)
        else:
            scores = half_scorer(model, lattice=integers.lattice).scores(integers.values)
        return [float((scores.argmax(1) == y).float().mean())]

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
    "by-hand-rounded": partial(by_hand, rounded=1.0),
    "by-hand-rounded-part": partial(by_hand, rounded=TWO_LEVEL_SHARE),
    "products": matrix_products,
}

if __name__ == "__main__":
    name, folder, updates = sys.argv[1:]
    job = partial(JOBS[name], data=Path(folder))
    play(partial(job, updates=int(updates)), rehearsal=partial(job, updates=2))
