"""What it brings to lay images out with their channels last in memory, for networks that convolve.

Updates and evaluations of the same layers with and without, in turns. Times are processor time of one thread,
which other processes hardly disturb.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.report import Options, Report, figure, ratios
from engram.models import ModelSpec, build

NETWORKS = {
    "slim ResNet-18, 20 colour images": ("slim-resnet18", (3, 32, 32), 20),
    "002's CNN, 64 colour images": ("cnn", (3, 32, 32), 64),
    "002's CNN, 128 grey images": ("cnn", (1, 28, 28), 128),
    "004's CONV, 100 grey images": ("conv", (1, 32, 32), 100),
}
TIMES, QUICK_TIMES, EVALUATED = 10, 3, 500


def measure(options: Options) -> list[Report]:
    """Time updates and evaluations of each network in both layouts."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    shown = Report("Channels last in memory / channels first")
    times = QUICK_TIMES if options.quick else TIMES
    for name, (model, shape, batch) in NETWORKS.items():
        network = build(ModelSpec(model), shape=shape, n_units=10, seed=0)
        first = copy.deepcopy(network)
        first.features = nn.Sequential(*first.features.children())
        x, y = torch.randn(batch, *shape), torch.arange(batch) % 10
        questions = torch.randn(EVALUATED, *shape)
        updates: list[list[float]] = [[], []]
        evaluations: list[list[float]] = [[], []]
        for _ in range(options.rounds):
            for which, each in enumerate((network, first)):
                updates[which].append(_seconds(partial(_update, each, x, y), times))
                evaluations[which].append(_seconds(partial(_evaluate, each, questions), times // 3))
        shown.figures.append(figure(f"update, {name}", ratios(*updates)))
        shown.figures.append(figure(f"evaluation, {name}", ratios(*evaluations)))
    torch.set_num_threads(before)
    shown.remarks.append("processor time on one thread")
    return [shown]


def _update(network: nn.Module, x: Tensor, y: Tensor) -> None:
    network.train().zero_grad(set_to_none=True)
    nn.functional.cross_entropy(network(x), y).backward()


def _evaluate(network: nn.Module, x: Tensor) -> None:
    with torch.inference_mode():
        network.eval()(x)


def _seconds(work: Callable[[], None], times: int) -> float:
    work()
    started = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - started
