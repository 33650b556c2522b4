"""Updates and evaluations on synthetic data, in line and side by side, for `benchmarks.parallel`.

`python -m benchmarks.beside_work WAY UPDATES` is started there and works in turns.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional

from benchmarks.contestants import perceptron
from benchmarks.turns import Lap, play
from benchmarks.work import ASKED, BATCH, CLASSES, LR, MEMORY_BATCH, MOMENTUM, TASKS, WIDTHS
from engram.evaluation.evaluator import Evaluator

SEEN = 3
"""Tasks that are evaluated where their number does not grow."""


def work(lap: Lap, *, way: str, updates: int) -> None:
    """Some updates, each with an evaluation.

    Args:
        lap: Reports the time.
        way: `learner` makes no evaluations, `evaluator` no updates, `apart` lets an evaluator on its own core
            make them; `off` and `auto` mean what they mean for an `Evaluator`, and with `-growing` five
            tasks are learned one after the other.
        updates: How many updates.
    """
    torch.manual_seed(0)
    parallel, _, grows = way.partition("-")
    x = torch.randn(BATCH + MEMORY_BATCH, WIDTHS[0])
    y = torch.randint(CLASSES, (len(x),))
    draw = torch.Generator().manual_seed(1)
    tests = [
        (torch.randn(ASKED, WIDTHS[0], generator=draw), torch.randint(CLASSES, (ASKED,), generator=draw))
        for _ in range(TASKS if grows else SEEN)
    ]
    words = {"apart": "1", "evaluator": "off", "learner": "off"}
    watch = Evaluator(tests, parallel=words.get(parallel, parallel), tasks="seen" if grows else "all")
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    # What happens once is no part of the comparison.
    learner, evaluator = _places(parallel)
    os.sched_setaffinity(0, evaluator)
    watch.before(model)
    if parallel == "apart":
        for _ in range(2):
            watch(model, learning=0)
    os.sched_setaffinity(0, learner)
    lap()
    for task, last in _steps(updates, TASKS if grows else 1):
        if parallel != "evaluator":
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if parallel != "learner":
            watch(model, learning=task, last=last and bool(grows))
    watch.settle()
    lap()
    watch.close()


def _steps(updates: int, tasks: int) -> Iterator[tuple[int, bool]]:
    """The task of each update, and whether it is the task's last."""
    each = updates // tasks
    for task in range(tasks):
        for step in range(each):
            yield task, step == each - 1


def _places(parallel: str) -> tuple[set[int], set[int]]:
    """The cores of the learner and of its evaluators, which are forked where it is then."""
    every = set(range(os.cpu_count() or 1))
    first, second = sorted(os.sched_getaffinity(0) if parallel in ("off", "auto") else every)[:2]
    places = {"learner": ({first}, {first}), "evaluator": ({second}, {second}), "apart": ({first}, {second})}
    return places.get(parallel, ({first, second}, {first, second}))


if __name__ == "__main__":
    chosen = partial(work, way=sys.argv[1])
    play(partial(chosen, updates=int(sys.argv[2])), rehearsal=partial(chosen, updates=10))
