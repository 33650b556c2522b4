"""The job's updates and evaluations on synthetic data, for `benchmarks.threads`.

`python -m benchmarks.inner_work UPDATES` is started there and works in turns.
"""

from __future__ import annotations

import sys
from functools import partial

import torch
from torch.nn import functional

from benchmarks.contestants import perceptron
from benchmarks.turns import Lap, play
from benchmarks.work import ASKED, BATCH, CLASSES, LR, MEMORY_BATCH, MOMENTUM, WIDTHS

SEEN = 3


def inner_work(lap: Lap, *, updates: int) -> None:
    """Updates and evaluations as in the middle of the job, when three tasks have been seen."""
    torch.manual_seed(0)
    x = torch.randn(BATCH + MEMORY_BATCH, WIDTHS[0])
    y = torch.randint(CLASSES, (len(x),))
    test_sets = torch.randn(SEEN, ASKED, WIDTHS[0])
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    lap()
    for _ in range(updates):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.inference_mode():
            for task in test_sets:
                model(task).argmax(1)
    lap()


if __name__ == "__main__":
    play(partial(inner_work, updates=int(sys.argv[1])), rehearsal=partial(inner_work, updates=2))
